//! The bodies of an exchange with the API server: they know how they ended, and hold what they occupy until then.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use daemon::Seat;
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::connection::Single;
use super::pool::Slot;
use super::{ApiServerError, BoxError};

/// The body of an answer. Its end is true: an answer that broke off ends with an error. Dropping it before its end
/// cancels the exchange at the API server.
#[derive(Debug)]
#[must_use = "dropping it cancels the exchange"]
pub struct ResponseBody {
    // Before `hold`: the stream is reset before its slot is given to another.
    incoming: Option<Incoming>,
    hold: Option<Hold>,
    /// Kept for as long as something is on its way.
    seat: Option<Seat>,
    progress: Progress,
}

/// What an exchange occupies until its end.
#[derive(Debug)]
pub(super) enum Hold {
    Pooled(Slot),
    /// Closed after its one answer.
    Dedicated(Single),
}

/// How far a request's body has been taken. Clones are the same; see [`RequestBody`].
#[derive(Debug, Clone)]
pub(super) struct Progress(Arc<Taken>);

#[derive(Debug)]
struct Taken {
    last: Mutex<Instant>,
    ended: AtomicBool,
    broke: AtomicBool,
    /// The exchange is over: nobody needs the rest.
    over: CancellationToken,
}

/// A request's body on its way to the API server.
pub(super) struct RequestBody {
    inner: UnsyncBoxBody<Bytes, BoxError>,
    progress: Progress,
    over: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl ResponseBody {
    /// The body of an answer without one.
    pub fn empty() -> Self {
        Self { incoming: None, hold: None, seat: None, progress: Progress::default() }
    }

    pub(super) fn new(incoming: Incoming, hold: Hold, progress: Progress) -> Self {
        let mut body = Self { incoming: Some(incoming), hold: Some(hold), seat: None, progress };
        if body.is_end_stream() {
            body.end();
        }
        body
    }

    /// Keeps the request's seat to the answer's end.
    pub fn keep(&mut self, seat: Seat) {
        self.seat = (!self.is_end_stream()).then_some(seat);
    }

    /// The whole answer has arrived.
    fn end(&mut self) {
        self.seat = None;
        match self.hold.take() {
            Some(Hold::Pooled(slot)) if self.progress.has_ended() => slot.finish(),
            // An answer before the request's end: the rest is not wanted, and over HTTP/1.1 the connection is spoilt.
            Some(Hold::Pooled(slot)) => drop(slot),
            Some(Hold::Dedicated(single)) => drop(single),
            None => {}
        }
        self.progress.0.over.cancel();
    }

    /// Whether HTTP/2 ended the stream without END_STREAM: a reset that hyper takes for an end, since a server may
    /// send one after a whole answer. Before that it is no end.
    fn was_cut(&self) -> bool {
        let multiplexed = matches!(&self.hold, Some(Hold::Pooled(slot)) if slot.is_multiplexed());
        let whole = |incoming: &Incoming| incoming.is_end_stream() || incoming.size_hint().exact() == Some(0);
        multiplexed && self.incoming.as_ref().is_some_and(|incoming| !whole(incoming))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ApiServerError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ApiServerError>>> {
        let Some(incoming) = &mut self.incoming else {
            return Poll::Ready(None);
        };
        match ready!(Pin::new(incoming).poll_frame(cx)) {
            Some(Ok(frame)) => {
                if self.is_end_stream() {
                    self.end();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                self.incoming = None;
                self.hold = None;
                self.seat = None;
                Poll::Ready(Some(Err(ApiServerError::Lost(Arc::new(error)))))
            }
            None if self.was_cut() => {
                self.incoming = None;
                self.hold = None;
                self.seat = None;
                Poll::Ready(Some(Err(ApiServerError::CutShort)))
            }
            None => {
                self.end();
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.progress.0.over.cancel();
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self(Arc::new(Taken {
            last: Mutex::new(Instant::now()),
            ended: AtomicBool::new(false),
            broke: AtomicBool::new(false),
            over: CancellationToken::new(),
        }))
    }
}

impl Progress {
    /// Begins the wait for the head anew.
    pub(super) fn touch(&self) {
        *self.0.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// What `answer` gives, whenever that is. Dropped early, the request's body is not wanted any more.
    pub(super) async fn head<T>(&self, answer: impl Future<Output = T>) -> T {
        let cancel = self.0.over.clone().drop_guard();
        let answer = answer.await;
        cancel.disarm();
        answer
    }

    /// What `answer` gives, unless `limit` passes after the last byte of the request was taken.
    pub(super) async fn head_within<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = T>,
    ) -> Result<T, ApiServerError> {
        let mut answer = std::pin::pin!(self.head(answer));
        loop {
            let deadline = self.last() + limit;
            // Both arms are cancel-safe: `answer` is polled by reference. Biased, so that an answer that is there counts.
            tokio::select! {
                biased;
                answer = &mut answer => return Ok(answer),
                () = sleep_until(deadline) => {
                    if self.last() + limit <= Instant::now() {
                        return Err(ApiServerError::Silent(limit));
                    }
                }
            }
        }
    }

    /// Whose fault a broken exchange is.
    pub(super) fn blame(&self, error: hyper::Error) -> ApiServerError {
        if self.0.broke.load(Ordering::Acquire) {
            return ApiServerError::CallerGone;
        }
        if error.is_parse() {
            return ApiServerError::Nonsense("its head cannot be read");
        }
        ApiServerError::Lost(Arc::new(error))
    }

    fn last(&self) -> Instant {
        *self.0.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_ended(&self) -> bool {
        self.0.ended.load(Ordering::Acquire)
    }
}

impl RequestBody {
    pub(super) fn new<B>(body: B, progress: &Progress) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        progress.0.ended.store(body.is_end_stream(), Ordering::Release);
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
        let taken = &this.progress.0;
        match &frame {
            Some(Ok(_)) if this.inner.is_end_stream() => taken.ended.store(true, Ordering::Release),
            None => taken.ended.store(true, Ordering::Release),
            Some(Err(_)) => taken.broke.store(true, Ordering::Release),
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
