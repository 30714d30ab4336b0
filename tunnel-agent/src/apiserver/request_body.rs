//! A request's body on its way to the API server, and how far it has been sent.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::error::ApiServerError;

/// A boxed error of a request's body.
pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A request's body that reports its progress, and ends with an error once the exchange is over.
pub(super) struct RequestBody {
    inner: UnsyncBoxBody<Bytes, BoxError>,
    progress: Progress,
    over: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

/// The progress of a request's body. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Progress(Arc<SharedProgress>);

#[derive(Debug)]
struct SharedProgress {
    /// Time at which the connection last took a part of the body.
    last_taken: Mutex<Instant>,
    has_ended: AtomicBool,
    is_broken: AtomicBool,
    /// Cancelled once the exchange is over and nobody needs the rest of the body.
    over: CancellationToken,
}

impl Default for Progress {
    fn default() -> Self {
        Self(Arc::new(SharedProgress {
            last_taken: Mutex::new(Instant::now()),
            has_ended: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            over: CancellationToken::new(),
        }))
    }
}

impl Progress {
    /// Begins the wait for the answer's head anew.
    pub(super) fn touch(&self) {
        *self.0.last_taken.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Waits for `answer` without a limit. Dropped before that, it ends the request's body.
    pub(super) async fn head<T>(&self, answer: impl Future<Output = T>) -> T {
        let cancel = self.0.over.clone().drop_guard();
        let answer = answer.await;
        cancel.disarm();
        answer
    }

    /// Waits for `answer`, at most for `limit` after the last byte of the request was taken.
    pub(super) async fn head_within<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = T>,
    ) -> Result<T, ApiServerError> {
        let mut answer = std::pin::pin!(self.head(answer));
        loop {
            let deadline = self.last_taken() + limit;
            // Both arms are cancel-safe: `answer` is polled by reference. Biased, so that an answer that is
            // there counts.
            tokio::select! {
                biased;
                answer = &mut answer => return Ok(answer),
                () = sleep_until(deadline) => {
                    if self.last_taken() + limit <= Instant::now() {
                        return Err(ApiServerError::Silent(limit));
                    }
                }
            }
        }
    }

    /// The exchange is over: the rest of the request's body is not sent.
    pub(super) fn finish(&self) {
        self.0.over.cancel();
    }

    /// Returns true if the whole request has been sent.
    pub(super) fn has_ended(&self) -> bool {
        self.0.has_ended.load(Ordering::Acquire)
    }

    /// The error of a broken exchange: the caller's fault if the request's own body broke, or else the API
    /// server's.
    pub(super) fn error_from(&self, error: hyper::Error) -> ApiServerError {
        if self.0.is_broken.load(Ordering::Acquire) {
            return ApiServerError::CallerGone;
        }
        if error.is_parse() {
            return ApiServerError::ProtocolError("its head cannot be read");
        }
        ApiServerError::Lost(Arc::new(error))
    }

    fn last_taken(&self) -> Instant {
        *self.0.last_taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestBody {
    pub(super) fn new<B>(body: B, progress: &Progress) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        progress.0.has_ended.store(body.is_end_stream(), Ordering::Release);
        let inner = body.map_err(Into::into).boxed_unsync();
        Self { inner, progress: progress.clone(), over: None }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let over = &this.progress.0.over;
        let over = this.over.get_or_insert_with(|| Box::pin(over.clone().cancelled_owned()));
        if over.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err("the exchange is over".into())));
        }
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(cx));
        this.progress.touch();
        let shared = &this.progress.0;
        match &frame {
            Some(Ok(_)) if this.inner.is_end_stream() => shared.has_ended.store(true, Ordering::Release),
            None => shared.has_ended.store(true, Ordering::Release),
            Some(Err(_)) => shared.is_broken.store(true, Ordering::Release),
            Some(Ok(_)) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
