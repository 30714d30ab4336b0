//! Accepts the sessions that other servers dial, and takes their word about their tunnels.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use daemon::{Home, Scope, error_chain};
use proto::CloseCode;
use proto::peering::{PeerGreeting, PeerInfo, PeerMessage};
use proto::wire::refused::Reason;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::coop;
use tracing::{debug, info, warn};
use transport::{AcceptedConnection, Driver, Endpoint, GreetError, Spawn, Tunnel, TunnelEvent};

use crate::clocks::Clocks;
use crate::directory::Directory;
use crate::limits::Limiter;
use crate::listener::{self, Listener};
use crate::registry::{PeerSession, Registry};

/// Handshakes of other servers in progress. Anybody can begin one.
const HANDSHAKES_MAX: usize = 64;

/// The listener for other servers. Clones share one endpoint.
#[derive(Clone)]
pub(super) struct PeerListener(Arc<SharedListener>);

struct SharedListener {
    endpoint: Endpoint,
    spawn: Arc<dyn Spawn>,
    own: PeerInfo,
    trust_domain: String,
    directory: Directory,
    registry: Registry,
    limiter: Limiter,
    clocks: Clocks,
    handshakes: Arc<Semaphore>,
}

impl PeerListener {
    /// `endpoint` accepts connections over QUIC, and `spawn` drives those over TCP.
    pub(super) fn new(
        (endpoint, spawn): (Endpoint, Arc<dyn Spawn>),
        own: PeerInfo,
        trust_domain: String,
        (registry, limiter, clocks): (Registry, Limiter, Clocks),
    ) -> Self {
        let directory = registry.directory().clone();
        let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
        Self(Arc::new(SharedListener {
            endpoint,
            spawn,
            own,
            trust_domain,
            directory,
            registry,
            limiter,
            clocks,
            handshakes,
        }))
    }

    /// Accepts other servers as long as it is polled. Their sessions are assigned to the homes in turn.
    pub(super) async fn run(self, scope: Scope) {
        let mut next_home = scope.homes_in_turn();
        while let Some(incoming) = self.0.endpoint.accept().await {
            let slot = Arc::clone(&self.0.handshakes).try_acquire_owned();
            if !incoming.is_validated() {
                incoming.retry();
            } else if let Ok(slot) = slot {
                let home = next_home();
                let listener = self.clone();
                let from = incoming.address();
                let shaken = incoming.handshake();
                scope.spawn_background_on(
                    home,
                    async move { listener.serve(shaken, from, (home, slot)).await },
                );
            } else {
                incoming.refuse();
            }
            coop::consume_budget().await;
        }
    }

    /// Accepts other servers over TCP until `scope` drains. Sessions last until the scope ends.
    pub(super) async fn run_tcp(self, tcp: Listener, scope: Scope) {
        let within = scope.clone();
        let accepted = move |connection: listener::AcceptedConnection| {
            let (listener, scope) = (self.clone(), within.clone());
            async move {
                let listener::AcceptedConnection { stream, peer, home, permit, .. } = connection;
                let Ok(slot) = Arc::clone(&listener.0.handshakes).try_acquire_owned() else { return };
                scope.spawn_background_on(home, async move {
                    let (silence, spawn) = (listener.0.endpoint.silence_max(), Arc::clone(&listener.0.spawn));
                    let shaken = AcceptedConnection::from_tls_stream(stream, peer, silence, &*spawn);
                    listener.serve(shaken, peer, (home, slot)).await;
                    // The connection counts until it ends.
                    drop(permit);
                });
            }
        };
        tcp.run(scope, accepted).await;
    }

    /// Serves another server from `shaken`, its handshake, to the end of its session.
    async fn serve(
        &self,
        shaken: impl Future<Output = Result<AcceptedConnection, GreetError>>,
        from: SocketAddr,
        (home, slot): (Home, OwnedSemaphorePermit),
    ) {
        let greeted = async { self.greet(shaken.await?).await };
        let (tunnel, driver, greeting) = match greeted.await {
            Ok(greeted) => greeted,
            Err(GreetError::Refused(why)) => return warn!(%from, why, "another server was refused"),
            Err(error) => {
                return debug!(%from, error = %error_chain(&error), "no session with another server began");
            }
        };
        drop(slot);
        let (id, epoch) = (greeting.peer.server_id.clone(), greeting.peer.boot.to_string());
        info!(peer = id, %from, software = greeting.peer.software, "another server has opened a session");
        let session = PeerSession::new(greeting.peer, tunnel.clone(), home);
        let mut told = self.0.registry.peer_joined(session);
        let usage = self.0.limiter.peer_joined(id.clone());
        let clock = self.0.clocks.read(&id);
        let ended = driver.run(|event| match event {
            TunnelEvent::Peer(PeerMessage::Tunnels(delta)) => {
                if let Err(error) = told.apply(delta) {
                    warn!(peer = id, %error, "the session with another server is closed");
                    tunnel.close(CloseCode::Violation);
                }
            }
            TunnelEvent::Health(_) => told.state_changed(),
            TunnelEvent::Peer(PeerMessage::Draining) => told.drain(),
            TunnelEvent::Peer(PeerMessage::Applied { revision }) => {
                self.0.directory.confirmed(&id, &epoch, revision);
            }
            TunnelEvent::Peer(PeerMessage::Usage(shares)) => usage.hear(shares, Instant::now()),
            TunnelEvent::Peer(PeerMessage::Status(status)) => told.set_status(status),
            TunnelEvent::Peer(PeerMessage::Clock { unix_millis }) => {
                clock.take(unix_millis, tunnel.min_rtt() / 2);
                told.set_clock(unix_millis);
            }
            TunnelEvent::Peer(PeerMessage::Probed(answer)) => told.answered(answer),
            // A question comes over the session that this server has dialed.
            TunnelEvent::Peer(PeerMessage::Probe(_)) => {}
            // The other server is no agent.
            TunnelEvent::PeerDrains
            | TunnelEvent::Endpoints(_)
            | TunnelEvent::Extension(_)
            | TunnelEvent::StreamReport(_)
            | TunnelEvent::Servers(_)
            | TunnelEvent::StreamQuery(_) => {}
        });
        let ended = ended.await;
        // In this order, so that no request is routed to it once its end is in the log.
        drop((told, clock));
        info!(peer = id, reason = %error_chain(&ended), "the session of another server ended");
    }

    async fn greet(
        &self,
        accepted: AcceptedConnection,
    ) -> Result<(Tunnel, Driver, PeerGreeting), GreetError> {
        let SharedListener { own, trust_domain, directory, .. } = &*self.0;
        let Some(leaf) = accepted.chain().first() else {
            return Err(GreetError::Refused("it has shown no certificate".to_owned()));
        };
        let id = match trust::identity::peer(leaf, trust_domain) {
            Ok(id) => id.to_string(),
            Err(error) => {
                let why = error_chain(&error).to_string();
                accepted.turn_away(&why);
                return Err(GreetError::Refused(why));
            }
        };
        // A process that is not registered, or not any more, has an old copy of everything.
        let may_enter = |greeting: &PeerGreeting| {
            let epoch = directory.servers().get(&greeting.peer.server_id).map(|server| server.epoch.clone());
            if epoch == Some(greeting.peer.boot.to_string()) {
                return Ok(());
            }
            Err((
                Reason::Greeting,
                "this process is not the one that is registered under its ID; dial again".to_owned(),
            ))
        };
        accepted.greet_peer(&id, own, may_enter).await
    }
}
