//! Checks a caller's way through the gateway to a cluster.

use std::time::SystemTime;

use daemon::Scope;
use http::Method;
use serde_json::Value;

use super::https::{HttpsConnection, HttpsResponse};
use super::report::Report;
use super::{clock, kubeconfig};
use crate::args::DoctorCaller;

/// The API server's readiness path, which every authenticated user may ask for.
const READY: &str = "/readyz";

pub(super) async fn check_all(args: &DoctorCaller, scope: &Scope, report: &mut Report) {
    let Some(path) = args.kubeconfig.clone().or_else(kubeconfig::default_path) else {
        report.fail("kubeconfig", "HOME is not set", "name the file with --kubeconfig");
        return;
    };
    let context = args.context.as_deref();
    let Some(destination) = kubeconfig::check(report, &path, context, "the gateway", SystemTime::now())
    else {
        return;
    };
    let prefix = destination.prefix;
    let Some(mut connection) = destination.target.reach(report, scope).await else { return };
    ready(&mut connection, &prefix, report).await;
}

async fn ready(connection: &mut HttpsConnection, prefix: &str, report: &mut Report) {
    const CHECK: &str = "cluster";
    let response = match connection.send(Method::GET, &format!("{prefix}{READY}"), None).await {
        Ok(response) => response,
        Err(error) => {
            let advice = "see the gateway's log; it may not accept this certificate";
            report.fail(CHECK, format!("the gateway does not answer a request ({error})"), advice);
            return;
        }
    };
    clock::compare(report, "the gateway", response.date, SystemTime::now());
    let message = status_message(&response);
    match response.status {
        200 => report.ok(CHECK, "answers through the gateway: ready"),
        401 => {
            let advice =
                "have a certificate issued by the caller CA that the server trusts, or a token that it knows";
            report.fail("credential", format!("the gateway does not accept it ({message})"), advice);
        }
        403 => {
            let advice =
                "have the server's policy allow you this cluster, and the cluster's RBAC what you ask";
            report.fail("permission", message, advice);
        }
        404 => report.fail(CHECK, message, "check the path of `server`: https://GATEWAY/clusters/NAME"),
        503 => report.fail(
            CHECK,
            message,
            "see `tombolo clusters` on the server, and `tombolo doctor agent` at the cluster",
        ),
        status => {
            report.fail(CHECK, format!("answers {status} ({message})"), "see the logs of server and agent")
        }
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
