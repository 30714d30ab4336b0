//! The body of a request on its way to a cluster: what the caller sends, or nothing where the request is
//! repeated.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Request;
use hyper::body::{Body, Frame, SizeHint};

use super::head_timeout::ProgressBody;
use super::kept_body::BodyAttempt;
use crate::exchanges::audit::AuditEntry;

/// The bytes that a caller sends with its request.
pub(crate) trait UploadSource:
    Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin + Send + 'static
{
}

impl<B> UploadSource for B where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin + Send + 'static
{
}

/// The body as it enters a stream: it notes when its pieces are taken.
pub(crate) type UploadBody<B> = ProgressBody<RequestBody<B>>;

/// The body of a request before it enters a stream.
pub(crate) enum RequestBody<B> {
    /// The body that the caller sends.
    Caller(CountedBody<B>),
    /// The same, of which the beginning is kept.
    Kept(BodyAttempt<CountedBody<B>>),
    /// No body, because the request is a repeated read.
    Empty,
}

/// The body that the caller sends. Its bytes count in the audit entry when they are taken.
pub(crate) struct CountedBody<B> {
    body: B,
    entry: AuditEntry,
}

impl<B> CountedBody<B> {
    pub(crate) fn new(body: B, entry: &AuditEntry) -> Self {
        Self { body, entry: entry.clone() }
    }
}

impl<B> RequestBody<B> {
    /// The body that the caller sends with the exchange of this entry.
    pub(crate) fn of_caller(body: B, entry: &AuditEntry) -> Self {
        Self::Caller(CountedBody::new(body, entry))
    }
}

impl<B: UploadSource> Body for CountedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            this.entry.add_bytes_up(frame.data_ref().map_or(0, Bytes::len));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B: UploadSource> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
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
pub(crate) fn without_body<R, B>(request: &Request<R>) -> Request<RequestBody<B>> {
    with_body(request, RequestBody::Empty)
}

/// A copy of the request's head, with this body.
pub(crate) fn with_body<R, B>(request: &Request<R>, body: RequestBody<B>) -> Request<RequestBody<B>> {
    let mut copy = Request::new(body);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    copy
}
