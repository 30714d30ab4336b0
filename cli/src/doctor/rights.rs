//! What an agent, or a server, may do at an API server, asked of the API server itself.

use std::time::SystemTime;

use http::Method;
use policy::ServiceName;
use serde_json::{Value, json};

use super::caller::message;
use super::clock;
use super::configuration::AgentConfig;
use super::reach::Reached;
use super::report::Report;

/// Where a question about one's own rights goes.
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

const CHECK: &str = "rights";
const ADVICE: Advice = Advice {
    credential: "renew the token or certificate of the agent's ServiceAccount",
    rights: "apply what `tombolo rbac` makes of the agent's configuration to the cluster",
};

/// What to do where the API server does not say yes.
pub(super) struct Advice {
    /// Where it does not accept the credential.
    pub(super) credential: &'static str,
    /// Where a right is missing.
    pub(super) rights: &'static str,
}

/// Something that an agent must be allowed, in one way or otherwise: verb and group.
struct Right {
    way: (&'static str, &'static str),
    otherwise: Option<(&'static str, &'static str)>,
    resource: &'static str,
    namespace: String,
    /// Empty for all.
    name: String,
    purpose: &'static str,
}

/// What says that there is no point in asking more.
pub(super) struct Ended;

/// Asks the API server what the agent may do there; the first answer shows the clock, too.
pub(super) async fn examine(config: &AgentConfig, reached: &mut Reached, prefix: &str, report: &mut Report) {
    let mut missing = Vec::new();
    let mut shown = false;
    for right in rights(config) {
        let mut allowed = false;
        for (verb, group) in [Some(right.way), right.otherwise].into_iter().flatten() {
            let attributes = json!({
                "verb": verb,
                "group": group,
                "resource": right.resource,
                "namespace": right.namespace,
                "name": right.name,
            });
            let asked = ask(&attributes, reached, prefix, &ADVICE, &mut shown, report).await;
            let Ok(may) = asked else { return };
            allowed |= may;
            if allowed {
                break;
            }
        }
        if !allowed {
            let (verb, _) = right.way;
            missing.push(format!("{verb} {} {}({})", right.resource, right.spoken_name(), right.purpose));
        }
    }
    if missing.is_empty() {
        report
            .ok(CHECK, "the agent may impersonate users and groups, and read the control plane's endpoints");
    } else {
        report.fail(CHECK, format!("the agent may not {}", missing.join(", nor ")), ADVICE.rights);
    }
}

/// Whether what these attributes of a resource say is allowed. The first answer shows the clock, too, and what ends the
/// examination is reported.
pub(super) async fn ask(
    attributes: &Value,
    reached: &mut Reached,
    prefix: &str,
    advice: &Advice,
    shown: &mut bool,
    report: &mut Report,
) -> Result<bool, Ended> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": attributes },
    });
    let answer =
        match reached.ask(Method::POST, &format!("{prefix}{REVIEWS}"), Some(review.to_string())).await {
            Ok(answer) => answer,
            Err(error) => {
                report.fail(CHECK, format!("the API server does not say ({error})"), "see its log");
                return Err(Ended);
            }
        };
    if !*shown {
        clock::compare(report, "the API server", answer.date, SystemTime::now());
        *shown = true;
    }
    let review: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    match answer.status {
        200 | 201 => Ok(review["status"]["allowed"] == Value::Bool(true)),
        401 => {
            let said = format!("the API server does not accept it ({})", message(&answer));
            report.fail("credential", said, advice.credential);
            Err(Ended)
        }
        status => {
            report.fail(
                CHECK,
                format!("the API server answers {status} ({})", message(&answer)),
                advice.rights,
            );
            Err(Ended)
        }
    }
}

/// What the agent needs: to assert whom its own file lists, and to read where the control plane is, and the Services that it names.
fn rights(config: &AgentConfig) -> Vec<Right> {
    let AgentConfig { impersonation, advertise, targets, .. } = config;
    let lists = [("users", &impersonation.users), ("groups", &impersonation.groups)];
    let asserted = lists.into_iter().flat_map(|(resource, names)| {
        // RBAC knows no patterns: whoever is to assert those must be allowed to assert anybody.
        let has_patterns = names.as_ref().is_none_or(|names| names.iter().any(|name| name.contains('*')));
        let names = if has_patterns { vec![String::new()] } else { names.clone().unwrap_or_default() };
        names.into_iter().map(move |name| Right {
            way: ("impersonate", ""),
            otherwise: Some(("impersonate:user-info", "authentication.k8s.io")),
            resource,
            namespace: String::new(),
            name,
            purpose: "act for callers",
        })
    });
    let slices = ["list", "watch"].map(|verb| Right {
        way: (verb, "discovery.k8s.io"),
        otherwise: None,
        resource: "endpointslices",
        namespace: "default".to_owned(),
        name: "kubernetes".to_owned(),
        purpose: "find the control plane's addresses",
    });
    let services = ServiceName::among(advertise.iter().chain(targets));
    let of_services = services.iter().flat_map(|service| {
        let read = |verb, (resource, group, name): (&'static str, &'static str, &str)| Right {
            way: (verb, group),
            otherwise: None,
            resource,
            namespace: service.namespace().to_owned(),
            name: name.to_owned(),
            purpose: "find where the Services lead that targets names",
        };
        let kinds = [("services", "", service.name()), ("endpointslices", "discovery.k8s.io", "")];
        kinds.into_iter().flat_map(move |kind| ["list", "watch"].map(|verb| read(verb, kind)))
    });
    asserted.chain(slices).chain(of_services).collect()
}

impl Right {
    fn spoken_name(&self) -> String {
        if self.name.is_empty() { String::new() } else { format!("{:?} ", self.name) }
    }
}
