//! The body of an answer: a text of this server, or what an API server sends.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use tracing::debug;

use super::clusters::watch_body::ListWatchBody;
use super::refusal::Refusal;
use super::watch::body::WatchBody;
use crate::exchanges::TerminationReason;
use crate::forwarding::exchange::TunnelResponse;
use crate::forwarding::tunnel_body::TunnelBody;
use crate::gateway::body_error::BodyError;
use crate::limits::LimitGuard;
use crate::metrics;

/// The body of an answer before it is audited.
pub(super) enum AnswerBody {
    /// A text of this server. `None` once it was taken.
    Text(Option<Bytes>),
    /// An API server's answer, over a tunnel.
    Tunnel {
        /// The body of the answer itself.
        body: Box<TunnelBody>,
        /// Counts the exchange within its caller's limits.
        _limit_guard: LimitGuard,
    },
    /// A watch, which may be resumed over another tunnel.
    Watch(Box<WatchBody>),
    /// A watch of the list of clusters, by this server.
    ListWatch(ListWatchBody),
}

impl AnswerBody {
    /// A text of this server.
    pub(super) fn text(text: impl Into<Bytes>) -> Self {
        Self::Text(Some(text.into()))
    }

    /// An API server's answer, counted by `limit_guard` as long as it lasts.
    pub(super) fn tunnel(body: TunnelBody, limit_guard: LimitGuard) -> Self {
        Self::Tunnel { body: Box::new(body), _limit_guard: limit_guard }
    }

    /// Ends an answer early. Returns the last bytes, which say why, if the answer's form allows it. The body
    /// is to be broken off after them.
    pub(super) fn end_early(&mut self, why: TerminationReason) -> Option<Bytes> {
        match self {
            Self::Watch(watch) => watch.end_early(why),
            Self::ListWatch(_) => Some(ListWatchBody::error_event(why)),
            Self::Text(_) | Self::Tunnel { .. } => None,
        }
    }

    /// Returns true if the answer is of an exchange that runs on, and that may have to be ended early.
    pub(super) fn may_be_ended(&self) -> bool {
        matches!(self, Self::Tunnel { .. } | Self::Watch(_) | Self::ListWatch(_))
    }
}

/// The answer to a refused request, which is counted by its cause.
pub(super) fn refused(refusal: &Refusal) -> Response<AnswerBody> {
    debug!(%refusal, "refused");
    metrics::refused(refusal.cause());
    refusal.response().map(AnswerBody::text)
}

/// An API server's answer as it goes to the caller, counted by `limit_guard` as long as it lasts.
pub(super) fn passed(answer: TunnelResponse, limit_guard: LimitGuard) -> Response<AnswerBody> {
    answer.response.map(|body| AnswerBody::tunnel(body, limit_guard))
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Text(text) => Poll::Ready(text.take().map(Frame::data).map(Ok)),
            Self::Tunnel { body, .. } => body.poll_frame(cx).map_err(BodyError::from),
            Self::Watch(watch) => watch.poll_frame(cx),
            Self::ListWatch(watch) => watch.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_none(),
            Self::Tunnel { body, .. } => body.is_end_stream(),
            // The end of a watch is known only from the next poll.
            Self::Watch(_) | Self::ListWatch(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Self::Tunnel { body, .. } => body.size_hint(),
            Self::Watch(_) | Self::ListWatch(_) => SizeHint::default(),
        }
    }
}
