//! A request's body on its way to the API server, how far it has been sent, and its beginning, with which it
//! can be sent again.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::error::ApiServerError;

/// Most bytes of a request's body that are kept until the head of its answer arrives. A request whose body is
/// larger is not sent again once more of it was sent. It fits most objects: one in etcd has 1.5 MiB at most,
/// and 4 KiB mostly. 64 KiB.
pub const KEPT_BYTES_MAX: usize = 64 * 1024;

/// A boxed error of a request's body.
pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request that may be sent more than once, one sending after the other.
pub(super) struct ResendableBody {
    shared: Arc<Mutex<SharedBody>>,
    progress: Progress,
}

/// The body of one sending of a request. It reports its progress, and ends with an error once the exchange is
/// over, or once the request is sent again.
pub(super) struct RequestBody {
    shared: Arc<Mutex<SharedBody>>,
    /// The number of this sending.
    sending: u32,
    progress: Progress,
    over: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

/// The caller's body, and the beginning of it that was sent.
struct SharedBody {
    inner: UnsyncBoxBody<Bytes, BoxError>,
    /// Bytes of earlier sendings that the current one has not taken yet.
    again: Bytes,
    /// Bytes that the current sending has taken, so that another one can. `None` if they are not kept, so the
    /// request cannot be sent again.
    kept: Option<BytesMut>,
    /// The number of the current sending. Bodies of earlier ones take nothing any more.
    sending: u32,
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

    /// Returns true if the request's own body broke, which is its caller's fault.
    pub(super) fn is_broken(&self) -> bool {
        self.0.is_broken.load(Ordering::Acquire)
    }

    /// The error of a broken exchange: the caller's fault if the request's own body broke, or else the API
    /// server's.
    pub(super) fn error_from(&self, error: hyper::Error) -> ApiServerError {
        if self.is_broken() {
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

impl ResendableBody {
    pub(super) fn new<B>(body: B, progress: &Progress) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let shared = SharedBody {
            inner: body.map_err(Into::into).boxed_unsync(),
            again: Bytes::new(),
            kept: Some(BytesMut::new()),
            sending: 0,
        };
        Self { shared: Arc::new(Mutex::new(shared)), progress: progress.clone() }
    }

    /// The body of the next sending, from its first byte. `None` if a part of it is gone.
    pub(super) fn next_sending(&self) -> Option<RequestBody> {
        let mut shared = lock(&self.shared);
        let mut kept = std::mem::take(shared.kept.as_mut()?);
        if !kept.is_empty() {
            kept.extend_from_slice(&shared.again);
            shared.again = kept.freeze();
        }
        shared.sending += 1;
        self.progress.0.has_ended.store(shared.is_end_stream(), Ordering::Release);
        let sending = shared.sending;
        Some(RequestBody {
            shared: self.shared.clone(),
            sending,
            progress: self.progress.clone(),
            over: None,
        })
    }

    /// The request is not sent again, so its beginning is no longer kept.
    pub(super) fn forget(&self) {
        lock(&self.shared).kept = None;
    }
}

impl RequestBody {
    /// The body of a request that is sent once.
    pub(super) fn once<B>(body: B, progress: &Progress) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        progress.0.has_ended.store(body.is_end_stream(), Ordering::Release);
        let inner = body.map_err(Into::into).boxed_unsync();
        let shared = SharedBody { inner, again: Bytes::new(), kept: None, sending: 0 };
        let shared = Arc::new(Mutex::new(shared));
        Self { shared, sending: 0, progress: progress.clone(), over: None }
    }
}

impl SharedBody {
    fn is_end_stream(&self) -> bool {
        self.again.is_empty() && self.inner.is_end_stream()
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = if self.again.is_empty() {
            ready!(Pin::new(&mut self.inner).poll_frame(cx))
        } else {
            Some(Ok(Frame::data(std::mem::take(&mut self.again))))
        };
        match &frame {
            Some(Ok(frame)) => self.keep(frame),
            Some(Err(_)) => self.kept = None,
            None => {}
        }
        Poll::Ready(frame)
    }

    /// Keeps the bytes of a frame, as long as all of them fit. Trailers are not kept.
    fn keep(&mut self, frame: &Frame<Bytes>) {
        let Some(kept) = &mut self.kept else { return };
        match frame.data_ref() {
            Some(data) if kept.len() + data.len() <= KEPT_BYTES_MAX => kept.extend_from_slice(data),
            Some(_) | None => self.kept = None,
        }
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
        let mut shared = lock(&this.shared);
        if shared.sending != this.sending {
            return Poll::Ready(Some(Err("the request is sent again".into())));
        }
        let frame = ready!(shared.poll_frame(cx));
        this.progress.touch();
        let progress = &this.progress.0;
        match &frame {
            Some(Ok(_)) if shared.is_end_stream() => progress.has_ended.store(true, Ordering::Release),
            None => progress.has_ended.store(true, Ordering::Release),
            Some(Err(_)) => progress.is_broken.store(true, Ordering::Release),
            Some(Ok(_)) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.shared).is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let shared = lock(&self.shared);
        let (inner, again) = (shared.inner.size_hint(), shared.again.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(again));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(again));
        }
        hint
    }
}

fn lock(shared: &Mutex<SharedBody>) -> MutexGuard<'_, SharedBody> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
