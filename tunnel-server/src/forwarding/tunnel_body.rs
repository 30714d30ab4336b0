//! The body of an API server's answer, which comes over a stream of a tunnel.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::oneshot;

use crate::exchanges::slow_readers::ReadProgress;

/// The body of an API server's answer. Dropped before its end, it abandons the exchange.
pub(crate) struct TunnelBody {
    body: Incoming,
    /// Notifies the exchange's stream that everything was taken. Dropped unsent, it makes the stream abort.
    complete: Option<oneshot::Sender<BodyComplete>>,
    read_progress: ReadProgress,
}

/// The message that the last byte of an answer was taken.
pub(crate) struct BodyComplete;

impl TunnelBody {
    pub(crate) fn new(
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
    pub(crate) fn poll_frame(
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

    pub(crate) fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    fn notify_complete(&mut self) {
        if let Some(complete) = self.complete.take() {
            // The stream's task is gone only if the tunnel is; the answer is complete all the same.
            let _ = complete.send(BodyComplete);
        }
    }
}
