//! What a tunnel-server needs of those whom it asks about callers: their CA, its token, and the right to ask.

use std::path::Path;
use std::time::SystemTime;

use daemon::Scope;
use serde_json::json;
use url::Url;

use super::certificate;
use super::configuration::{HostCluster, ServerConfig};
use super::kubeconfig;
use super::reach::Target;
use super::report::Report;
use super::rights::{self, Advice};

/// What is asked there: group and resource, which the server must be allowed to create.
type Review = (&'static str, &'static str);

const CHECK: &str = "rights";
const TOKEN_REVIEWS: Review = ("authentication.k8s.io", "tokenreviews");
const ACCESS_REVIEWS: Review = ("authorization.k8s.io", "subjectaccessreviews");

const ADVICE: Advice = Advice {
    credential: "renew the token in tokenFile",
    rights: "bind the token's account to the ClusterRole system:auth-delegator there",
};

/// Looks at the files of all whom the configuration names, and asks each API server once.
pub(super) async fn examine(config: &ServerConfig, base: &Path, scope: &Scope, report: &mut Report) {
    let ways = &config.gateway.authentication;
    for issuer in &ways.oidc {
        certificate::roots(report, "issuer's CA", &base.join(&issuer.ca_file), SystemTime::now());
    }
    if let Some(host) = &ways.token_review {
        ask(host, "the reviewer of tokens", TOKEN_REVIEWS, base, scope, report).await;
    }
    if let Some(host) = &config.policy.delegation {
        ask(host, "the cluster that is asked about access", ACCESS_REVIEWS, base, scope, report).await;
    }
}

async fn ask(
    host: &HostCluster,
    whose: &'static str,
    (group, resource): Review,
    base: &Path,
    scope: &Scope,
    report: &mut Report,
) {
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
    let attributes = json!({ "verb": "create", "group": group, "resource": resource });
    let Ok(may) = rights::ask(&attributes, &mut reached, "", &ADVICE, &mut false, report).await else {
        return;
    };
    if may {
        report.ok(CHECK, format!("the server may create {resource} at {whose}"));
    } else {
        report.fail(CHECK, format!("the server may not create {resource} at {whose}"), ADVICE.rights);
    }
}
