//! Watches that outlive their tunnel: the gateway begins them again where they were, and their callers see nothing of it.
//!
//! Only what is a watch by its request, and an answer of events in an encoding of Kubernetes, is followed; everything else
//! passes as it is. A watch over a WebSocket is a pipe of bytes like any upgraded connection, and ends with its tunnel.

mod again;
mod cbor;
mod event;
#[cfg(test)]
mod fuzz;
mod json;
mod protobuf;
mod query;
mod relay;
mod room;
mod safe_point;
mod watched;

use std::sync::Arc;

use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH};
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Body;
use policy::action::{Action, Verb};
use proto::wire::Assert;
use tokio::time::Instant;

use super::body::AnswerBody;
use super::forward::{Answered, Sent};
use super::retry::copied;
use super::stack::CallerBody;
use super::{Gateway, Peer};
use crate::config;
use crate::exchanges::record::{Record, Recorded};
use crate::identity::Caller;
use crate::registry::Places;
use crate::shares::Share;
use event::Encoding;
use query::Query;
use relay::Relay;
use room::Room;
use safe_point::Version;

pub(super) use watched::Watched;

/// What all watches may hold together of events that are not yet whole.
const PARTIAL_BYTES_MAX: usize = 256 * 1024 * 1024;

/// What the watches of one gateway have in common.
pub(super) struct Watches {
    settings: config::WatchesConfig,
    places: Places,
    room: Room,
}

/// A watch, and what it takes to begin it again.
pub(super) struct Watch {
    gateway: Gateway,
    peer: Arc<Peer>,
    caller: Caller,
    /// As whom the cluster sees it, if not as itself.
    assumed: Option<Assert>,
    /// With which the caller proves who it is, where its certificate does not.
    authorization: Option<HeaderValue>,
    action: Action,
    query: Query,
    /// The request's head.
    head: Request<Sent>,
    began: Instant,
    record: Record,
}

impl Watches {
    pub(super) fn new(settings: config::WatchesConfig) -> Self {
        let places = Places::new(settings.per_cluster, config::WATCHES_PARKED_MAX);
        Self { settings, places, room: Room::of(PARTIAL_BYTES_MAX) }
    }
}

impl Watch {
    /// The watch that a permitted request asks for, if it is one that can be followed.
    pub(super) fn of(
        gateway: &Gateway,
        peer: &Arc<Peer>,
        authorization: Option<HeaderValue>,
        recorded: &Recorded,
        request: &Request<CallerBody>,
    ) -> Option<Self> {
        let permit = recorded.permit();
        let action = permit.action();
        let is_watch = action.verb() == Verb::Watch && request.method() == Method::GET;
        if !gateway.0.watches.settings.resume || !is_watch || !request.body().is_end_stream() {
            return None;
        }
        let query = Query::parse(action.path().query())?;
        let mut head = copied(request);
        // An error of the API server is to be read here.
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
            record: recorded.record().clone(),
        })
    }

    /// Begins now: what is asked of the API server is the same, with bookmarks.
    pub(super) fn begin(&mut self) -> PathAndQuery {
        self.began = Instant::now();
        let path = self.action.path();
        let query = self.query.with_bookmarks(path.query().unwrap_or_default());
        query.and_then(|query| with_query(path, &query)).unwrap_or_else(|| path.clone())
    }

    /// The answer as it goes to the caller: followed if it brings events.
    pub(super) fn follow(self, answered: Answered, share: Share) -> Response<AnswerBody> {
        let headers = answered.response.headers();
        let encoding = Encoding::of(headers).filter(|_| !headers.contains_key(CONTENT_LENGTH));
        let encoding = encoding.filter(|_| answered.response.status() == StatusCode::OK);
        let Some(encoding) = encoding else { return answered.passed(share) };
        let watches = &self.gateway.0.watches;
        let relay = Relay::new(encoding, &self.query, watches.settings.event_bytes_max, &watches.room);
        let Answered { response, source } = answered;
        let watch = Arc::new(self);
        response
            .map(|passed| AnswerBody::Watched(Box::new(Watched::new(watch, relay, passed, source, share))))
    }

    /// When the API server would end it, if its caller has said so.
    fn ends(&self) -> Option<Instant> {
        self.query.timeout.and_then(|timeout| self.began.checked_add(timeout))
    }

    /// What is asked of the API server to go on behind `version`.
    fn path_again(&self, version: &Version) -> PathAndQuery {
        let left = self.ends().map(|ends| ends.saturating_duration_since(Instant::now()));
        let path = self.action.path();
        with_query(path, &self.query.again(version, left)).unwrap_or_else(|| path.clone())
    }
}

fn with_query(path: &PathAndQuery, query: &str) -> Option<PathAndQuery> {
    format!("{}?{query}", path.path()).parse().ok()
}
