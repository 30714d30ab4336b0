//! Relays a tunnel's stream to a target in the cluster: checks the agent's own list, connects, and copies
//! bytes both ways.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use daemon::{error_chain, run_until};
use policy::{Target, TargetEntry};
use proto::AbortCode;
use proto::wire::not_connected::Reason;
use proto::wire::{DialOpen, DialReply};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;
use tracing::{debug, warn};
use transport::TunnelStream;

use crate::apiserver::ApiServer;
use crate::guard::services::{BackendError, Services};
use crate::guard::targets::{Checked, NotDialed, RESOLVE_MAX, Targets, by_system};
use crate::metrics::{self, TargetDialOutcome};
use crate::pipe;

/// Most connections to targets at a time.
pub const CONNECTIONS_MAX: usize = 1024;

/// Longest wait for a target's answer, for all addresses of its name together.
pub const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Longest wait for the answer of one address, where the target has others. Then the next one is tried.
const ATTEMPT_MAX: Duration = Duration::from_millis(1500);

/// Longest time for the server to take the answer to its dial.
const REPLY_MAX: Duration = Duration::from_secs(30);

/// Connects streams to targets. Clones share everything.
#[derive(Clone)]
pub struct Relay(Arc<SharedRelay>);

struct SharedRelay {
    targets: Box<dyn Fn() -> Targets + Send + Sync>,
    /// Its API servers' readiness decides the order of addresses.
    api_server: Option<ApiServer>,
    services: watch::Receiver<Services>,
    /// Counts dials of Services, so that each begins with another endpoint.
    next_endpoint: AtomicUsize,
    slots: Arc<Semaphore>,
}

/// A connection to a target that has answered.
struct ConnectedTarget {
    socket: TcpStream,
    address: Checked,
    _slot: OwnedSemaphorePermit,
}

/// A target could not be connected.
#[derive(Debug, thiserror::Error)]
enum ConnectError {
    #[error("the target that the server wants to dial is not valid")]
    InvalidTarget(#[from] policy::NotATarget),
    #[error(transparent)]
    NotDialed(#[from] NotDialed),
    #[error("nobody answers at {0}")]
    Unreachable(Target, #[source] io::Error),
    #[error("{0} did not answer within {max} s", max = CONNECT_MAX.as_secs())]
    Timeout(Target),
    #[error("{CONNECTIONS_MAX} connections to targets are open, which is the most")]
    Full,
}

impl Relay {
    /// Connects to the targets that `targets` returns at each dial, and to no other.
    #[must_use]
    pub fn to(targets: impl Fn() -> Targets + Send + Sync + 'static) -> Self {
        Self::with_sources(None, watch::channel(Services::default()).1, targets)
    }

    fn with_sources(
        api_server: Option<ApiServer>,
        services: watch::Receiver<Services>,
        targets: impl Fn() -> Targets + Send + Sync + 'static,
    ) -> Self {
        let (slots, next_endpoint) = (Arc::new(Semaphore::new(CONNECTIONS_MAX)), AtomicUsize::new(0));
        Self(Arc::new(SharedRelay { targets: Box::new(targets), api_server, services, next_endpoint, slots }))
    }

    /// Connects to `api_server`, to the `endpoints` of the control plane that the cluster names, and to the
    /// `targets` of the agent's own file. An endpoint that the cluster names counts as an address within a
    /// network: it permits no special address. Services are looked up only in `services`.
    #[must_use]
    pub fn new(
        targets: Targets,
        api_server: ApiServer,
        endpoints: watch::Receiver<Vec<String>>,
        services: watch::Receiver<Services>,
    ) -> Self {
        Self::with_sources(Some(api_server.clone()), services, move || {
            let own = api_server.authority().as_str().parse().map(TargetEntry::Exactly);
            let endpoints = endpoints.borrow();
            // Networks among them are in the agent's own file already.
            let found =
                endpoints.iter().filter_map(|endpoint| endpoint.parse().ok()).map(TargetEntry::ordinary);
            targets.and(own.into_iter().chain(found))
        })
    }

    /// Serves a stream that was opened to dial a target, to its end.
    pub async fn serve(&self, mut stream: TunnelStream, open: DialOpen) {
        let DialOpen { target, audit_id } = open;
        match self.connect(&target).await {
            Ok(connected) => {
                metrics::target_dialed(TargetDialOutcome::Connected);
                let reply = DialReply::connected(connected.address.address().to_string());
                match timeout(REPLY_MAX, stream.write_reply(&reply)).await {
                    Ok(Ok(())) => connected.join(stream, &audit_id).await,
                    Ok(Err(_)) | Err(_) => debug!(audit_id, "the server took no answer to its dial"),
                }
            }
            Err(error) => {
                log_refusal(&error, &audit_id);
                // A stream that the server does not read is dropped before its end, which aborts it.
                let _ = timeout(REPLY_MAX, refuse(stream, error.reason())).await;
            }
        }
    }

    async fn connect(&self, target: &str) -> Result<ConnectedTarget, ConnectError> {
        let target: Target = target.parse()?;
        let slot = Arc::clone(&self.0.slots).try_acquire_owned().map_err(|_| ConnectError::Full)?;
        let checked = self.addresses(&target).await?;
        let (socket, address) = timeout(CONNECT_MAX, connect_first(&checked))
            .await
            .map_err(|_| ConnectError::Timeout(target.clone()))?
            .map_err(|error| ConnectError::Unreachable(target, error))?;
        // Typed characters are sent at once. The tunnel batches larger writes.
        let _ = socket.set_nodelay(true);
        Ok(ConnectedTarget { socket, address, _slot: slot })
    }
}

impl Relay {
    /// The addresses to try, in this order. For the API server itself: those that are ready, another one
    /// first each time. For every other target: its own addresses, those of an API server that is down last.
    async fn addresses(&self, target: &Target) -> Result<Vec<Checked>, NotDialed> {
        let targets = (self.0.targets)();
        let is_api_server = |server: &ApiServer| server.authority().as_str().parse().as_ref() == Ok(target);
        let is_api_server = self.0.api_server.as_ref().is_some_and(is_api_server);
        if target.service().is_some() && !is_api_server {
            return self.endpoints(&targets, target).await;
        }
        let Some(api_server) = &self.0.api_server else {
            return targets.check(target, by_system).await;
        };
        let mut checked = Vec::new();
        if is_api_server {
            for ready in api_server.ready() {
                // They are addresses, so nothing is resolved.
                if let Ok(ready) = ready.to_string().parse()
                    && let Ok(ready) = targets.check(&ready, by_system).await
                {
                    checked.extend(ready);
                }
            }
        }
        match targets.check(target, by_system).await {
            Ok(own) => checked.extend(own),
            Err(_) if !checked.is_empty() => {}
            Err(error) => return Err(error),
        }
        checked.sort_by_key(|address| api_server.is_down(address.address()));
        Ok(checked)
    }

    /// The endpoints of a Service, another one first each time. A listed Service may be dialed before the API
    /// server has named its endpoints, as at a start, so this waits for them. It does not wait for one that
    /// is not listed.
    async fn endpoints(&self, targets: &Targets, target: &Target) -> Result<Vec<Checked>, NotDialed> {
        let mut services = self.0.services.clone();
        if targets.lists(target) {
            let is_read = |services: &Services| services.endpoints(target) != Err(BackendError::Unread);
            // Cancel-safe: it only reads.
            let _ = timeout(RESOLVE_MAX, services.wait_for(is_read)).await;
        }
        let endpoints = services.borrow().endpoints(target).map(<[_]>::to_vec);
        let endpoints = endpoints.map(|mut addresses| {
            let next_endpoint = self.0.next_endpoint.fetch_add(1, Ordering::Relaxed) % addresses.len().max(1);
            addresses.rotate_left(next_endpoint);
            addresses
        });
        targets.check_endpoints(target, endpoints)
    }
}

impl ConnectedTarget {
    /// Moves bytes until both directions have ended, each on its own. If one breaks, neither side takes that
    /// for an end.
    async fn join(self, mut stream: TunnelStream, audit_id: &str) {
        let Self { mut socket, address: _, _slot } = self;
        let (gone, verdict) = (stream.gone(), stream.abort_codes());
        // A connection that is dropped here is to be cut.
        let broke = match run_until(pipe::join(None, &mut stream, &mut socket), gone).await {
            Ok(joined) => joined.err().map(|error| error_chain(&error).to_string()),
            Err(()) => Some("the caller hung up".to_owned()),
        };
        if let Some(why) = broke {
            debug!(audit_id, why, "a connection to a target broke");
            verdict.set(AbortCode::TargetLost);
            // Closed by RST: a truncated copy must not look complete to the target either.
            let _ = socket.set_zero_linger();
        }
    }
}

impl ConnectError {
    fn reason(&self) -> Reason {
        match self {
            Self::InvalidTarget(_) => Reason::Target,
            Self::NotDialed(NotDialed::Unlisted(_)) => Reason::Unlisted,
            Self::NotDialed(NotDialed::Special(_)) => Reason::Special,
            Self::NotDialed(NotDialed::NoAddress(_) | NotDialed::Unresolved(..)) => Reason::Unresolved,
            Self::NotDialed(NotDialed::NoBackend(_, why)) => match why {
                BackendError::Unread => Reason::Unread,
                BackendError::Absent | BackendError::ExternalName | BackendError::NoPort => Reason::NoService,
                BackendError::NotReady => Reason::NotReady,
            },
            Self::Unreachable(..) => Reason::Unreachable,
            Self::Timeout(_) => Reason::Timeout,
            Self::Full => Reason::Limit,
        }
    }
}

/// Connects to the first address that answers. There is at least one address.
async fn connect_first(checked: &[Checked]) -> io::Result<(TcpStream, Checked)> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for (index, address) in checked.iter().enumerate() {
        // The last one has all the time that is left.
        let answer = if index + 1 == checked.len() {
            address.dial().await
        } else {
            timeout(ATTEMPT_MAX, address.dial()).await.map_err(io::Error::other).flatten()
        };
        match answer {
            Ok(socket) => return Ok((socket, *address)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn refuse(mut stream: TunnelStream, reason: Reason) -> io::Result<()> {
    stream.write_reply(&DialReply::not_connected(reason)).await?;
    stream.shutdown().await
}

fn log_refusal(error: &ConnectError, audit_id: &str) {
    let outcome = TargetDialOutcome::from(error.reason());
    metrics::target_dialed(outcome);
    let error = error_chain(error).to_string();
    match outcome {
        // The server asked for a target that the agent's own list does not have.
        TargetDialOutcome::Guard => warn!(audit_id, reason = error, "the guard refused a target"),
        TargetDialOutcome::Connected | TargetDialOutcome::Unreachable | TargetDialOutcome::Limit => {
            debug!(audit_id, reason = error, "a target was not dialed");
        }
    }
}

#[cfg(test)]
mod tests;
