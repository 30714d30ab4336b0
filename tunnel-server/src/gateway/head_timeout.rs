//! How long a request may wait for its answer's head, and who is to blame where none comes.
//!
//! Only for requests that Kubernetes itself gives a deadline: a watch, a log that is followed or an application behind a
//! `proxy` may be silent for as long as it likes.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};
use proto::deadlines::AGENT_HEAD_MAX;
use tokio::time::{Instant, sleep_until};

/// A caller sends the next piece of its request's body within this time. Shorter than what an agent and its API server
/// wait for, so that neither is blamed for a caller who does not go on.
pub const CALLER_SILENCE_MAX: Duration = Duration::from_secs(60);
const _: () = assert!(CALLER_SILENCE_MAX.as_secs() < proto::deadlines::API_SERVER_HEAD_MAX.as_secs());

/// Who said nothing for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadTimeout {
    /// The caller, in the middle of its request's body, for [`CALLER_SILENCE_MAX`].
    Caller,
    /// The agent, or the link to it, for [`AGENT_HEAD_MAX`].
    Agent,
}

/// How far a request's body has been taken. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct UploadProgress(Arc<Mutex<UploadState>>);

#[derive(Debug)]
struct UploadState {
    /// When something last changed.
    last: Instant,
    /// The next piece is wanted, and has not come.
    awaits_caller: bool,
}

/// A request's body that notes when its pieces are taken.
pub(super) struct ProgressBody<B> {
    body: B,
    progress: UploadProgress,
}

impl<B> ProgressBody<B> {
    pub(super) fn new(body: B, progress: UploadProgress) -> Self {
        Self { body, progress }
    }
}

impl UploadProgress {
    pub(super) fn begin() -> Self {
        Self(Arc::new(Mutex::new(UploadState { last: Instant::now(), awaits_caller: false })))
    }

    /// What `answer` gives, unless somebody is silent for too long before. A complete request whose answer does not come is
    /// the agent's silence.
    pub(super) async fn head_of<T>(&self, answer: impl Future<Output = T>) -> Result<T, HeadTimeout> {
        let mut answer = std::pin::pin!(answer);
        loop {
            let wake = self.taken().verdict(Instant::now())?;
            // Both arms are cancel-safe: `answer` is polled by reference. Biased, so that an answer that is there counts.
            tokio::select! {
                biased;
                answer = &mut answer => return Ok(answer),
                () = sleep_until(wake) => {}
            }
        }
    }

    fn taken(&self) -> MutexGuard<'_, UploadState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UploadState {
    /// Who has been silent for too long at `now`, or when to look again.
    fn verdict(&self, now: Instant) -> Result<Instant, HeadTimeout> {
        let (callers, agents) = (self.last + CALLER_SILENCE_MAX, self.last + AGENT_HEAD_MAX);
        if self.awaits_caller && callers <= now {
            return Err(HeadTimeout::Caller);
        }
        if agents <= now {
            return Err(HeadTimeout::Agent);
        }
        // The agent may take what it has and turn to the caller at any time.
        Ok(if now < callers { callers } else { agents })
    }
}

impl<B: Body + Unpin> Body for ProgressBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.body).poll_frame(cx);
        let mut taken = this.progress.taken();
        if frame.is_ready() || !taken.awaits_caller {
            *taken = UploadState { last: Instant::now(), awaits_caller: frame.is_pending() };
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    const TICK: Duration = Duration::from_millis(1);

    #[test]
    fn the_agent_is_silent_at_its_limit_and_not_before() {
        let began = Instant::now();
        let taken = UploadState { last: began, awaits_caller: false };

        assert_eq!(taken.verdict(began), Ok(began + CALLER_SILENCE_MAX));
        assert_eq!(taken.verdict(began + CALLER_SILENCE_MAX), Ok(began + AGENT_HEAD_MAX));
        assert_eq!(taken.verdict(began + AGENT_HEAD_MAX - TICK), Ok(began + AGENT_HEAD_MAX));
        assert_eq!(taken.verdict(began + AGENT_HEAD_MAX), Err(HeadTimeout::Agent));
    }

    #[test]
    fn a_caller_is_silent_at_its_limit_and_not_before() {
        let began = Instant::now();
        let taken = UploadState { last: began, awaits_caller: true };

        assert_eq!(taken.verdict(began + CALLER_SILENCE_MAX - TICK), Ok(began + CALLER_SILENCE_MAX));
        assert_eq!(taken.verdict(began + CALLER_SILENCE_MAX), Err(HeadTimeout::Caller));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_was_waited_for_last_is_the_one_who_is_silent() {
        let began = Instant::now();
        let silent = UploadProgress::begin().head_of(pending::<()>()).await;
        assert_eq!((silent, began.elapsed()), (Err(HeadTimeout::Agent), AGENT_HEAD_MAX));

        let began = Instant::now();
        let progress = UploadProgress::begin();
        let mut upload = ProgressBody::new(Stuck { pieces: 2 }, progress.clone());
        let silent = progress.head_of(upload_and_wait(&mut upload)).await;
        assert_eq!(
            (silent, began.elapsed()),
            (Err(HeadTimeout::Caller), PIECE_EVERY * 2 + CALLER_SILENCE_MAX)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_in_time_is_the_answer() {
        assert_eq!(UploadProgress::begin().head_of(ready(1)).await, Ok(1));
        let late = async { tokio::time::sleep(AGENT_HEAD_MAX - TICK).await };
        assert_eq!(UploadProgress::begin().head_of(late).await, Ok(()));
    }

    /// The agent takes a piece every now and then.
    const PIECE_EVERY: Duration = Duration::from_secs(50);

    struct Stuck {
        pieces: u32,
    }

    impl Body for Stuck {
        type Data = bytes::Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<bytes::Bytes>, std::convert::Infallible>>> {
            match self.pieces.checked_sub(1) {
                None => Poll::Pending,
                Some(left) => {
                    self.pieces = left;
                    Poll::Ready(Some(Ok(Frame::data("x".into()))))
                }
            }
        }
    }

    async fn upload_and_wait(upload: &mut ProgressBody<Stuck>) {
        for _ in 0..2 {
            tokio::time::sleep(PIECE_EVERY).await;
            let frame = std::future::poll_fn(|cx| Pin::new(&mut *upload).poll_frame(cx)).await;
            assert!(frame.is_some());
        }
        std::future::poll_fn(|cx| Pin::new(&mut *upload).poll_frame(cx)).await;
    }
}
