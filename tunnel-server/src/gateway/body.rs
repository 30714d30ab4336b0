//! The body of an answer to a caller, and how it tells that it was taken whole.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::oneshot;

use super::shares::Share;
use super::stalls::Taking;

/// What a caller gets: a text of ours, or what an API server sends, passed on piece by piece.
pub(super) enum AnswerBody {
    /// A text of ours, once.
    Text(Option<Bytes>),
    /// An API server's answer.
    Passed(Box<Passed>),
}

/// An API server's answer on its way. Dropped before its end, it abandons the exchange.
pub(super) struct Passed {
    body: Incoming,
    /// Tells the exchange's stream that everything was taken; dropped unsaid, the stream is aborted.
    whole: Option<oneshot::Sender<Whole>>,
    taking: Taking,
    _share: Share,
}

/// Said once the last byte of an answer has been taken.
pub(super) struct Whole;

impl AnswerBody {
    /// A text of ours.
    pub(super) fn text(text: impl Into<Bytes>) -> Self {
        Self::Text(Some(text.into()))
    }

    /// An API server's answer.
    pub(super) fn passed(
        body: Incoming,
        whole: oneshot::Sender<Whole>,
        taking: Taking,
        share: Share,
    ) -> Self {
        let mut passed = Passed { body, whole: Some(whole), taking, _share: share };
        if passed.body.is_end_stream() {
            passed.tell_whole();
        }
        Self::Passed(Box::new(passed))
    }
}

impl Passed {
    fn tell_whole(&mut self) {
        if let Some(whole) = self.whole.take() {
            // The stream's task is gone only if the tunnel is; the answer is whole all the same.
            let _ = whole.send(Whole);
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Text(text) => Poll::Ready(text.take().map(Frame::data).map(Ok)),
            Self::Passed(passed) => {
                let frame = ready!(Pin::new(&mut passed.body).poll_frame(cx));
                passed.taking.progressed();
                if frame.is_none() || (matches!(frame, Some(Ok(_))) && passed.body.is_end_stream()) {
                    passed.tell_whole();
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_none(),
            Self::Passed(passed) => passed.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Self::Passed(passed) => passed.body.size_hint(),
        }
    }
}
