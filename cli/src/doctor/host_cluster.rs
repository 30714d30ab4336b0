//! Checks what a tunnel-server needs of other API servers and OIDC issuers: their CA, its token, and its rights there.

use std::path::Path;
use std::time::SystemTime;

use crate::kubeconfig::reader::HttpsServer;
use daemon::Scope;
use serde_json::json;

use super::access_review::{self, Advice};
use super::certificate;
use super::check::Check;
use super::configuration::{RawHostCluster, RawPublish, RawServerConfig};
use super::https::HttpsTarget;
use super::kubeconfig;
use super::report::Report;

const CHECK: Check = Check::Rights;

/// The default namespace of the Services for clusters.
const NAMESPACE_DEFAULT: &str = "tombolo";

/// An API server of the configuration, and the rights that the tunnel-server needs there.
struct HostClusterCheck<'a> {
    at: &'a RawHostCluster,
    whose: &'static str,
    verbs: &'static [&'static str],
    /// Pairs of API group and resource.
    resources: &'static [(&'static str, &'static str)],
    /// Empty for resources without a namespace.
    namespace: &'a str,
    advice: Advice,
}

const REVIEW_ADVICE: Advice = Advice {
    credential: "renew the token in tokenFile",
    rights: "bind the token's account to the ClusterRole system:auth-delegator there",
};
const PUBLISH_ADVICE: Advice = Advice {
    credential: "renew the token in tokenFile",
    rights: "apply deploy/server/vip there, and bind its Role to the token's account",
};

/// Checks the files for each OIDC issuer and API server of the configuration, and asks each API server about its rights.
pub(super) async fn check_all(config: &RawServerConfig, base: &Path, scope: &Scope, report: &mut Report) {
    let authentication = &config.gateway.authentication;
    for issuer in &authentication.oidc {
        certificate::roots(report, Check::IssuerCa, &base.join(&issuer.ca_file), SystemTime::now());
    }
    let reviewing = |at, whose, resources| HostClusterCheck {
        at,
        whose,
        verbs: &["create"],
        resources,
        namespace: "",
        advice: REVIEW_ADVICE,
    };
    let reviewer = authentication
        .token_review
        .as_ref()
        .map(|at| reviewing(at, "the reviewer of tokens", &[("authentication.k8s.io", "tokenreviews")]));
    let delegate = config.policy.delegation.as_ref().map(|at| {
        let whose = "the cluster that is asked about access";
        reviewing(at, whose, &[("authorization.k8s.io", "subjectaccessreviews")])
    });
    let publisher = config.vip.publish.as_ref().map(|RawPublish { host, namespace }| HostClusterCheck {
        at: host,
        whose: "the cluster that has Services for clusters",
        verbs: &["get", "list", "create", "patch", "delete"],
        resources: &[("", "services"), ("discovery.k8s.io", "endpointslices")],
        namespace: namespace.as_deref().unwrap_or(NAMESPACE_DEFAULT),
        advice: PUBLISH_ADVICE,
    });
    for host in [reviewer, delegate, publisher].into_iter().flatten() {
        check(&host, base, scope, report).await;
    }
}

async fn check(checked: &HostClusterCheck<'_>, base: &Path, scope: &Scope, report: &mut Report) {
    let HostClusterCheck { at: host, whose, verbs, resources, namespace, advice } = checked;
    let roots = certificate::roots(report, Check::HostCa, &base.join(&host.ca_file), SystemTime::now());
    let token = kubeconfig::token(report, &base.join(&host.token_file));
    let (Some(roots), Some(token)) = (roots, token) else { return };
    let Some(server) = HttpsServer::parse(&host.server) else {
        report.fail(Check::HostServer, format!("{:?} is not https://HOST[:PORT]", host.server), "correct it");
        return;
    };
    let target = HttpsTarget {
        whose,
        host: server.bare_host().to_owned(),
        port: server.port(),
        server_name: None,
        roots,
        identity: None,
        token: Some(token),
    };
    let Some(mut connection) = target.reach(report, scope).await else { return };
    let (mut missing, mut clock_checked) = (Vec::new(), false);
    for (group, resource) in *resources {
        for verb in *verbs {
            let attributes =
                json!({ "verb": verb, "group": group, "resource": resource, "namespace": namespace });
            let reviewed =
                access_review::review(&attributes, &mut connection, "", advice, &mut clock_checked, report)
                    .await;
            let Ok(is_allowed) = reviewed else { return };
            if !is_allowed {
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
