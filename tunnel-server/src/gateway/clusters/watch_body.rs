//! The body of a watch of clusters.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use http_body::Frame;
use serde_json::json;

use crate::exchanges::TerminationReason;
use crate::gateway::body_error::BodyError;
use crate::gateway::refusal::Refusal;
use crate::limits::ListWatchGuard;

/// The events of a watch of clusters on their way to its caller.
pub(in crate::gateway) struct ListWatchBody {
    events: Pin<Box<dyn Stream<Item = Bytes> + Send>>,
    _guard: ListWatchGuard,
}

impl ListWatchBody {
    pub(super) fn new(events: impl Stream<Item = Bytes> + Send + 'static, guard: ListWatchGuard) -> Self {
        Self { events: Box::pin(events), _guard: guard }
    }

    /// Polls for the next events. Each piece has whole ones.
    pub(in crate::gateway) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.events.as_mut().poll_next(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    /// The ERROR event that says why the watch is ended early.
    pub(in crate::gateway) fn error_event(why: TerminationReason) -> Bytes {
        let event = json!({ "type": "ERROR", "object": Refusal::from(why).json() });
        format!("{event}\n").into()
    }
}
