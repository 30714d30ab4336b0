//! Follows the answer to a watch: decides whether it brings events, and makes a body that can be resumed.

use std::sync::Arc;

use http::header::CONTENT_LENGTH;
use http::{Response, StatusCode};

use super::body::WatchBody;
use super::encoding::Encoding;
use super::relay::Relay;
use super::resumable::ResumableWatch;
use crate::forwarding::exchange::TunnelResponse;
use crate::gateway::body::{AnswerBody, passed};
use crate::limits::LimitGuard;

impl ResumableWatch {
    /// The answer as it goes to the caller: followed if it brings events, or else unchanged.
    pub(in crate::gateway) fn follow(
        self,
        answer: TunnelResponse,
        limit_guard: LimitGuard,
    ) -> Response<AnswerBody> {
        let headers = answer.response.headers();
        let encoding = Encoding::from_headers(headers).filter(|_| !headers.contains_key(CONTENT_LENGTH));
        let encoding = encoding.filter(|_| answer.response.status() == StatusCode::OK);
        let Some(encoding) = encoding else { return passed(answer, limit_guard) };
        let watches = &self.gateway.0.watches;
        let relay = Relay::new(encoding, &self.query, watches.settings.event_bytes_max, &watches.budget);
        let TunnelResponse { response, source } = answer;
        let watch = Arc::new(self);
        response
            .map(|body| AnswerBody::Watch(Box::new(WatchBody::new(watch, relay, body, source, limit_guard))))
    }
}
