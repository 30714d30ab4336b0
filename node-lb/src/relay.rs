//! Relays the bytes of callers' connections to API servers. TLS passes through.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use daemon::listen::{BindError, GuardedConnection, GuardedListener, ListenerLimits, PerSourceLimits};
use daemon::{Scope, error_chain};
use tracing::{debug, warn};

use crate::balancer::Balancer;
use crate::handover::{ListenerFacts, ListenerKind};
use crate::pods::PodAddress;

mod connection;
mod dialing;
mod first_bytes;
mod keep_alive;
mod moving;
mod parking;
mod relays;

use connection::{Connection, Origin};
pub use relays::{Frozen, Relays};

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

    /// Takes over the socket of another process: of the address for pods if there is one.
    ///
    /// # Errors
    /// The socket is none of TCP that listens, or the system refused.
    pub fn take_over(socket: OwnedFd, pods: Option<Arc<PodAddress>>) -> io::Result<Self> {
        let (key, limits) = if pods.is_some() { (POD_KEY, POD_LIMITS) } else { (KEY, LIMITS) };
        Ok(Self { listener: GuardedListener::take_over(key, socket, limits)?, pods })
    }

    /// The bound address, with the port that the system chose if 0 was configured.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    fn facts(&self) -> ListenerFacts {
        let kind = if self.pods.is_some() { ListenerKind::Pods } else { ListenerKind::Worker };
        ListenerFacts { kind, address: self.address() }
    }

    /// Relays connections until the drain, or until another process has the listener. After a drain open ones end in
    /// their next quiet moment.
    pub async fn run(mut self, relays: Relays, balancer: Balancer, scope: Scope) {
        let mut owner = relays.listeners.register();
        let mut homes = scope.homes_in_turn();
        let mut draining = pin!(scope.draining());
        loop {
            // All arms are cancel-safe: accepting may be dropped at any time. Biased, so that many new connections
            // delay neither a drain nor a handover.
            let accepted = tokio::select! {
                biased;
                () = &mut draining => return,
                ask = owner.asked() => {
                    let Some(returned) = owner.give(self, ask).await else { return };
                    self = returned;
                    continue;
                }
                accepted = self.listener.next() => accepted,
            };
            if let Some(connection) = self.admit(accepted, &balancer) {
                let serving = relays.serve(connection, balancer.clone(), scope.clone());
                scope.spawn_on(homes(), serving);
            }
        }
    }

    fn admit(&self, accepted: GuardedConnection, balancer: &Balancer) -> Option<Connection> {
        let GuardedConnection { stream, peer, permit, handshake, .. } = accepted;
        if self.pods.as_ref().is_some_and(|pods| !pods.access().admits(peer.ip())) {
            debug!(%peer, "a caller that is no pod of pods.networks was closed");
            balancer.refused();
            return None;
        }
        let (listener, _permit, _pods) = (self.facts(), Some(permit), self.pods.clone());
        Some(Connection::new(stream, Origin { listener, peer, _permit, _pods }, handshake))
    }
}

/// Logs that callers cannot be served at this address.
pub fn warn_not_bound(address: SocketAddr, error: &BindError) {
    warn!(%address, error = %error_chain(error), "this host has no such address, so nothing is relayed there");
}
