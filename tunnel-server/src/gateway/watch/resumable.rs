//! A watch that can be resumed: its request, its caller, and the queries with which it is sent to the API
//! server.

use std::sync::Arc;

use http::header::ACCEPT_ENCODING;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request};
use hyper::body::Body;
use policy::action::{Action, Verb};
use proto::wire::Assert;
use tokio::time::Instant;

use super::query::Query;
use super::version::Version;
use crate::exchanges::audit::{AuditEntry, Audited};
use crate::forwarding::request_body::{RequestBody, without_body};
use crate::gateway::guarded_body::CallerBody;
use crate::gateway::peer::Peer;
use crate::gateway::state::Gateway;
use crate::identity::Caller;

/// A watch, with all that is needed to send it again.
pub(in crate::gateway) struct ResumableWatch {
    pub(super) gateway: Gateway,
    pub(super) peer: Arc<Peer>,
    pub(super) caller: Caller,
    /// The identity that the caller assumes at the cluster, if it is not its own.
    pub(super) assumed: Option<Assert>,
    /// The caller's `Authorization`, with which it is authenticated again if it has no certificate.
    pub(super) authorization: Option<HeaderValue>,
    pub(super) action: Action,
    pub(super) query: Query,
    /// The head of the request.
    pub(super) head: Request<RequestBody<CallerBody>>,
    began: Instant,
    pub(super) audit: AuditEntry,
}

impl ResumableWatch {
    /// The watch that a permitted request asks for; `None` if it is none, or none that can be followed.
    pub(in crate::gateway) fn new(
        gateway: &Gateway,
        peer: &Arc<Peer>,
        authorization: Option<HeaderValue>,
        audited: &Audited,
        request: &Request<CallerBody>,
    ) -> Option<Self> {
        let permit = audited.permit();
        let action = permit.action();
        let is_watch = action.verb() == Verb::Watch && request.method() == Method::GET;
        if !gateway.0.watches.settings.resume || !is_watch || !request.body().is_end_stream() {
            return None;
        }
        let query = Query::parse(action.path().query())?;
        let mut head = without_body(request);
        // The gateway reads an API server's error, which must not be compressed.
        head.headers_mut().remove(ACCEPT_ENCODING);
        Some(Self {
            gateway: gateway.clone(),
            peer: Arc::clone(peer),
            caller: permit.caller().clone(),
            assumed: permit.assumed().cloned(),
            authorization,
            action: action.clone(),
            query,
            head,
            began: Instant::now(),
            audit: audited.entry().clone(),
        })
    }

    /// Begins the watch now. Returns the path and query for the API server: the caller's own, with bookmarks.
    pub(in crate::gateway) fn begin(&mut self) -> PathAndQuery {
        self.began = Instant::now();
        let path = self.action.path();
        let query = self.query.with_bookmarks(path.query().unwrap_or_default());
        query.and_then(|query| with_query(path, &query)).unwrap_or_else(|| path.clone())
    }

    /// The time at which the API server would end the watch, if its caller has set a timeout.
    pub(super) fn ends(&self) -> Option<Instant> {
        self.query.timeout.and_then(|timeout| self.began.checked_add(timeout))
    }

    /// The path and query with which the API server resumes the watch after `version`.
    pub(super) fn path_from(&self, version: &Version) -> PathAndQuery {
        let left = self.ends().map(|ends| ends.saturating_duration_since(Instant::now()));
        let path = self.action.path();
        with_query(path, &self.query.resume_after(version, left)).unwrap_or_else(|| path.clone())
    }
}

fn with_query(path: &PathAndQuery, query: &str) -> Option<PathAndQuery> {
    format!("{}?{query}", path.path()).parse().ok()
}
