//! Asks an API server by SelfSubjectAccessReview what an agent or a server may do there.

use std::time::SystemTime;

use http::Method;
use policy::ServiceName;
use serde_json::{Value, json};

use super::caller::status_message;
use super::check::Check;
use super::clock;
use super::configuration::{RawAgentConfig, RawImpersonation};
use super::excess_rights::{self, Excess};
use super::report::Report;
use crate::https::HttpsConnection;

/// The path for reviews of one's own rights.
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

const CHECK: Check = Check::Rights;
const ADVICE: Advice = Advice {
    credential: "renew the token or certificate of the agent's ServiceAccount",
    rights: "apply the output of `tombolo rbac` for the agent's configuration to the cluster",
};

/// Advice for an API server that does not allow something.
pub(super) struct Advice {
    /// Advice if the API server does not accept the credential.
    pub(super) credential: &'static str,
    /// Advice if a right is missing.
    pub(super) rights: &'static str,
}

/// A right that an agent needs. One of two pairs of verb and API group is enough.
struct RequiredRight {
    preferred: (&'static str, &'static str),
    alternative: Option<(&'static str, &'static str)>,
    resource: &'static str,
    namespace: String,
    /// The name of the resource; empty for all names.
    name: String,
    purpose: &'static str,
}

/// A review that failed and was reported. Further reviews would fail the same way.
pub(super) struct ReviewFailed;

/// Checks the rights that the agent's configuration needs. The first response is also used to check the clock.
pub(super) async fn check_all(
    config: &RawAgentConfig,
    connection: &mut HttpsConnection,
    prefix: &str,
    report: &mut Report,
) {
    let mut missing = Vec::new();
    let mut clock_checked = false;
    for right in required_rights(config) {
        let mut allowed = false;
        for (verb, group) in [Some(right.preferred), right.alternative].into_iter().flatten() {
            let attributes = json!({
                "verb": verb,
                "group": group,
                "resource": right.resource,
                "namespace": right.namespace,
                "name": right.name,
            });
            let reviewed = review(&attributes, connection, prefix, &ADVICE, &mut clock_checked, report).await;
            let Ok(is_allowed) = reviewed else { return };
            allowed |= is_allowed;
            if allowed {
                break;
            }
        }
        if !allowed {
            let (verb, _) = right.preferred;
            missing.push(format!("{verb} {} {}({})", right.resource, right.quoted_name(), right.purpose));
        }
    }
    let is_mighty = match excess_rights::check(allows_anybody(config), connection, prefix, report).await {
        Excess::Dangerous => true,
        Excess::None | Excess::Unknown => false,
        Excess::Incomplete => {
            let everything = json!({ "verb": "*", "group": "*", "resource": "*" });
            let reviewed = review(&everything, connection, prefix, &ADVICE, &mut clock_checked, report).await;
            match reviewed {
                Ok(true) => excess_rights::report_powers(report, &[excess_rights::EVERYTHING]),
                Ok(false) => excess_rights::report_none(report),
                Err(ReviewFailed) => return,
            }
            matches!(reviewed, Ok(true))
        }
    };
    if !missing.is_empty() {
        report.fail(CHECK, format!("the agent may not {}", missing.join(", nor ")), ADVICE.rights);
    } else if !is_mighty {
        report
            .ok(CHECK, "the agent may impersonate users and groups, and read the control plane's endpoints");
    }
}

/// True if the configuration lets the agent impersonate by a pattern. RBAC has no patterns, so the agent then needs the right to
/// impersonate anybody.
fn allows_anybody(config: &RawAgentConfig) -> bool {
    let RawImpersonation { users, groups } = &config.impersonation;
    has_patterns(users.as_ref()) || has_patterns(groups.as_ref())
}

fn has_patterns(names: Option<&Vec<String>>) -> bool {
    names.is_none_or(|names| names.iter().any(|name| name.contains('*')))
}

/// Asks whether these resource attributes are allowed. Checks the clock by the first response, and reports a failed review.
pub(super) async fn review(
    attributes: &Value,
    connection: &mut HttpsConnection,
    prefix: &str,
    advice: &Advice,
    clock_checked: &mut bool,
    report: &mut Report,
) -> Result<bool, ReviewFailed> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": attributes },
    });
    let response =
        match connection.send(Method::POST, &format!("{prefix}{REVIEWS}"), Some(review.to_string())).await {
            Ok(response) => response,
            Err(error) => {
                report.fail(CHECK, format!("the API server does not answer ({error})"), "see its log");
                return Err(ReviewFailed);
            }
        };
    if !*clock_checked {
        clock::compare(report, "the API server", response.date, SystemTime::now());
        *clock_checked = true;
    }
    let review: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    match response.status {
        200 | 201 => Ok(review["status"]["allowed"] == Value::Bool(true)),
        401 => {
            let found = format!("the API server does not accept it ({})", status_message(&response));
            report.fail(Check::Credential, found, advice.credential);
            Err(ReviewFailed)
        }
        status => {
            report.fail(
                CHECK,
                format!("the API server answers {status} ({})", status_message(&response)),
                advice.rights,
            );
            Err(ReviewFailed)
        }
    }
}

/// The rights that the agent needs: to impersonate the names of its configuration, to read the control plane's endpoints, and to
/// read the Services that it names.
fn required_rights(config: &RawAgentConfig) -> Vec<RequiredRight> {
    let RawAgentConfig { impersonation, advertise, targets, .. } = config;
    let lists = [("users", &impersonation.users), ("groups", &impersonation.groups)];
    let impersonated = lists.into_iter().flat_map(|(resource, names)| {
        // RBAC has no patterns: an agent with a pattern needs the right to impersonate anybody.
        let names = if has_patterns(names.as_ref()) {
            vec![String::new()]
        } else {
            names.clone().unwrap_or_default()
        };
        names.into_iter().map(move |name| RequiredRight {
            preferred: ("impersonate", ""),
            alternative: Some(("impersonate:user-info", "authentication.k8s.io")),
            resource,
            namespace: String::new(),
            name,
            purpose: "act for callers",
        })
    });
    let slices = ["list", "watch"].map(|verb| RequiredRight {
        preferred: (verb, "discovery.k8s.io"),
        alternative: None,
        resource: "endpointslices",
        namespace: "default".to_owned(),
        name: "kubernetes".to_owned(),
        purpose: "find the control plane's addresses",
    });
    let services = ServiceName::among(advertise.iter().chain(targets));
    let of_services = services.iter().flat_map(|service| {
        let read = |verb, (resource, group, name): (&'static str, &'static str, &str)| RequiredRight {
            preferred: (verb, group),
            alternative: None,
            resource,
            namespace: service.namespace().to_owned(),
            name: name.to_owned(),
            purpose: "find where the Services lead that targets names",
        };
        let kinds = [("services", "", service.name()), ("endpointslices", "discovery.k8s.io", "")];
        kinds.into_iter().flat_map(move |kind| ["list", "watch"].map(|verb| read(verb, kind)))
    });
    impersonated.chain(slices).chain(of_services).collect()
}

impl RequiredRight {
    fn quoted_name(&self) -> String {
        if self.name.is_empty() { String::new() } else { format!("{:?} ", self.name) }
    }
}
