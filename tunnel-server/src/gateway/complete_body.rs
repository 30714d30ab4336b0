//! The body of a caller's request, which ends only where the caller has ended it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Version};
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// The reason why the body of a request breaks off.
#[derive(Debug, thiserror::Error)]
pub(super) enum UploadError {
    /// The caller's connection or stream broke.
    #[error(transparent)]
    Caller(#[from] hyper::Error),
    /// The caller's stream ended without END_STREAM.
    #[error("the request's body was cut short")]
    CutShort,
}

/// A caller's request body. A truncated one ends with an error, never with end of stream.
pub(super) struct CompleteBody {
    incoming: Incoming,
    /// Over HTTP/2, hyper takes a reset with the code NO_ERROR for the end. Its own server resets so, too, when
    /// the caller does not answer its pings.
    is_multiplexed: bool,
}

impl CompleteBody {
    /// The request with its body checked for its end.
    pub(super) fn of(request: Request<Incoming>) -> Request<Self> {
        let is_multiplexed = request.version() == Version::HTTP_2;
        request.map(|incoming| Self { incoming, is_multiplexed })
    }

    fn was_cut(&self) -> bool {
        let is_complete = self.incoming.is_end_stream() || self.incoming.size_hint().exact() == Some(0);
        self.is_multiplexed && !is_complete
    }
}

impl Body for CompleteBody {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        match ready!(Pin::new(&mut self.incoming).poll_frame(cx)) {
            None if self.was_cut() => Poll::Ready(Some(Err(UploadError::CutShort))),
            frame => Poll::Ready(frame.map(|frame| frame.map_err(UploadError::from))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
