//! The body of a request on its way to a cluster: what the caller sends, or nothing where the request is
//! repeated.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Request;
use hyper::body::{Body, Frame, SizeHint};

use super::guarded_body::CallerBody;
use super::head_timeout::ProgressBody;

/// The body as it enters a stream: it notes when its pieces are taken.
pub(super) type UploadBody = ProgressBody<RequestBody>;

/// The body of a request before it enters a stream.
pub(super) enum RequestBody {
    /// The body that the caller sends.
    Caller(CallerBody),
    /// No body, because the request is a repeated read.
    Empty,
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Caller(body) => {
                let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
                if let (Some(Ok(frame)), Some(entry)) = (&frame, body.guard().audit_entry()) {
                    entry.add_bytes_up(frame.data_ref().map_or(0, Bytes::len));
                }
                Poll::Ready(frame)
            }
            Self::Empty => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Caller(body) => body.is_end_stream(),
            Self::Empty => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Caller(body) => body.size_hint(),
            Self::Empty => SizeHint::with_exact(0),
        }
    }
}

/// A copy of the request's head, without a body.
pub(super) fn without_body<B>(request: &Request<B>) -> Request<RequestBody> {
    let mut copy = Request::new(RequestBody::Empty);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    copy
}
