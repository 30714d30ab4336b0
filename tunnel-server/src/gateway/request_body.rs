//! The body of a request on its way to a cluster: what the caller sends, or nothing where the request is
//! repeated.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Request;
use hyper::body::{Body, Frame, SizeHint};

use super::complete_body::UploadError;
use super::guarded_body::CallerBody;
use super::head_timeout::ProgressBody;
use super::kept_body::BodyAttempt;

/// The body as it enters a stream: it notes when its pieces are taken.
pub(super) type UploadBody = ProgressBody<RequestBody>;

/// The body of a request before it enters a stream.
pub(super) enum RequestBody {
    /// The body that the caller sends.
    Caller(CountedBody),
    /// The same, of which the beginning is kept.
    Kept(BodyAttempt<CountedBody>),
    /// No body, because the request is a repeated read.
    Empty,
}

/// The body that the caller sends. Its bytes count in the audit entry when they are taken.
pub(super) struct CountedBody(CallerBody);

impl CountedBody {
    pub(super) fn new(body: CallerBody) -> Self {
        Self(body)
    }
}

impl From<CallerBody> for RequestBody {
    fn from(body: CallerBody) -> Self {
        Self::Caller(CountedBody(body))
    }
}

impl Body for CountedBody {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let body = &mut self.get_mut().0;
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        if let (Some(Ok(frame)), Some(entry)) = (&frame, body.guard().audit_entry()) {
            entry.add_bytes_up(frame.data_ref().map_or(0, Bytes::len));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        match self.get_mut() {
            Self::Caller(body) => Pin::new(body).poll_frame(cx),
            Self::Kept(body) => Pin::new(body).poll_frame(cx),
            Self::Empty => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Caller(body) => body.is_end_stream(),
            Self::Kept(body) => body.is_end_stream(),
            Self::Empty => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Caller(body) => body.size_hint(),
            Self::Kept(body) => body.size_hint(),
            Self::Empty => SizeHint::with_exact(0),
        }
    }
}

/// A copy of the request's head, without a body.
pub(super) fn without_body<B>(request: &Request<B>) -> Request<RequestBody> {
    with_body(request, RequestBody::Empty)
}

/// A copy of the request's head, with this body.
pub(super) fn with_body<B>(request: &Request<B>, body: RequestBody) -> Request<RequestBody> {
    let mut copy = Request::new(body);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    copy
}
