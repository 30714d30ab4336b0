//! The timeout for the head of an answer, which tells a silent caller from a silent agent.
//!
//! It applies only to requests that Kubernetes itself gives a deadline. A watch, a followed log or an
//! application behind a `proxy` may be silent forever.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, sleep_until};

/// Longest pause of a caller in its request's body. It is shorter than the timeouts of an agent and its API
/// server, so that neither is blamed for a caller that stops.
pub const CALLER_SILENCE_MAX: Duration = Duration::from_secs(60);
const _: () = assert!(CALLER_SILENCE_MAX.as_secs() < proto::deadlines::API_SERVER_HEAD_MAX.as_secs());

/// The peer that was silent for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadTimeout {
    /// The caller paused in its request's body for [`CALLER_SILENCE_MAX`].
    Caller,
    /// The agent, or the link to it, was silent for the request's deadline, at least [`AGENT_HEAD_MAX`](proto::deadlines::AGENT_HEAD_MAX).
    Agent,
}

/// The progress of a request's body. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct UploadProgress(Arc<Mutex<UploadState>>);

#[derive(Debug)]
struct UploadState {
    /// The time of the last change.
    last: Instant,
    /// True if the next piece was asked for and has not come.
    awaits_caller: bool,
    /// The longest silence of the agent.
    deadline: Duration,
}

/// A request's body that notes its progress.
pub(crate) struct ProgressBody<B> {
    body: B,
    progress: UploadProgress,
}

impl<B> ProgressBody<B> {
    pub(crate) fn new(body: B, progress: UploadProgress) -> Self {
        Self { body, progress }
    }
}

impl UploadProgress {
    /// Begins a request that an agent has to answer within `deadline`.
    pub(crate) fn begin(deadline: Duration) -> Self {
        let last = Instant::now();
        Self(Arc::new(Mutex::new(UploadState { last, awaits_caller: false, deadline })))
    }

    /// Waits for `answer`. A complete request without an answer counts as the agent's silence.
    ///
    /// # Errors
    /// The peer that was silent for too long.
    pub(crate) async fn head_of<T>(&self, answer: impl Future<Output = T>) -> Result<T, HeadTimeout> {
        let mut answer = std::pin::pin!(answer);
        loop {
            let wake = self.state().check(Instant::now())?;
            // Both arms are cancel-safe: `answer` is polled by reference. Biased, so that an answer that is
            // there counts.
            tokio::select! {
                biased;
                answer = &mut answer => return Ok(answer),
                () = sleep_until(wake) => {}
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, UploadState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UploadState {
    /// The time of the next check, or the peer that has been silent for too long at `now`.
    fn check(&self, now: Instant) -> Result<Instant, HeadTimeout> {
        let (callers, agents) = (self.last + CALLER_SILENCE_MAX, self.last + self.deadline);
        if self.awaits_caller && callers <= now {
            return Err(HeadTimeout::Caller);
        }
        if agents <= now {
            return Err(HeadTimeout::Agent);
        }
        // The agent may take what it has, and wait for the caller, at any time.
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
        let mut state = this.progress.state();
        if frame.is_ready() || !state.awaits_caller {
            (state.last, state.awaits_caller) = (Instant::now(), frame.is_pending());
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
    use proto::deadlines::AGENT_HEAD_MAX;
    use std::future::{pending, ready};

    const TICK: Duration = Duration::from_millis(1);

    #[test]
    fn the_agent_is_silent_at_its_limit_and_not_before() {
        let began = Instant::now();
        let state = UploadState { last: began, awaits_caller: false, deadline: AGENT_HEAD_MAX };

        assert_eq!(state.check(began), Ok(began + CALLER_SILENCE_MAX));
        assert_eq!(state.check(began + CALLER_SILENCE_MAX), Ok(began + AGENT_HEAD_MAX));
        assert_eq!(state.check(began + AGENT_HEAD_MAX - TICK), Ok(began + AGENT_HEAD_MAX));
        assert_eq!(state.check(began + AGENT_HEAD_MAX), Err(HeadTimeout::Agent));
    }

    #[test]
    fn a_caller_is_silent_at_its_limit_and_not_before() {
        let began = Instant::now();
        let state = UploadState { last: began, awaits_caller: true, deadline: AGENT_HEAD_MAX };

        assert_eq!(state.check(began + CALLER_SILENCE_MAX - TICK), Ok(began + CALLER_SILENCE_MAX));
        assert_eq!(state.check(began + CALLER_SILENCE_MAX), Err(HeadTimeout::Caller));
    }

    #[tokio::test(start_paused = true)]
    async fn the_peer_that_was_waited_for_last_is_the_silent_one() {
        let began = Instant::now();
        let timeout = UploadProgress::begin(AGENT_HEAD_MAX).head_of(pending::<()>()).await;
        assert_eq!((timeout, began.elapsed()), (Err(HeadTimeout::Agent), AGENT_HEAD_MAX));

        let began = Instant::now();
        let progress = UploadProgress::begin(AGENT_HEAD_MAX);
        let mut upload = ProgressBody::new(Stuck { pieces: 2 }, progress.clone());
        let timeout = progress.head_of(upload_and_wait(&mut upload)).await;
        assert_eq!(
            (timeout, began.elapsed()),
            (Err(HeadTimeout::Caller), PIECE_EVERY * 2 + CALLER_SILENCE_MAX)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_in_time_is_the_answer() {
        assert_eq!(UploadProgress::begin(AGENT_HEAD_MAX).head_of(ready(1)).await, Ok(1));
        let late = async { tokio::time::sleep(AGENT_HEAD_MAX - TICK).await };
        assert_eq!(UploadProgress::begin(AGENT_HEAD_MAX).head_of(late).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_with_a_longer_limit_is_waited_for_that_long() {
        let limit = AGENT_HEAD_MAX * 4;
        let late = async { tokio::time::sleep(limit - TICK).await };
        assert_eq!(UploadProgress::begin(limit).head_of(late).await, Ok(()));
        let began = Instant::now();
        let timeout = UploadProgress::begin(limit).head_of(pending::<()>()).await;
        assert_eq!((timeout, began.elapsed()), (Err(HeadTimeout::Agent), limit));
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
