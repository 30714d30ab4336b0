//! Checks a caller's way through the gateway to a cluster.

use std::time::SystemTime;

use daemon::Scope;
use http::Method;
use proto::help::BY_THE_GATEWAY;
use serde_json::Value;

use super::check::Check;
use super::kubeconfig::KubeconfigUnusable;
use super::report::Report;
use super::{clock, kubeconfig};
use crate::args::DoctorCaller;
use crate::https::{HttpsConnection, HttpsResponse, SendError};

/// The API server's readiness path, which every authenticated user may ask for.
const READY: &str = "/readyz";

/// Advice for a person without a kubeconfig, who may have meant another of the three doctors.
const WITHOUT_KUBECONFIG: &str = "write one by `tombolo kubeconfig`; for a daemon's machine there are `tombolo doctor server` and \
                                  `tombolo doctor agent`";

/// The gateway's list of clusters. No other server answers there as it does, and every gateway answers, with a refusal at least.
const CLUSTERS: &str = "/clusters";

/// The API server's own version, which it tells everybody.
const VERSION: &str = "/version";

/// The API group of the gateway's own objects.
const GATEWAY_GROUP: &str = "tombolo.dev/";

/// The words in an API server's message about somebody who lacks the right to impersonate.
const NO_IMPERSONATION: &str = "cannot impersonate";

pub(super) async fn check_all(args: &DoctorCaller, scope: &Scope, report: &mut Report) {
    let Some(path) = args.kubeconfig.clone().or_else(kubeconfig::default_path) else {
        report.unusable(Check::Kubeconfig, "HOME is not set", "name the file with --kubeconfig");
        return;
    };
    if args.kubeconfig.is_none() && !path.exists() {
        let found = format!("no --kubeconfig is given, and there is no {}", path.display());
        report.unusable(Check::Kubeconfig, found, WITHOUT_KUBECONFIG);
        return;
    }
    let context = args.context.as_deref();
    let destination = match kubeconfig::check(report, &path, context, "the gateway", SystemTime::now()) {
        Ok(Some(destination)) => destination,
        Ok(None) => return,
        Err(KubeconfigUnusable) => {
            report.set_unusable();
            return;
        }
    };
    let prefix = destination.prefix;
    let Some(mut connection) = destination.target.reach(report, scope).await else { return };
    ready(&mut connection, &prefix, report).await;
}

async fn ready(connection: &mut HttpsConnection, prefix: &str, report: &mut Report) {
    const CHECK: Check = Check::Cluster;
    let response = match connection.send(Method::GET, &format!("{prefix}{READY}"), None).await {
        Ok(response) => response,
        Err(error) => {
            let found = format!("the gateway does not answer a request ({error})");
            report.fail(CHECK, found, advice_without_answer(&error));
            return;
        }
    };
    if !is_refused_by_gateway(&response)
        && let Some(found) = other_server(connection).await
    {
        let advice =
            "use a kubeconfig that `tombolo kubeconfig` has written: --kubeconfig FILE --context NAME";
        report.fail(Check::Gateway, format!("this is no Tombolo gateway, but {found}"), advice);
        return;
    }
    report.ok(Check::Gateway, "a Tombolo gateway answers");
    clock::compare(report, "the gateway", response.date, SystemTime::now());
    let message = status_message(&response);
    match response.status {
        200 => report.ok(CHECK, "answers through the gateway: ready"),
        401 => {
            let advice =
                "have a certificate issued by the caller CA that the server trusts, or a token that it knows";
            report.fail(Check::Credential, format!("the gateway does not accept it ({message})"), advice);
        }
        403 => {
            let (check, advice) = forbidden(&response, &message);
            report.fail(check, message, advice);
        }
        404 => report.fail(CHECK, message, "check the path of `server`: https://GATEWAY/clusters/NAME"),
        503 => report.fail(
            CHECK,
            message,
            "see `tombolo cluster list` on the server, and `tombolo doctor agent` at the cluster",
        ),
        status => {
            report.fail(CHECK, format!("answers {status} ({message})"), "see the logs of server and agent");
        }
    }
}

/// Describes the server that answers, if it is no gateway. The list of clusters is asked for after everything else, because a gateway may
/// end the connection with its answer.
async fn other_server(connection: &mut HttpsConnection) -> Option<String> {
    // Without an answer nothing is known about the server.
    let list = connection.send(Method::GET, CLUSTERS, None).await.ok()?;
    if is_by_gateway(&list) {
        return None;
    }
    let version = connection.send(Method::GET, VERSION, None).await.ok();
    Some(description(&list, version.as_ref()))
}

/// The server that gave these answers, which is no gateway.
fn description(list: &HttpsResponse, version: Option<&HttpsResponse>) -> String {
    let version: Option<Value> = version.and_then(|version| serde_json::from_slice(&version.body).ok());
    match version.as_ref().and_then(|version| version["gitVersion"].as_str()) {
        Some(version) => format!("a Kubernetes API server ({version})"),
        None => {
            format!(
                "another server, which answers GET {CLUSTERS} with {} ({})",
                list.status,
                status_message(list)
            )
        }
    }
}

/// Returns true if this answer to `GET /clusters` is a gateway's: the list, or a refusal.
fn is_by_gateway(list: &HttpsResponse) -> bool {
    let object: Value = serde_json::from_slice(&list.body).unwrap_or_default();
    let is_list = object["kind"] == "ClusterList"
        && object["apiVersion"].as_str().is_some_and(|version| version.starts_with(GATEWAY_GROUP));
    is_list || is_refused_by_gateway(list)
}

/// Returns true for a refusal that the gateway itself has written.
fn is_refused_by_gateway(response: &HttpsResponse) -> bool {
    let status: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    is_from_gateway(&status["details"]["causes"][0])
}

/// Returns true for a cause that the gateway has written. It also names the page that explains it.
fn is_from_gateway(cause: &Value) -> bool {
    cause["message"].as_str().is_some_and(|message| message.starts_with(BY_THE_GATEWAY))
}

/// The advice if a request has no response. A server that is silent has accepted the certificate.
fn advice_without_answer(error: &SendError) -> &'static str {
    match error {
        SendError::NoAnswer => {
            "the connection to the gateway stands, so the agent, its API server or the link between may be slow or away: see \
             `tombolo cluster list` on the server, and `tombolo doctor agent` at the cluster"
        }
        SendError::Broke(_) => "see the gateway's log; it may not accept this certificate",
    }
}

/// Finds who has forbidden a request, and so what is to be changed: the gateway, the agent, or the cluster itself.
fn forbidden(response: &HttpsResponse, message: &str) -> (Check, &'static str) {
    let status: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let cause = &status["details"]["causes"][0];
    match (is_from_gateway(cause), cause["reason"].as_str()) {
        (true, Some("ForbiddenByAgent")) => (
            Check::AllowList,
            "have `impersonation` in the agent's configuration list your user and your groups",
        ),
        (true, Some("NotAsserted")) => {
            (Check::AllowList, "have `clusters` in the server's configuration list your user and your groups")
        }
        (true, _) => (
            Check::GatewayPolicy,
            "have the server's policy allow you this cluster; `tombolo policy explain` says which rule decides",
        ),
        _ if message.contains(NO_IMPERSONATION) => (
            Check::AgentImpersonation,
            "the gateway lets you through, but the cluster does not let its agent act for you: apply the output of `tombolo rbac` \
             there, and try `tombolo doctor agent`",
        ),
        _ => (
            Check::ClusterRbac,
            "the gateway and the agent let you through: have the cluster's own RBAC bind a role to your user or group",
        ),
    }
}

/// The message of a Kubernetes `Status`, or the beginning of a body that is none.
pub(super) fn status_message(response: &HttpsResponse) -> String {
    let status: Option<Value> = serde_json::from_slice(&response.body).ok();
    let message = status.as_ref().and_then(|status| status.get("message")).and_then(Value::as_str);
    message.map_or_else(|| shortened(&String::from_utf8_lossy(&response.body)), str::to_owned)
}

fn shortened(text: &str) -> String {
    const CHARACTERS_MAX: usize = 300;
    text.trim().chars().take(CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use proto::help::Reference;
    use serde_json::json;

    use super::*;

    /// Silence means that the handshake has succeeded, so a certificate is not at fault.
    #[test]
    fn an_answer_that_does_not_come_is_not_blamed_on_the_certificate() {
        let silent = advice_without_answer(&SendError::NoAnswer);
        assert!(!silent.contains("certificate") && silent.contains("tombolo cluster list"), "{silent}");
        assert!(SendError::NoAnswer.to_string().contains("within 20 s"));
        let broken = advice_without_answer(&SendError::Broke("connection reset".to_owned()));
        assert!(broken.contains("certificate"), "{broken}");
    }

    #[test]
    fn an_answer_to_get_clusters_tells_a_gateway_from_other_servers() {
        let answer =
            |status, body: &str| HttpsResponse { status, date: None, body: body.as_bytes().to_vec() };
        let of_gateway =
            |group: &str| format!(r#"{{"kind":"ClusterList","apiVersion":"{group}/v1alpha1","items":[]}}"#);
        let message = format!("{BY_THE_GATEWAY}: see docs");
        let refusal = json!({ "details": { "causes": [{ "message": message }] } }).to_string();
        for (status, body, is_gateway) in [
            (200, of_gateway("tombolo.dev"), true),
            (421, refusal, true),
            (200, of_gateway("other.dev"), false),
            (403, json!({ "kind": "Status", "details": {} }).to_string(), false),
            (404, "404 page not found".to_owned(), false),
        ] {
            assert_eq!(is_by_gateway(&answer(status, &body)), is_gateway, "{body}");
        }

        let list = answer(404, "404 page not found");
        let version = answer(200, r#"{"gitVersion":"v1.36.3"}"#);
        assert_eq!(description(&list, Some(&version)), "a Kubernetes API server (v1.36.3)");
        let other = "another server, which answers GET /clusters with 404 (404 page not found)";
        assert_eq!(description(&list, None), other);
    }

    #[test]
    fn a_403_is_told_apart_by_who_has_forbidden_it() {
        let gateway = |reason: &str| {
            let message = format!("{BY_THE_GATEWAY}: see {}", Reference(reason));
            let causes = json!([{ "reason": reason, "message": message }]);
            json!({ "kind": "Status", "message": "no", "details": { "causes": causes } })
        };
        let cluster = |message: &str| json!({ "kind": "Status", "message": message, "details": {} });
        let account = "system:serviceaccount:tombolo:tunnel-agent";
        for (status, check, words) in [
            (gateway("ForbiddenByPolicy"), Check::GatewayPolicy, "tombolo policy explain"),
            (gateway("ForbiddenByHost"), Check::GatewayPolicy, "the server's policy"),
            (gateway("ForbiddenByAgent"), Check::AllowList, "agent's configuration"),
            (gateway("NotAsserted"), Check::AllowList, "server's configuration"),
            (
                cluster(&format!(
                    "users \"alice\" is forbidden: User \"{account}\" cannot impersonate resource \"users\""
                )),
                Check::AgentImpersonation,
                "tombolo rbac",
            ),
            (
                cluster(&format!("User \"{account}\" cannot impersonate:user-info resource \"users\"")),
                Check::AgentImpersonation,
                "tombolo doctor agent",
            ),
            (
                cluster("forbidden: User \"alice\" cannot get path \"/readyz\""),
                Check::ClusterRbac,
                "bind a role to your user",
            ),
            (json!("plain text"), Check::ClusterRbac, "RBAC"),
        ] {
            let response = HttpsResponse { status: 403, date: None, body: status.to_string().into_bytes() };
            let (found, advice) = forbidden(&response, &status_message(&response));
            assert_eq!(found, check, "{status}");
            assert!(advice.contains(words), "{status}: {advice}");
        }
    }
}
