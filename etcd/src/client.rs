//! The endpoints of a cluster, asked in turn until one answers.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use daemon::Scope;
use rustls::ClientConfig;
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
    tls: Option<Arc<ClientConfig>>,
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
    /// `tls`, which must offer `h2` by ALPN.
    ///
    /// # Panics
    /// Without an endpoint.
    #[must_use]
    pub fn new(endpoints: Vec<Endpoint>, tls: Option<Arc<ClientConfig>>, scope: Scope) -> Self {
        assert!(!endpoints.is_empty(), "a client needs an endpoint");
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
        let deadline = Instant::now() + READ_MAX;
        loop {
            let (endpoint, error) = match self.round(deadline, &act, |_| true).await {
                Round::Answered(answer) => return Ok(answer),
                Round::Refused(status) => return Err(status.into()),
                Round::Failed(endpoint, error) | Round::Unknown(endpoint, error) => (endpoint, error),
            };
            if Instant::now() + ROUND_PAUSE >= deadline {
                return Err(Error::NoAnswer { endpoint, limit_ms: READ_MAX.as_millis(), source: error });
            }
            sleep(ROUND_PAUSE).await;
        }
    }

    /// The same for what must not be done twice: once it was sent, and the outcome is unknown, nobody else is asked.
    pub(crate) async fn write<T, F>(&self, act: impl Fn(Channel) -> F) -> Result<T, CommitError>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let deadline = Instant::now() + READ_MAX;
        loop {
            let (endpoint, error) =
                match self.round(deadline, &act, |tried| !matches!(tried, Tried::Unknown(_))).await {
                    Round::Answered(answer) => return Ok(answer),
                    Round::Refused(status) => return Err(CommitError::NotMade(status.into())),
                    Round::Unknown(_, error) => return Err(CommitError::Unknown(error)),
                    Round::Failed(endpoint, error) => (endpoint, error),
                };
            if Instant::now() + ROUND_PAUSE >= deadline {
                let limit_ms = READ_MAX.as_millis();
                return Err(CommitError::NotMade(Error::NoAnswer { endpoint, limit_ms, source: error }));
            }
            sleep(ROUND_PAUSE).await;
        }
    }

    /// Asks each member once, beginning with the one that answered last, as long as `goes_on` says.
    async fn round<T, F>(
        &self,
        deadline: Instant,
        act: &impl Fn(Channel) -> F,
        goes_on: impl Fn(&Tried<T>) -> bool,
    ) -> Round<T>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let first = self.0.current.load(Ordering::Relaxed);
        let count = self.0.endpoints.len();
        let mut last = (self.0.endpoints[first % count].clone(), TryError::Timeout);
        for index in (0..count).map(|further| (first + further) % count) {
            let endpoint = &self.0.endpoints[index];
            let tried = self.ask(index, deadline, act).await;
            let goes_on = goes_on(&tried);
            match tried {
                Tried::Answered(answer) => {
                    self.0.current.store(index, Ordering::Relaxed);
                    return Round::Answered(answer);
                }
                Tried::Refused(status) => return Round::Refused(status),
                Tried::Unknown(error) if !goes_on => return Round::Unknown(endpoint.clone(), error),
                Tried::NotProcessed(error) | Tried::Unknown(error) => last = (endpoint.clone(), error),
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        Round::Failed(last.0, last.1)
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
        let channel = Channel::open(&endpoints[index], tls.as_ref(), scope).await?;
        self.open()[index] = Some(channel.clone());
        Ok(channel)
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Vec<Option<Channel>>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The outcome of asking all members once.
enum Round<T> {
    Answered(T),
    Refused(Status),
    Failed(Endpoint, TryError),
    Unknown(Endpoint, TryError),
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoints", &self.0.endpoints).finish_non_exhaustive()
    }
}
