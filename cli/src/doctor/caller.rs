//! What stands between a caller and a cluster.

use std::time::SystemTime;

use daemon::Scope;
use http::Method;
use serde_json::Value;

use super::reach::{Answer, Reached};
use super::report::Report;
use super::{clock, kubeconfig};
use crate::args::DoctorCaller;

/// Says whether an API server is ready to serve; everybody who is known to it may ask.
const READY: &str = "/readyz";

pub(super) async fn examine(order: &DoctorCaller, scope: &Scope, report: &mut Report) {
    let Some(path) = order.kubeconfig.clone().or_else(kubeconfig::default_path) else {
        report.fail("kubeconfig", "HOME is not set", "name the file with --kubeconfig");
        return;
    };
    let context = order.context.as_deref();
    let Some(destination) = kubeconfig::read(report, &path, context, "the gateway", SystemTime::now()) else {
        return;
    };
    let prefix = destination.prefix;
    let Some(mut reached) = destination.target.reach(report, scope).await else { return };
    ready(&mut reached, &prefix, report).await;
}

async fn ready(reached: &mut Reached, prefix: &str, report: &mut Report) {
    const CHECK: &str = "cluster";
    let answer = match reached.ask(Method::GET, &format!("{prefix}{READY}"), None).await {
        Ok(answer) => answer,
        Err(error) => {
            let advice = "the gateway's log says more; the server may not take this certificate";
            report.fail(CHECK, format!("the gateway does not answer a request ({error})"), advice);
            return;
        }
    };
    clock::compare(report, "the gateway", answer.date, SystemTime::now());
    let said = message(&answer);
    match answer.status {
        200 => report.ok(CHECK, "answers through the gateway: ready"),
        401 => {
            let advice =
                "have a certificate issued by the caller CA that the server trusts, or a token that it knows";
            report.fail("credential", format!("the gateway does not accept it ({said})"), advice);
        }
        403 => {
            let advice =
                "have the server's policy allow you this cluster, and the cluster's RBAC what you ask";
            report.fail("permission", said, advice);
        }
        404 => report.fail(CHECK, said, "check the path of `server`: https://GATEWAY/clusters/NAME"),
        503 => report.fail(
            CHECK,
            said,
            "see `tombolo clusters` on the server, and `tombolo doctor agent` at the cluster",
        ),
        status => {
            report.fail(CHECK, format!("answers {status} ({said})"), "see the logs of server and agent")
        }
    }
}

/// What a `Status` says, or the answer's text where it is none.
pub(super) fn message(answer: &Answer) -> String {
    let status: Option<Value> = serde_json::from_slice(&answer.body).ok();
    let message = status.as_ref().and_then(|status| status.get("message")).and_then(Value::as_str);
    message.map_or_else(|| shortened(&String::from_utf8_lossy(&answer.body)), str::to_owned)
}

fn shortened(text: &str) -> String {
    const CHARACTERS_MAX: usize = 300;
    text.trim().chars().take(CHARACTERS_MAX).collect()
}
