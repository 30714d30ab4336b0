//! One question to one cluster of a set, under a permit, an audit entry and a seat of its own.

use std::future::poll_fn;
use std::sync::Arc;

use audit::EndReason;
use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::Empty;
use policy::action::{Action, SetRead, SetReadKind};
use proto::ClusterId;
use proto::headers::AUDIT_ID_BYTES_MAX;
use proto::wire::Assert;
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use super::accepted::Accepted;
use super::outcome::{Failure, Outcome};
use super::room::{NoRoom, ReadRoom};
use crate::exchanges::audit::Audited;
use crate::forwarding::audit_id::{AUDIT_ID, audit_id};
use crate::forwarding::park_timeout::ParkWait;
use crate::forwarding::retry;
use crate::gateway::audit::status_of;
use crate::gateway::guarded_body::CallerBody;
use crate::gateway::peer::Peer;
use crate::gateway::refusal::Refusal;
use crate::gateway::state::Gateway;
use crate::identity::Caller;
use crate::limits::ExchangeKind;

/// A read of a cluster set, as every cluster is asked it.
pub(super) struct Question<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) peer: &'a Arc<Peer>,
    pub(super) caller: &'a Caller,
    pub(super) assumed: &'a Option<Assert>,
    pub(super) read: &'a SetRead,
    pub(super) accepted: Accepted,
    pub(super) request: &'a Request<CallerBody>,
    pub(super) room: ReadRoom,
}

/// The answer of one cluster.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) body: Bytes,
    pub(super) content_type: Option<HeaderValue>,
}

/// The fields of a `Status` that say why an API server refuses.
#[derive(Debug, Default, Deserialize)]
struct RefusedStatus {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

impl Question<'_> {
    /// Asks a cluster until `deadline`. `number` tells the questions of a read apart.
    pub(super) async fn ask(
        &self,
        number: usize,
        cluster: ClusterId,
        limit: Option<u64>,
        token: Option<String>,
        deadline: Instant,
    ) -> Outcome<Answered> {
        if self.gateway.0.forwarding.impersonation_rules.pass_through(&cluster) {
            let message = format!("cluster {cluster} takes its callers' own credentials: ask it alone");
            return Outcome::failed("PassThrough", message);
        }
        let action = match self.read.action(cluster.clone(), limit, token.as_deref()) {
            Ok(action) => action,
            Err(error) => return Outcome::Failed(failure(&Refusal::from(error))),
        };
        match timeout_at(deadline, self.answer(number, action)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(refusal)) => Outcome::Failed(failure(&refusal)),
            Err(_) => Outcome::failed("Timeout", format!("cluster {cluster} has not answered in time")),
        }
    }

    async fn answer(&self, number: usize, action: Action) -> Result<Outcome<Answered>, Refusal> {
        let shared = &self.gateway.0;
        let permit = self.gateway.authorize(self.caller, self.assumed.clone(), action).await?;
        let exchange = shared.exchanges.enter(&permit)?;
        let path = permit.action().path().clone();
        let request = self.request_to(number, permit.action());
        let audited = self.gateway.record(self.peer, (permit, exchange), None, &request).await?;
        let entry = audited.entry().clone();
        let terminated = entry.terminated();
        // Both arms are cancel-safe: an exchange that is dropped is aborted.
        let answered = tokio::select! {
            answered = self.forward(audited, request, path) => answered,
            why = terminated => Err(why.into()),
        };
        match &answered {
            Ok(_) => entry.set_end(EndReason::Clean),
            Err(refusal) => entry.set_refused(status_of(refusal), refusal.facts().audit_end),
        }
        answered
    }

    async fn forward(
        &self,
        audited: Audited,
        request: Request<Empty<Bytes>>,
        path: PathAndQuery,
    ) -> Result<Outcome<Answered>, Refusal> {
        let (shared, cluster) = (&self.gateway.0, audited.permit().action().cluster().clone());
        let guard = shared.limiter.admit(self.caller, &cluster, ExchangeKind::SetMember)?;
        let _seat = guard.wait_for_seat().await?;
        let entry = audited.entry().clone();
        let answer = retry::read(audited, request, path, &shared.forwarding, ParkWait::never()).await?;
        let (head, mut body) = answer.response.into_parts();
        entry.set_status(head.status);
        let mut bytes = BytesMut::new();
        while let Some(frame) = poll_fn(|cx| body.poll_frame(cx)).await {
            let Ok(frame) = frame else {
                return Ok(Outcome::failed(
                    "ClusterLost",
                    format!("the answer of cluster {cluster} broke off"),
                ));
            };
            let Ok(data) = frame.into_data() else { continue };
            if let Err(full) = self.room.take(bytes.len(), data.len()) {
                return Ok(no_room(&cluster, full));
            }
            entry.add_bytes_down(data.len());
            bytes.extend_from_slice(&data);
        }
        let body = bytes.freeze();
        Ok(self.outcome(
            &cluster,
            head.status,
            Answered { body, content_type: head.headers.get(CONTENT_TYPE).cloned() },
        ))
    }

    fn outcome(&self, cluster: &ClusterId, status: StatusCode, answered: Answered) -> Outcome<Answered> {
        match status {
            StatusCode::OK => Outcome::Fresh(answered),
            StatusCode::NOT_FOUND => Outcome::Absent,
            _ => {
                let said: RefusedStatus = serde_json::from_slice(&answered.body).unwrap_or_default();
                let or = |text: String, other: String| if text.is_empty() { other } else { text };
                let word = status.canonical_reason().unwrap_or("Unknown").replace(' ', "");
                let message = format!("the API server of cluster {cluster} answered {status}");
                Outcome::failed(&or(said.reason, word), or(said.message, message))
            }
        }
    }

    /// The request that goes to one cluster. Of the caller's headers it has those that a read needs.
    fn request_to(&self, number: usize, action: &Action) -> Request<Empty<Bytes>> {
        let mut request = Request::new(Empty::new());
        *request.method_mut() = Method::GET;
        let uri = format!("/clusters/{}{}", action.cluster(), action.recorded_path());
        *request.uri_mut() = uri.parse().unwrap_or_default();
        let headers = request.headers_mut();
        let accept = match (self.read.kind(), self.request.headers().get(ACCEPT)) {
            (SetReadKind::Document, Some(accept)) => accept.clone(),
            _ => HeaderValue::from_static(self.accepted.as_str()),
        };
        headers.insert(ACCEPT, accept);
        if let Some(agent) = self.request.headers().get(USER_AGENT) {
            headers.insert(USER_AGENT, agent.clone());
        }
        if let Ok(id) = HeaderValue::try_from(numbered(audit_id(self.request), number)) {
            headers.insert(AUDIT_ID, id);
        }
        request
    }
}

/// The failure of a cluster whose request alone would be refused so.
fn failure(refusal: &Refusal) -> Failure {
    Failure { reason: refusal.cause().to_owned(), message: refusal.to_string() }
}

/// The audit ID of one question: that of the read with a number, so that both logs are found together.
fn numbered(id: &str, number: usize) -> String {
    let suffix = format!(".{number}");
    let kept: String = id.chars().take(AUDIT_ID_BYTES_MAX - suffix.len()).collect();
    kept + &suffix
}

fn no_room<T>(cluster: &ClusterId, full: NoRoom) -> Outcome<T> {
    let reason = match full {
        NoRoom::Cluster | NoRoom::Read => "TooLarge",
        NoRoom::Server => "GatewayBusy",
    };
    Outcome::failed(reason, format!("cluster {cluster}: {full}"))
}

#[cfg(test)]
mod tests {
    use proto::headers::is_audit_id;

    use super::*;

    #[test]
    fn each_question_has_an_audit_id_of_its_own_that_every_log_takes() {
        assert_eq!(numbered("read", 7), "read.7");
        let long = numbered(&"x".repeat(AUDIT_ID_BYTES_MAX), 12);
        assert!(is_audit_id(long.as_bytes()) && long.ends_with("x.12"), "{long}");
    }
}
