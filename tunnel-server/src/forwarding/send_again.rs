//! Sends a request with effects, and sends it again only if its agent has promised that it never began it.

use std::pin::pin;
use std::time::Duration;

use http::Request;
use proto::inquiry::StreamFate;
use proto::{AbortCode, ClusterId};
use tokio::time::timeout;
use tracing::debug;

use super::error::ForwardError;
use super::exchange::{ForwardContext, OpenedExchange, TunnelResponse};
use super::kept_body::KeptBody;
use super::park_timeout::ParkWait;
use super::request_body::{CountedBody, RequestBody, UploadSource, with_body};
use crate::exchanges::audit::Audited;
use crate::exchanges::slow_readers::ReadProgress;
use crate::metrics::{self, SentAgainKind};
use crate::registry::{Route, never_begun};

/// A request is sent again this often at most, as a read is.
pub(crate) const SENT_AGAIN_MAX: usize = 2;

/// After a tunnel was lost, its agent has this long to come back by another tunnel and to tell what it had begun.
const RETURN_MAX: Duration = Duration::from_secs(5);

/// The stream of a request on its way, as far as its fate concerns it.
pub(crate) struct SentStream {
    route: Route,
    stream: u64,
    read_progress: ReadProgress,
}

/// The repetitions of a request that are left.
#[derive(Debug)]
pub(crate) struct Repetitions(usize);

/// The agent has not begun to carry the request out as it was sent, and never will.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NeverBegun;

/// Sends a request that must not happen twice. If its tunnel falls silent or is lost before its agent has begun
/// it, it is sent again, up to [`SENT_AGAIN_MAX`] times, as long as its body is kept.
pub(crate) async fn send<B: UploadSource>(
    audited: Audited,
    request: Request<B>,
    context: &ForwardContext,
    mut wait: ParkWait<'_>,
) -> Result<TunnelResponse, ForwardError> {
    let cluster = audited.permit().action().cluster().clone();
    let (head, body) = request.into_parts();
    let head = Request::from_parts(head, ());
    let body = KeptBody::new(CountedBody::new(body, audited.entry()), context.kept_bytes.clone());
    let (mut attempt, mut repetitions) = (body.first(), Repetitions::new(SENT_AGAIN_MAX));
    loop {
        let opened = OpenedExchange::open(audited.clone(), &head, context, wait).await?;
        let stream = SentStream::of(&opened);
        let sent = opened.send(with_body(&head, RequestBody::Kept(attempt)));
        if let Ok(answered) = stream.answer(sent).await {
            body.release();
            return answered;
        }
        let next = if repetitions.take() { body.next() } else { None };
        let Some(next) = next else { return Err(not_begun(cluster)) };
        count(&cluster, SentAgainKind::Write);
        (attempt, wait) = (next, wait.repeated());
    }
}

/// The refusal of a request that was not carried out, and is not sent again.
pub(crate) fn not_begun(cluster: ClusterId) -> ForwardError {
    ForwardError::Aborted(cluster, AbortCode::Fenced)
}

/// Counts a request that is sent again.
pub(crate) fn count(cluster: &ClusterId, kind: SentAgainKind) {
    debug!(%cluster, ?kind, "a request that its agent never began is sent again");
    metrics::sent_again(kind);
}

impl Repetitions {
    pub(crate) fn new(max: usize) -> Self {
        Self(max)
    }

    /// Takes one repetition. Returns false if none is left.
    pub(crate) fn take(&mut self) -> bool {
        let left = self.0.checked_sub(1);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }
}

impl SentStream {
    /// The stream of an exchange that is about to be sent.
    pub(crate) fn of(opened: &OpenedExchange) -> Self {
        let (route, stream) = (opened.route.clone(), opened.stream.number());
        Self { route, stream, read_progress: opened.stream.read_progress() }
    }

    /// Waits for what becomes of the request that is sent on this stream.
    ///
    /// # Errors
    /// Its agent has promised that it never begins it.
    pub(crate) async fn answer<T>(
        &self,
        sent: impl Future<Output = Result<T, ForwardError>>,
    ) -> Result<Result<T, ForwardError>, NeverBegun> {
        settle(sent, || self.route.fate(self.stream), || self.may_be_told()).await
    }

    /// Returns true if the agent may still tell the fate of this stream: nothing was answered, and the agent did
    /// not end the tunnel itself, which leads to this server.
    fn may_be_told(&self) -> bool {
        !self.read_progress.has_begun() && !self.route.tells_no_fate()
    }
}

/// Waits for the answer to a request, or for the promise that it is never begun. `fate` is what the agent tells.
/// A request whose tunnel is lost waits for that, too, if the agent `may_tell` it.
async fn settle<T, F: Future<Output = StreamFate>>(
    sent: impl Future<Output = Result<T, ForwardError>>,
    fate: impl Fn() -> F,
    may_tell: impl FnOnce() -> bool,
) -> Result<Result<T, ForwardError>, NeverBegun> {
    let mut sent = pin!(sent);
    // Both arms are cancel-safe: an exchange that is dropped is aborted. Biased, so that an answer that is there
    // counts.
    let answered = tokio::select! {
        biased;
        answered = &mut sent => answered,
        () = never_begun(fate()) => return Err(NeverBegun),
    };
    match answered {
        Err(ForwardError::Aborted(_, AbortCode::Fenced)) => Err(NeverBegun),
        Err(refusal @ ForwardError::Lost(_)) if may_tell() => match timeout(RETURN_MAX, fate()).await {
            Ok(StreamFate::NeverBegun) => Err(NeverBegun),
            Ok(StreamFate::MayHaveBegun) | Err(_) => Ok(Err(refusal)),
        },
        answered => Ok(answered),
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::{Instant, sleep};

    use super::*;

    #[test]
    fn a_request_is_sent_again_twice_at_most() {
        let mut repetitions = Repetitions::new(SENT_AGAIN_MAX);
        let granted = (0..10).filter(|_| repetitions.take()).count();
        assert_eq!(granted, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_was_never_begun_is_sent_again_and_not_awaited() {
        let settled = settle(pending::<Result<(), _>>(), || ready(StreamFate::NeverBegun), || true).await;
        assert!(matches!(settled, Err(NeverBegun)));

        let refused = ready(Err::<(), _>(not_begun(cluster())));
        let settled = settle(refused, pending::<StreamFate>, || true).await;
        assert!(matches!(settled, Err(NeverBegun)), "its agent has refused it, as it had promised");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_may_have_begun_is_not_sent_again() {
        let answered = async {
            sleep(RETURN_MAX * 3).await;
            Ok(1)
        };
        let settled = settle(answered, || ready(StreamFate::MayHaveBegun), || true).await;
        assert!(matches!(settled, Ok(Ok(1))), "its answer is awaited where it is");

        let lost = || ready(Err::<(), _>(ForwardError::Lost(cluster())));
        for (fate, may_tell) in [(StreamFate::MayHaveBegun, true), (StreamFate::NeverBegun, false)] {
            let settled = settle(lost(), || ready(fate), || may_tell).await;
            assert!(matches!(settled, Ok(Err(ForwardError::Lost(_)))), "{fate:?} {may_tell}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_request_waits_for_its_agents_word_up_to_the_limit() {
        let lost = || ready(Err::<(), _>(ForwardError::Lost(cluster())));
        let told_after = |wait: Duration| async move {
            sleep(wait).await;
            StreamFate::NeverBegun
        };

        let began = Instant::now();
        let settled = settle(lost(), || told_after(RETURN_MAX - Duration::from_millis(1)), || true).await;
        assert!(matches!(settled, Err(NeverBegun)));
        assert!(began.elapsed() < RETURN_MAX);

        let (began, settled) = (Instant::now(), settle(lost(), pending::<StreamFate>, || true).await);
        assert!(matches!(settled, Ok(Err(ForwardError::Lost(_)))));
        assert_eq!(began.elapsed(), RETURN_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn every_other_refusal_stays_as_it_is() {
        let busy = ready(Err::<(), _>(ForwardError::CallerSilent));
        let settled = settle(busy, || ready(StreamFate::NeverBegun), || true).await;
        assert!(matches!(settled, Ok(Err(ForwardError::CallerSilent))));
    }

    fn cluster() -> ClusterId {
        "edge-a".parse().unwrap()
    }
}
