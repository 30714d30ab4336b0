//! The body of an answer to a caller, and how it tells that it was taken whole.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::oneshot;

use super::recorded::RecordedBody;
use super::watch::Watched;
use crate::exchanges::Ended;
use crate::exchanges::stalls::Taking;
use crate::limits::LimitGuard;

/// Why an answer breaks off.
#[derive(Debug, thiserror::Error)]
pub(super) enum BrokenOff {
    /// The stream that brought it broke.
    #[error(transparent)]
    Stream(#[from] hyper::Error),
    /// It may not go on.
    #[error(transparent)]
    Ended(#[from] Ended),
}

/// What a caller gets: a text of ours, or what an API server sends, passed on piece by piece.
pub(super) enum AnswerBody {
    /// A text of ours, once.
    Text(Option<Bytes>),
    /// An API server's answer.
    Passed {
        /// Its body.
        passed: Box<Passed>,
        /// Its caller's.
        _share: LimitGuard,
    },
    /// A watch, which may go on in another API server's answer.
    Watched(Box<Watched>),
    /// Any of these, of which the audit log knows.
    Recorded(Box<RecordedBody>),
}

/// An API server's answer on its way. Dropped before its end, it abandons the exchange.
pub(super) struct Passed {
    body: Incoming,
    /// Tells the exchange's stream that everything was taken; dropped unsaid, the stream is aborted.
    whole: Option<oneshot::Sender<Whole>>,
    taking: Taking,
}

/// Said once the last byte of an answer has been taken.
pub(super) struct Whole;

impl AnswerBody {
    /// A text of ours.
    pub(super) fn text(text: impl Into<Bytes>) -> Self {
        Self::Text(Some(text.into()))
    }

    /// An API server's answer.
    pub(super) fn passed(passed: Passed, share: LimitGuard) -> Self {
        Self::Passed { passed: Box::new(passed), _share: share }
    }

    /// Ends an answer that may not go on with a last piece that says so, where its form has room for one. Nothing comes
    /// behind it.
    pub(super) fn cut(&mut self, why: Ended) -> Option<Bytes> {
        match self {
            Self::Watched(watched) => watched.cut(why),
            Self::Text(_) | Self::Passed { .. } | Self::Recorded(_) => None,
        }
    }

    /// Whether it comes from a cluster.
    pub(super) fn is_passed_on(&self) -> bool {
        matches!(self, Self::Passed { .. } | Self::Watched(_))
    }
}

impl Passed {
    pub(super) fn new(body: Incoming, whole: oneshot::Sender<Whole>, taking: Taking) -> Self {
        let mut passed = Self { body, whole: Some(whole), taking };
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
        self.taking.progressed();
        if frame.is_none() || (matches!(frame, Some(Ok(_))) && self.body.is_end_stream()) {
            self.tell_whole();
        }
        Poll::Ready(frame)
    }

    fn tell_whole(&mut self) {
        if let Some(whole) = self.whole.take() {
            // The stream's task is gone only if the tunnel is; the answer is whole all the same.
            let _ = whole.send(Whole);
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        match self.get_mut() {
            Self::Text(text) => Poll::Ready(text.take().map(Frame::data).map(Ok)),
            Self::Passed { passed, .. } => passed.poll_frame(cx).map_err(BrokenOff::from),
            Self::Watched(watched) => watched.poll_frame(cx).map_err(BrokenOff::from),
            Self::Recorded(recorded) => recorded.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_none(),
            Self::Passed { passed, .. } => passed.body.is_end_stream(),
            // Only who asks for the next piece learns that there is none.
            Self::Watched(_) => false,
            Self::Recorded(recorded) => recorded.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Self::Passed { passed, .. } => passed.body.size_hint(),
            Self::Watched(_) => SizeHint::default(),
            Self::Recorded(recorded) => recorded.size_hint(),
        }
    }
}
