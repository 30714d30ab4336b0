//! Relays the bytes of callers' connections to API servers. TLS passes through.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use daemon::listen::{BindError, GuardedConnection, GuardedListener, ListenerLimits, PerSourceLimits};
use daemon::{Scope, error_chain};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use crate::balancer::{Balancer, Chosen, Join};
use crate::copy::copy;
use crate::members::{ConnectionResult, ProbeOutcome};
use crate::pods::PodAddress;
use crate::probing::dial_failed;
use crate::random::{random, random_below};

mod keep_alive;
mod moving;

/// The configuration keys of the addresses.
const KEY: &str = "listen";
const POD_KEY: &str = "pods.address";

/// Most connections of callers at a time. Each takes two file descriptors.
pub const CONNECTIONS_MAX: usize = 4096;

/// Longest wait of a connection for the first API server that shows its certificate.
pub const FIRST_MAX: Duration = Duration::from_secs(3);

/// Longest wait for the answer of one API server to a dial. Then the next one is dialed.
pub const DIAL_MAX: Duration = Duration::from_secs(1);

/// Longest time in which API servers are dialed for one connection.
pub const DIALS_MAX: Duration = Duration::from_secs(10);

/// A connection is quiet when no byte has passed for this time.
pub const QUIET_FOR: Duration = Duration::from_millis(500);

/// Every caller is a process of this host, so no source has limits of its own.
const LIMITS: ListenerLimits = ListenerLimits {
    connections_max: CONNECTIONS_MAX,
    handshakes_max: CONNECTIONS_MAX,
    source: PerSourceLimits::UNLIMITED,
    ..ListenerLimits::DEFAULT
};

/// The limits at the address for pods. They are apart from those of the worker's own programs, so pods cannot take
/// the connections of kubelet.
const POD_LIMITS: ListenerLimits = ListenerLimits {
    connections_max: CONNECTIONS_MAX,
    handshakes_max: CONNECTIONS_MAX,
    source: PerSourceLimits { proving: 0, ..PerSourceLimits::DEFAULT },
    ..ListenerLimits::DEFAULT
};

/// A listener for callers, whose address is bound.
#[derive(Debug)]
pub struct BoundRelay {
    listener: GuardedListener,
    /// Callers are pods, and others are not served.
    pods: Option<Arc<PodAddress>>,
}

/// A connection from a caller to an API server.
struct Relayed {
    caller: TcpStream,
    api_server: TcpStream,
    address: SocketAddr,
    opened: Instant,
    /// Milliseconds from `opened` to the last byte in either direction.
    last_byte: AtomicU64,
}

impl BoundRelay {
    /// Binds an address for callers.
    ///
    /// # Errors
    /// [`BindError`], which names the key and the address.
    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        Ok(Self { listener: GuardedListener::bind(KEY, address, LIMITS)?, pods: None })
    }

    /// Binds the address for pods.
    ///
    /// # Errors
    /// [`BindError`], which names the key and the address.
    pub fn bind_for_pods(pods: Arc<PodAddress>) -> Result<Self, BindError> {
        let listener = GuardedListener::bind(POD_KEY, pods.access().address.into(), POD_LIMITS)?;
        Ok(Self { listener, pods: Some(pods) })
    }

    /// The bound address, with the port that the system chose if 0 was configured.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Relays connections until the drain. Open ones then end in their next quiet moment.
    pub async fn run(self, balancer: Balancer, scope: Scope) {
        let serving = scope.clone();
        let Self { listener, pods } = self;
        let serving_next = move |connection: GuardedConnection| {
            let peer = connection.peer.ip();
            if pods.as_ref().is_some_and(|pods| !pods.access().admits(peer)) {
                debug!(%peer, "a caller that is no pod of pods.networks was closed");
                balancer.refused();
                return None;
            }
            let (balancer, scope, address) = (balancer.clone(), serving.clone(), pods.clone());
            Some(async move {
                serve(connection, balancer, scope).await;
                drop(address);
            })
        };
        listener.run(&scope, serving_next).await;
    }
}

/// Serves one caller's connection to its end.
async fn serve(connection: GuardedConnection, balancer: Balancer, scope: Scope) {
    let GuardedConnection { stream: caller, permit: _permit, handshake, .. } = connection;
    let cuts_and_connection = timeout(DIALS_MAX, connect(&balancer)).await.ok().flatten();
    drop(handshake);
    let Some((api_server, chosen, cuts)) = cuts_and_connection else {
        balancer.refused();
        // An end without a byte would look like an API server that closes.
        let _ = caller.set_zero_linger();
        return;
    };
    let (address, opened) = (chosen.address, Instant::now());
    let relayed = Relayed { caller, api_server, address, opened, last_byte: AtomicU64::new(0) };
    let result = relayed.run(&chosen, cuts, &balancer, &scope).await;
    chosen.traffic.count(result);
    if result == ConnectionResult::Moved {
        balancer.moved();
    }
}

type Connected = (TcpStream, Chosen, watch::Receiver<u64>);

/// Dials API servers until one answers. `None` if none does.
async fn connect(balancer: &Balancer) -> Option<Connected> {
    let mut chosen = balancer.choose_first(FIRST_MAX).await?;
    let mut tried = Vec::new();
    loop {
        // Before the dial, so that no cut is missed.
        let cuts = chosen.traffic.cuts();
        if let Some(stream) = dial(balancer, &chosen).await
            && balancer.has_proved(chosen.address)
        {
            return Some((stream, chosen, cuts));
        }
        tried.push(chosen.address);
        chosen = balancer.choose(&tried)?;
    }
}

async fn dial(balancer: &Balancer, chosen: &Chosen) -> Option<TcpStream> {
    let began = Instant::now();
    match timeout(DIAL_MAX, TcpStream::connect(chosen.address)).await {
        Ok(Ok(stream)) => {
            if let Err(error) = keep_alive::watch(&stream) {
                debug!(%error, "a connection to an API server cannot be watched for its end");
            }
            Some(stream)
        }
        Ok(Err(error)) => {
            let outcome = dial_failed(&error);
            let result = match outcome {
                ProbeOutcome::Refused => ConnectionResult::DialRefused,
                ProbeOutcome::Answered { .. }
                | ProbeOutcome::Missed
                | ProbeOutcome::Unreachable
                | ProbeOutcome::Foreign => ConnectionResult::DialFailed,
            };
            chosen.traffic.count(result);
            warn_dial(chosen, &error);
            balancer.probed(chosen.address, outcome, began);
            None
        }
        Err(_) => {
            chosen.traffic.count(ConnectionResult::DialFailed);
            balancer.suspect();
            None
        }
    }
}

fn warn_dial(chosen: &Chosen, error: &std::io::Error) {
    debug!(api_server = %chosen.address, error = %error_chain(error), "a dial for a caller failed");
}

impl Relayed {
    async fn run(
        &self,
        chosen: &Chosen,
        mut cuts: watch::Receiver<u64>,
        balancer: &Balancer,
        scope: &Scope,
    ) -> ConnectionResult {
        // Typed characters and small frames are sent at once.
        let _ = (self.caller.set_nodelay(true), self.api_server.set_nodelay(true));
        let up = copy(&self.caller, &self.api_server, |bytes| {
            chosen.traffic.sent(bytes);
            self.note_byte(Instant::now());
        });
        let down = copy(&self.api_server, &self.caller, |bytes| {
            let now = Instant::now();
            chosen.traffic.received(bytes, now);
            self.note_byte(now);
        });
        let drained = async {
            scope.draining().await;
            self.quiet().await;
        };
        // All arms may be dropped at any time: the connection ends then.
        let result = tokio::select! {
            both = futures::future::try_join(up, down) => if both.is_ok() { ConnectionResult::Closed } else { ConnectionResult::Broken },
            _ = cuts.changed() => ConnectionResult::Cut,
            () = self.moved(balancer.joins()) => ConnectionResult::Moved,
            () = drained => ConnectionResult::Drained,
        };
        match result {
            ConnectionResult::Broken | ConnectionResult::Cut => {
                // A reset on both sides: what was cut short must not look complete.
                let _ = (self.caller.set_zero_linger(), self.api_server.set_zero_linger());
            }
            ConnectionResult::Closed
            | ConnectionResult::Moved
            | ConnectionResult::Drained
            | ConnectionResult::DialRefused
            | ConnectionResult::DialFailed => {}
        }
        result
    }

    /// Resolves in a quiet moment, if the connection is to move to an API server that has joined.
    async fn moved(&self, mut joins: watch::Receiver<Option<Join>>) {
        joins.mark_unchanged();
        loop {
            if joins.changed().await.is_err() {
                return pending().await;
            }
            let Some(join) = *joins.borrow_and_update() else { continue };
            if join.address != self.address && moving::moves(self.opened.elapsed(), join.others, random()) {
                sleep(random_below(moving::MOVE_WITHIN)).await;
                return self.quiet().await;
            }
        }
    }

    fn note_byte(&self, now: Instant) {
        let since = now.saturating_duration_since(self.opened).as_millis();
        self.last_byte.store(u64::try_from(since).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Resolves once no byte has passed for [`QUIET_FOR`].
    async fn quiet(&self) {
        loop {
            let last_byte = Duration::from_millis(self.last_byte.load(Ordering::Relaxed));
            let silent = self.opened.elapsed().saturating_sub(last_byte);
            if silent >= QUIET_FOR {
                return;
            }
            sleep(QUIET_FOR.saturating_sub(silent)).await;
        }
    }
}

/// Logs that callers cannot be served at this address.
pub fn warn_not_bound(address: SocketAddr, error: &BindError) {
    warn!(%address, error = %error_chain(error), "this host has no such address, so nothing is relayed there");
}
