//! The endpoints of a cluster, asked in turn until one answers.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use daemon::Scope;
use rustls::ClientConfig;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::Status;

use crate::channel::Channel;
use crate::endpoint::Endpoint;
use crate::error::{CommitError, Error, TryError, Verdict};

/// Most endpoints of one cluster. etcd itself advises against more than seven members.
pub const ENDPOINTS_MAX: usize = 9;

/// Longest try at one member, the connection included. An answer takes some milliseconds, and a member that waits for an
/// election does not answer.
pub const TRY_MAX: Duration = Duration::from_millis(500);

/// Longest read or change, over all tries. An election takes about 1.7 s.
pub const READ_MAX: Duration = Duration::from_secs(4);

/// The wait before the next round over all members.
const ROUND_PAUSE: Duration = Duration::from_millis(50);

/// A client of one etcd cluster. Clones share its connections.
#[derive(Clone)]
pub struct Client(Arc<SharedClient>);

struct SharedClient {
    endpoints: Vec<Endpoint>,
    tls: Option<watch::Receiver<Arc<ClientConfig>>>,
    scope: Scope,
    /// The index of the endpoint that answered last.
    current: AtomicUsize,
    open: Mutex<Vec<Option<Channel>>>,
}

/// The outcome of one call at one member.
pub(crate) enum Tried<T> {
    Answered(T),
    /// Nothing was done.
    NotProcessed(TryError),
    /// It may have been done.
    Unknown(TryError),
    /// Every member would refuse it.
    Refused(Status),
}

impl Client {
    /// A client that connects when it is first asked. Connections are background tasks of `scope`. Endpoints with TLS use
    /// the newest configuration of `tls`, which must offer `h2` by ALPN.
    ///
    /// # Panics
    /// Without an endpoint, or without `tls` for an endpoint that needs it.
    #[must_use]
    pub fn new(
        endpoints: Vec<Endpoint>,
        tls: Option<watch::Receiver<Arc<ClientConfig>>>,
        scope: Scope,
    ) -> Self {
        assert!(!endpoints.is_empty(), "a client needs an endpoint");
        let needs_tls = endpoints.iter().any(|endpoint| endpoint.tls_name().is_some());
        assert!(tls.is_some() || !needs_tls, "an endpoint of https needs TLS");
        let open = Mutex::new(vec![None; endpoints.len()]);
        Self(Arc::new(SharedClient { endpoints, tls, scope, current: AtomicUsize::new(0), open }))
    }

    /// The endpoints, in the order of the configuration.
    #[must_use]
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.0.endpoints
    }

    /// Asks members in turn until one answers. What is asked may be done several times.
    pub(crate) async fn read<T, F>(&self, act: impl Fn(Channel) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Status>>,
    {
        self.ask_in_turn(act, |_| true).await.map_err(Error::from)
    }

    /// The same for what must not be done twice: once it was sent, and the outcome is unknown, nobody else is asked.
    pub(crate) async fn write<T, F>(&self, act: impl Fn(Channel) -> F) -> Result<T, CommitError>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let answer = self.ask_in_turn(act, |unanswered| !unanswered.may_be_done).await;
        answer.map_err(|failure| match failure {
            Failure::Unanswered(Unanswered { may_be_done: true, error, .. }) => CommitError::Unknown(error),
            failure @ (Failure::Refused(_) | Failure::Unanswered(_)) => CommitError::NotMade(failure.into()),
        })
    }

    /// Asks members in turn, beginning with the one that answered last, until one answers, the time is over, or `goes_on`
    /// says that nobody else may be asked.
    async fn ask_in_turn<T, F>(
        &self,
        act: impl Fn(Channel) -> F,
        goes_on: impl Fn(&Unanswered) -> bool,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let deadline = Instant::now() + READ_MAX;
        let (first, count) = (self.0.current.load(Ordering::Relaxed), self.0.endpoints.len());
        let mut turn = 0;
        loop {
            let index = (first + turn) % count;
            let (error, may_be_done) = match self.ask(index, deadline, &act).await {
                Tried::Answered(answer) => {
                    self.0.current.store(index, Ordering::Relaxed);
                    return Ok(answer);
                }
                Tried::Refused(status) => return Err(Failure::Refused(status)),
                Tried::NotProcessed(error) => (error, false),
                Tried::Unknown(error) => (error, true),
            };
            let unanswered = Unanswered { endpoint: self.0.endpoints[index].clone(), error, may_be_done };
            turn += 1;
            let pause = if turn % count == 0 { ROUND_PAUSE } else { Duration::ZERO };
            if !goes_on(&unanswered) || Instant::now() + pause >= deadline {
                return Err(Failure::Unanswered(unanswered));
            }
            sleep(pause).await;
        }
    }

    /// Asks one member.
    pub(crate) async fn ask<T, F>(
        &self,
        index: usize,
        deadline: Instant,
        act: &impl Fn(Channel) -> F,
    ) -> Tried<T>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let until = deadline.min(Instant::now() + TRY_MAX);
        let channel = match timeout_at(until, self.channel(index)).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => return Tried::NotProcessed(error),
            Err(_) => return Tried::NotProcessed(TryError::Timeout),
        };
        match timeout_at(until, act(channel)).await {
            Ok(Ok(answer)) => Tried::Answered(answer),
            Ok(Err(status)) => match Verdict::of(&status) {
                Verdict::NotProcessed => Tried::NotProcessed(TryError::Status(status)),
                Verdict::Unknown => Tried::Unknown(TryError::Status(status)),
                Verdict::Final => Tried::Refused(status),
            },
            Err(_) => Tried::Unknown(TryError::Timeout),
        }
    }

    /// Opens a stream at one member after the other, for what goes on until it breaks. Returns the member's endpoint.
    pub(crate) async fn open_stream<T, F>(
        &self,
        turn: usize,
        act: impl Fn(Channel) -> F,
    ) -> Result<(Endpoint, T), TryError>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let index = (self.0.current.load(Ordering::Relaxed) + turn) % self.0.endpoints.len();
        let opened = timeout(TRY_MAX, async {
            let channel = self.channel(index).await?;
            act(channel).await.map_err(TryError::Status)
        });
        let opened = opened.await.unwrap_or(Err(TryError::Timeout))?;
        Ok((self.0.endpoints[index].clone(), opened))
    }

    async fn channel(&self, index: usize) -> Result<Channel, TryError> {
        let found = self.open()[index].clone();
        if let Some(channel) = found.filter(|channel| !channel.is_closed()) {
            return Ok(channel);
        }
        let SharedClient { endpoints, tls, scope, .. } = &*self.0;
        let tls = tls.as_ref().map(|newest| Arc::clone(&newest.borrow()));
        let channel = Channel::open(&endpoints[index], tls.as_ref(), scope).await?;
        self.open()[index] = Some(channel.clone());
        Ok(channel)
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Vec<Option<Channel>>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reason why nobody answered.
enum Failure {
    Refused(Status),
    Unanswered(Unanswered),
}

/// The failed try at the member that was asked last.
struct Unanswered {
    endpoint: Endpoint,
    error: TryError,
    may_be_done: bool,
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(status) => status.into(),
            Failure::Unanswered(Unanswered { endpoint, error, .. }) => {
                Self::NoAnswer { endpoint, limit_ms: READ_MAX.as_millis(), source: error }
            }
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoints", &self.0.endpoints).finish_non_exhaustive()
    }
}
