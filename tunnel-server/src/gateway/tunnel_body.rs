//! The body of an API server's answer, which comes over a stream of a tunnel.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::oneshot;

use crate::exchanges::TerminationReason;
use crate::exchanges::slow_readers::ReadProgress;
use crate::metrics::WatchEnded;

/// The reason why the body of an answer breaks off.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    /// The stream that carries it broke.
    #[error(transparent)]
    Stream(#[from] hyper::Error),
    /// The tunnel of a watch was lost, and the watch was not resumed.
    #[error("a watch broke, and was not resumed: {}", .0.as_str())]
    NotResumed(WatchEnded),
    /// Its exchange was ended early.
    #[error(transparent)]
    Terminated(#[from] TerminationReason),
}

/// The body of an API server's answer. Dropped before its end, it abandons the exchange.
pub(super) struct TunnelBody {
    body: Incoming,
    /// Notifies the exchange's stream that everything was taken. Dropped unsent, it makes the stream abort.
    complete: Option<oneshot::Sender<BodyComplete>>,
    read_progress: ReadProgress,
}

/// The message that the last byte of an answer was taken.
pub(super) struct BodyComplete;

impl TunnelBody {
    pub(super) fn new(
        body: Incoming,
        complete: oneshot::Sender<BodyComplete>,
        read_progress: ReadProgress,
    ) -> Self {
        let mut body = Self { body, complete: Some(complete), read_progress };
        if body.is_end_stream() {
            body.notify_complete();
        }
        body
    }

    /// Polls for the next frame.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.read_progress.progressed();
        if frame.is_none() || (matches!(frame, Some(Ok(_))) && self.is_end_stream()) {
            self.notify_complete();
        }
        Poll::Ready(frame)
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    fn notify_complete(&mut self) {
        if let Some(complete) = self.complete.take() {
            // The stream's task is gone only if the tunnel is; the answer is complete all the same.
            let _ = complete.send(BodyComplete);
        }
    }
}
