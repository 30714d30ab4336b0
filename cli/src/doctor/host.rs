//! What a tunnel-server needs of those whom it asks about callers: their CA, its token, and the right to ask.

use std::path::Path;
use std::time::SystemTime;

use daemon::Scope;
use serde_json::json;
use url::Url;

use super::certificate;
use super::configuration::{HostCluster, Publish, ServerConfig};
use super::kubeconfig;
use super::reach::Target;
use super::report::Report;
use super::rights::{self, Advice};

const CHECK: &str = "rights";

/// Where the server keeps Services unless its configuration says otherwise.
const NAMESPACE_DEFAULT: &str = "tombolo";

/// An API server that the configuration names, and what the server must be allowed there.
struct Host<'a> {
    at: &'a HostCluster,
    whose: &'static str,
    verbs: &'static [&'static str],
    /// Groups and resources.
    resources: &'static [(&'static str, &'static str)],
    /// Empty for what is in none.
    namespace: &'a str,
    advice: Advice,
}

const TO_ASK: Advice = Advice {
    credential: "renew the token in tokenFile",
    rights: "bind the token's account to the ClusterRole system:auth-delegator there",
};
const TO_PUBLISH: Advice = Advice {
    credential: "renew the token in tokenFile",
    rights: "apply deploy/server/vip there, and bind its Role to the token's account",
};

/// Looks at the files of all whom the configuration names, and asks each API server once.
pub(super) async fn examine(config: &ServerConfig, base: &Path, scope: &Scope, report: &mut Report) {
    let ways = &config.gateway.authentication;
    for issuer in &ways.oidc {
        certificate::roots(report, "issuer's CA", &base.join(&issuer.ca_file), SystemTime::now());
    }
    let asked = |at, whose, resources| Host {
        at,
        whose,
        verbs: &["create"],
        resources,
        namespace: "",
        advice: TO_ASK,
    };
    let reviewer = ways
        .token_review
        .as_ref()
        .map(|at| asked(at, "the reviewer of tokens", &[("authentication.k8s.io", "tokenreviews")]));
    let delegate = config.policy.delegation.as_ref().map(|at| {
        let whose = "the cluster that is asked about access";
        asked(at, whose, &[("authorization.k8s.io", "subjectaccessreviews")])
    });
    let publisher = config.vip.publish.as_ref().map(|Publish { host, namespace }| Host {
        at: host,
        whose: "the cluster that has Services for clusters",
        verbs: &["get", "list", "create", "patch", "delete"],
        resources: &[("", "services"), ("discovery.k8s.io", "endpointslices")],
        namespace: namespace.as_deref().unwrap_or(NAMESPACE_DEFAULT),
        advice: TO_PUBLISH,
    });
    for host in [reviewer, delegate, publisher].into_iter().flatten() {
        ask(&host, base, scope, report).await;
    }
}

async fn ask(asked: &Host<'_>, base: &Path, scope: &Scope, report: &mut Report) {
    let Host { at: host, whose, verbs, resources, namespace, advice } = asked;
    let roots = certificate::roots(report, "host's CA", &base.join(&host.ca_file), SystemTime::now());
    let token = kubeconfig::token(report, &base.join(&host.token_file));
    let (Some(roots), Some(token)) = (roots, token) else { return };
    let url = Url::parse(&host.server).ok().filter(|url| url.scheme() == "https");
    let Some((url, name)) = url.as_ref().and_then(|url| Some((url, url.host_str()?))) else {
        report.fail("server", format!("{:?} is not https://HOST[:PORT]", host.server), "correct it");
        return;
    };
    let target = Target {
        whose,
        host: name.trim_matches(['[', ']']).to_owned(),
        port: url.port_or_known_default().unwrap_or(443),
        server_name: None,
        roots,
        identity: None,
        token: Some(token),
    };
    let Some(mut reached) = target.reach(report, scope).await else { return };
    let (mut missing, mut shown) = (Vec::new(), false);
    for (group, resource) in *resources {
        for verb in *verbs {
            let attributes =
                json!({ "verb": verb, "group": group, "resource": resource, "namespace": namespace });
            let asked = rights::ask(&attributes, &mut reached, "", advice, &mut shown, report).await;
            let Ok(may) = asked else { return };
            if !may {
                missing.push(format!("{verb} {resource}"));
            }
        }
    }
    let all: Vec<&str> = resources.iter().map(|(_, resource)| *resource).collect();
    if missing.is_empty() {
        let (verbs, all) = (verbs.join(", "), all.join(" and "));
        report.ok(CHECK, format!("the server may {verbs} {all} at {whose}"));
    } else {
        report.fail(
            CHECK,
            format!("the server may not {} at {whose}", missing.join(", nor ")),
            advice.rights,
        );
    }
}
