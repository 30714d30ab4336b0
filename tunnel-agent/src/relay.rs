//! From a tunnel's stream to a target in the cluster: held against the agent's own list, connected, then bytes both ways.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use daemon::{chain, until};
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
use crate::guard::services::{Nowhere, Services};
use crate::guard::targets::{Checked, NotDialed, RESOLVE_MAX, Targets, by_system};
use crate::metrics::{self, DialOutcome};
use crate::pipe;

/// Connections to targets at once.
pub const CONNECTIONS_MAX: usize = 1024;

/// A target answers within this time, all addresses of its name together.
pub const CONNECT_MAX: Duration = Duration::from_secs(5);

/// An address behind which others wait answers within this time, or the next one is tried.
const ATTEMPT_MAX: Duration = Duration::from_millis(1500);

/// The server takes what it is answered within this time.
const REPLY_MAX: Duration = Duration::from_secs(30);

/// Connects streams to targets. Clones are the same.
#[derive(Clone)]
pub struct Relay(Arc<Inner>);

struct Inner {
    targets: Box<dyn Fn() -> Targets + Send + Sync>,
    /// Whose health is known.
    api_server: Option<ApiServer>,
    services: watch::Receiver<Services>,
    /// With which endpoint of a Service the next dial begins.
    turn: AtomicUsize,
    places: Arc<Semaphore>,
}

/// A target that has answered.
struct Connected {
    socket: TcpStream,
    address: Checked,
    _place: OwnedSemaphorePermit,
}

/// Why there is no connection to a target.
#[derive(Debug, thiserror::Error)]
enum NotConnected {
    #[error("the server wants to dial what is no target")]
    NoTarget(#[from] policy::NotATarget),
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
    /// Connects to what stands in `targets` at that time, and to nothing else.
    #[must_use]
    pub fn to(targets: impl Fn() -> Targets + Send + Sync + 'static) -> Self {
        Self::beside(None, watch::channel(Services::default()).1, targets)
    }

    fn beside(
        api_server: Option<ApiServer>,
        services: watch::Receiver<Services>,
        targets: impl Fn() -> Targets + Send + Sync + 'static,
    ) -> Self {
        let (places, turn) = (Arc::new(Semaphore::new(CONNECTIONS_MAX)), AtomicUsize::new(0));
        Self(Arc::new(Inner { targets: Box::new(targets), api_server, services, turn, places }))
    }

    /// Connects to `api_server`, to where the cluster says that its control plane is, and to `targets`, which the agent's own
    /// file names. What the cluster says of itself is no more than an address in a network: it names nothing that is special.
    /// Its `services` are looked up there alone.
    #[must_use]
    pub fn new(
        targets: Targets,
        api_server: ApiServer,
        endpoints: watch::Receiver<Vec<String>>,
        services: watch::Receiver<Services>,
    ) -> Self {
        Self::beside(Some(api_server.clone()), services, move || {
            let own = api_server.authority().as_str().parse().map(TargetEntry::Exactly);
            let endpoints = endpoints.borrow();
            // Networks among them stand in the file.
            let found =
                endpoints.iter().filter_map(|endpoint| endpoint.parse().ok()).map(TargetEntry::ordinary);
            targets.and(own.into_iter().chain(found))
        })
    }

    /// Serves a stream that was opened to dial, to its end.
    pub async fn serve(&self, mut stream: TunnelStream, open: DialOpen) {
        let DialOpen { target, audit_id } = open;
        match self.connect(&target).await {
            Ok(connected) => {
                metrics::dialed(DialOutcome::Connected);
                let reply = DialReply::connected(connected.address.address().to_string());
                match timeout(REPLY_MAX, stream.write_reply(&reply)).await {
                    Ok(Ok(())) => connected.join(stream, &audit_id).await,
                    Ok(Err(_)) | Err(_) => debug!(audit_id, "the server took no answer to its dial"),
                }
            }
            Err(error) => {
                note(&error, &audit_id);
                // Dropped unfinished where the server does not take it, which aborts the stream.
                let _ = timeout(REPLY_MAX, refuse(stream, error.reason())).await;
            }
        }
    }

    async fn connect(&self, target: &str) -> Result<Connected, NotConnected> {
        let target: Target = target.parse()?;
        let place = Arc::clone(&self.0.places).try_acquire_owned().map_err(|_| NotConnected::Full)?;
        let checked = self.checked(&target).await?;
        let (socket, address) = timeout(CONNECT_MAX, first(&checked))
            .await
            .map_err(|_| NotConnected::Timeout(target.clone()))?
            .map_err(|error| NotConnected::Unreachable(target, error))?;
        // What is typed goes at once; the tunnel bundles what is more.
        let _ = socket.set_nodelay(true);
        Ok(Connected { socket, address, _place: place })
    }
}

impl Relay {
    /// The addresses to try, in this order: for the API server itself those that are ready, one in turn before the others; for
    /// everything else its own, those of an API server that is down last.
    async fn checked(&self, target: &Target) -> Result<Vec<Checked>, NotDialed> {
        let targets = (self.0.targets)();
        let is_own = |server: &ApiServer| server.authority().as_str().parse().as_ref() == Ok(target);
        let is_own = self.0.api_server.as_ref().is_some_and(is_own);
        if target.service().is_some() && !is_own {
            return self.led(&targets, target).await;
        }
        let Some(api_server) = &self.0.api_server else {
            return targets.check(target, by_system).await;
        };
        let mut checked = Vec::new();
        if is_own {
            for ready in api_server.ready() {
                // As addresses: nothing is resolved.
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

    /// The endpoints of a Service, another one first each time. Nothing is waited for on behalf of what is not listed; what is
    /// may be asked for before the API server has said where it leads, as at a start.
    async fn led(&self, targets: &Targets, target: &Target) -> Result<Vec<Checked>, NotDialed> {
        let mut services = self.0.services.clone();
        if targets.lists(target) {
            let is_read = |services: &Services| services.leads(target) != Err(Nowhere::Unread);
            // Cancel-safe: it only looks.
            let _ = timeout(RESOLVE_MAX, services.wait_for(is_read)).await;
        }
        let led = services.borrow().leads(target).map(<[_]>::to_vec);
        let led = led.map(|mut addresses| {
            let turn = self.0.turn.fetch_add(1, Ordering::Relaxed) % addresses.len().max(1);
            addresses.rotate_left(turn);
            addresses
        });
        targets.check_led(target, led)
    }
}

impl Connected {
    /// Moves bytes until both directions have ended, each on its own, or one breaks; then neither side takes it for an end.
    async fn join(self, mut stream: TunnelStream, audit_id: &str) {
        let Self { mut socket, address: _, _place } = self;
        let (gone, verdict) = (stream.gone(), stream.verdict());
        // What is dropped here is meant to be cut.
        let broke = match until(pipe::join(None, &mut stream, &mut socket), gone).await {
            Ok(joined) => joined.err().map(|error| chain(&error).to_string()),
            Err(()) => Some("the caller has gone".to_owned()),
        };
        if let Some(why) = broke {
            debug!(audit_id, why, "a connection to a target broke");
            verdict.set(AbortCode::TargetLost);
            // Closed by RST: to the target, too, half of something must not look whole.
            let _ = socket.set_zero_linger();
        }
    }
}

impl NotConnected {
    fn reason(&self) -> Reason {
        match self {
            Self::NoTarget(_) => Reason::Target,
            Self::NotDialed(NotDialed::Unlisted(_)) => Reason::Unlisted,
            Self::NotDialed(NotDialed::Special(_)) => Reason::Special,
            Self::NotDialed(NotDialed::NoAddress(_) | NotDialed::Unresolved(..)) => Reason::Unresolved,
            Self::NotDialed(NotDialed::Nowhere(_, why)) => match why {
                Nowhere::Unread => Reason::Unread,
                Nowhere::Absent | Nowhere::Elsewhere | Nowhere::NoPort => Reason::NoService,
                Nowhere::NotReady => Reason::NotReady,
            },
            Self::Unreachable(..) => Reason::Unreachable,
            Self::Timeout(_) => Reason::Timeout,
            Self::Full => Reason::Limit,
        }
    }
}

/// The first address at which somebody answers; there is at least one.
async fn first(checked: &[Checked]) -> io::Result<(TcpStream, Checked)> {
    let mut why = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for (place, address) in checked.iter().enumerate() {
        // The last one has all the time that there still is.
        let answer = if place + 1 == checked.len() {
            address.dial().await
        } else {
            timeout(ATTEMPT_MAX, address.dial()).await.map_err(io::Error::other).flatten()
        };
        match answer {
            Ok(socket) => return Ok((socket, *address)),
            Err(error) => why = error,
        }
    }
    Err(why)
}

async fn refuse(mut stream: TunnelStream, reason: Reason) -> io::Result<()> {
    stream.write_reply(&DialReply::not_connected(reason)).await?;
    stream.shutdown().await
}

fn note(error: &NotConnected, audit_id: &str) {
    let outcome = DialOutcome::of(error.reason());
    metrics::dialed(outcome);
    let said = chain(error).to_string();
    match outcome {
        // Somebody wants what this agent was told not to do.
        DialOutcome::Guard => warn!(audit_id, reason = said, "the guard refused a target"),
        DialOutcome::Connected | DialOutcome::Unreachable | DialOutcome::Limit => {
            debug!(audit_id, reason = said, "a target was not dialed");
        }
    }
}

#[cfg(test)]
mod tests;
