//! The body of an answer to a caller, and how it tells that it was taken complete.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::oneshot;

use super::audit::AuditedBody;
use super::watch::WatchBody;
use crate::exchanges::TerminationReason;
use crate::exchanges::slow_readers::ReadProgress;
use crate::shares::Share;

/// Why an answer breaks off.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    /// The stream that brought it broke.
    #[error(transparent)]
    Stream(#[from] hyper::Error),
    /// It may not go on.
    #[error(transparent)]
    Terminated(#[from] TerminationReason),
}

/// What a caller gets: a text of ours, or what an API server sends, passed on piece by piece.
pub(super) enum AnswerBody {
    /// A text of ours, once.
    Text(Option<Bytes>),
    /// An API server's answer.
    Tunnel {
        /// Its body.
        passed: Box<TunnelBody>,
        /// Its caller's.
        _share: Share,
    },
    /// A watch, which may go on in another API server's answer.
    Watch(Box<WatchBody>),
    /// Any of these, of which the audit log knows.
    Audited(Box<AuditedBody>),
}

/// An API server's answer on its way. Dropped before its end, it abandons the exchange.
pub(super) struct TunnelBody {
    body: Incoming,
    /// Tells the exchange's stream that everything was taken; dropped unsaid, the stream is aborted.
    complete: Option<oneshot::Sender<BodyComplete>>,
    read_progress: ReadProgress,
}

/// Said once the last byte of an answer has been taken.
pub(super) struct BodyComplete;

impl AnswerBody {
    /// A text of ours.
    pub(super) fn text(text: impl Into<Bytes>) -> Self {
        Self::Text(Some(text.into()))
    }

    /// An API server's answer.
    pub(super) fn passed(passed: TunnelBody, share: Share) -> Self {
        Self::Tunnel { passed: Box::new(passed), _share: share }
    }

    /// Ends an answer that may not go on with a last piece that says so, where its form has room for one. Nothing comes
    /// behind it.
    pub(super) fn cut(&mut self, why: TerminationReason) -> Option<Bytes> {
        match self {
            Self::Watch(watched) => watched.cut(why),
            Self::Text(_) | Self::Tunnel { .. } | Self::Audited(_) => None,
        }
    }

    /// Whether it comes from a cluster.
    pub(super) fn is_passed_on(&self) -> bool {
        matches!(self, Self::Tunnel { .. } | Self::Watch(_))
    }
}

impl TunnelBody {
    pub(super) fn new(
        body: Incoming,
        complete: oneshot::Sender<BodyComplete>,
        read_progress: ReadProgress,
    ) -> Self {
        let mut passed = Self { body, complete: Some(complete), read_progress };
        if passed.body.is_end_stream() {
            passed.tell_whole();
        }
        passed
    }

    /// The next piece.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.read_progress.progressed();
        if frame.is_none() || (matches!(frame, Some(Ok(_))) && self.body.is_end_stream()) {
            self.tell_whole();
        }
        Poll::Ready(frame)
    }

    fn tell_whole(&mut self) {
        if let Some(complete) = self.complete.take() {
            // The stream's task is gone only if the tunnel is; the answer is complete all the same.
            let _ = complete.send(BodyComplete);
        }
    }
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
            Self::Tunnel { passed, .. } => passed.poll_frame(cx).map_err(BodyError::from),
            Self::Watch(watched) => watched.poll_frame(cx).map_err(BodyError::from),
            Self::Audited(recorded) => recorded.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_none(),
            Self::Tunnel { passed, .. } => passed.body.is_end_stream(),
            // Only who asks for the next piece learns that there is none.
            Self::Watch(_) => false,
            Self::Audited(recorded) => recorded.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Self::Tunnel { passed, .. } => passed.body.size_hint(),
            Self::Watch(_) => SizeHint::default(),
            Self::Audited(recorded) => recorded.size_hint(),
        }
    }
}
