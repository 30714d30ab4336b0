//! Dials every other server that is registered, and keeps a session with each.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use daemon::{Scope, error_chain};
use proto::peering::{PeerInfo, PeerMessage, ProbeAnswer, ProbeOutcome, ProbeRequest};
use rustls_pki_types::CertificateDer;
use tokio::net::lookup_host;
use tokio::sync::{Semaphore, watch};
use tokio::time::{interval, sleep, timeout};
use tracing::{info, warn};
use transport::tls::{ExpectedPeer, SharedCertificate, TlsError};
use transport::{
    DialError, DialPath, DialTls, Dialed, Endpoint, EndpointError, EndpointKeys, PeerOpening, Spawn, Tunnel,
    TunnelEvent, dial_tcp,
};

use super::relay::Relays;
use super::telling::Teller;
use crate::config::{PeerCarrier, SERVER_TUNNELS_MAX};
use crate::directory::Directory;
use crate::registry::Registry;

/// The time between two looks at the list of servers.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The wait after a failed dial or a session, and the longest one.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Longest handshake with another server.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// Longest wait for the addresses of a name.
const RESOLVE_MAX: Duration = Duration::from_secs(3);

/// Most searches at once for other processes of agents, for all other servers. Beyond it, they get no answer.
const SEARCHES_MAX: usize = SERVER_TUNNELS_MAX;

/// Most servers that one server dials. Beyond it, further ones are reached by agents alone.
pub const PEERS_MAX: usize = 64;

/// Dials the other servers. Clones share one list of those that are dialed.
#[derive(Clone)]
pub(super) struct PeerDialer(Arc<SharedDialer>);

/// This server, as it shows itself to those that it dials.
pub(super) struct PeerDialerParts {
    pub(super) own: PeerInfo,
    pub(super) trust_domain: String,
    pub(super) certificate: Arc<SharedCertificate>,
    pub(super) server_roots: watch::Receiver<Arc<Vec<CertificateDer<'static>>>>,
    pub(super) keys: EndpointKeys,
    pub(super) carrier: PeerCarrier,
    pub(super) registry: Registry,
    pub(super) directory: Directory,
    pub(super) relays: Relays,
    pub(super) teller: Teller,
    pub(super) spawn: Arc<dyn Spawn>,
}

struct SharedDialer {
    parts: PeerDialerParts,
    /// The IDs of the servers for which a task runs.
    dialed: Mutex<HashSet<String>>,
    /// The slots for searches for other processes of agents, [`SEARCHES_MAX`] in all.
    searches: Arc<Semaphore>,
}

/// The reason why there is no session with a server.
#[derive(Debug, thiserror::Error)]
enum NotDialed {
    #[error("{0} has no address now")]
    NoAddress(String),
    #[error("the certificate cannot be used")]
    Tls(#[from] TlsError),
    #[error("no socket could be made")]
    Endpoint(#[from] EndpointError),
    #[error("it could not be dialed")]
    Dial(#[from] DialError),
}

impl PeerDialer {
    pub(super) fn new(parts: PeerDialerParts) -> Self {
        let searches = Arc::new(Semaphore::new(SEARCHES_MAX));
        Self(Arc::new(SharedDialer { parts, dialed: Mutex::default(), searches }))
    }

    /// Dials each server that is registered, until its session is lost for good because it is not registered any more.
    pub(super) async fn run(self, scope: Scope) {
        let mut looks = interval(LOOK_EVERY);
        loop {
            looks.tick().await;
            let SharedDialer { parts, .. } = &*self.0;
            for (id, server) in parts.directory.servers() {
                if id == parts.own.server_id || server.peering.is_none() {
                    continue;
                }
                let mut dialed = self.dialed();
                if dialed.len() >= PEERS_MAX || !dialed.insert(id.clone()) {
                    continue;
                }
                drop(dialed);
                let (dialer, within) = (self.clone(), scope.clone());
                scope.spawn_background(async move { dialer.keep(id, within).await });
            }
        }
    }

    /// Keeps a session with one server while it is registered.
    async fn keep(self, id: String, scope: Scope) {
        let mut pause = PAUSE_FIRST;
        while let Some(address) = self.address(&id) {
            match self.dial(&id, &address).await {
                Ok(Dialed { tunnel, driver, welcome }) => {
                    info!(
                        peer = id,
                        software = welcome.peer.software,
                        "a session with another server is open"
                    );
                    pause = PAUSE_FIRST;
                    let _told = self.0.parts.teller.join(tunnel.clone());
                    // Both arms are cancel-safe: the session is over when either ends.
                    let ended = tokio::select! {
                        ended = driver.run(|event| self.answer(event, &tunnel, &scope)) => Some(ended),
                        () = self.0.parts.relays.serve(&id, &tunnel, &scope) => None,
                    };
                    let reason = ended.map(|ended| error_chain(&ended).to_string());
                    info!(peer = id, reason, "a session with another server ended");
                }
                Err(error) => {
                    warn!(peer = id, address, error = %error_chain(&error), "another server could not be dialed");
                }
            }
            // After a session, too: one that ends at once is not dialed in a tight loop.
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        self.dialed().remove(&id);
    }

    /// Answers the other server's question for a process of an agent, by a task of its own.
    fn answer(&self, event: TunnelEvent, session: &Tunnel, scope: &Scope) {
        let TunnelEvent::Peer(PeerMessage::Probe(ProbeRequest { number, agent, boot })) = event else {
            return;
        };
        let Ok(slot) = Arc::clone(&self.0.searches).try_acquire_owned() else { return };
        let (registry, session) = (self.0.parts.registry.clone(), session.clone());
        scope.spawn_background(async move {
            let outcome = registry.answer_probe(&agent, boot).await;
            if outcome != ProbeOutcome::NoDuplicate {
                warn!(%agent, ?outcome, "an agent's certificate is used by another process at another server, too");
            }
            // If the session does not take it, it ends, and nobody waits for the answer.
            let _ = session.tell_peer(PeerMessage::Probed(ProbeAnswer { number, outcome: Some(outcome) }));
            drop(slot);
        });
    }

    /// The address at which a server is dialed, while it is registered.
    fn address(&self, id: &str) -> Option<String> {
        self.0.parts.directory.servers().get(id)?.peering.clone()
    }

    async fn dial(&self, id: &str, address: &str) -> Result<Dialed<proto::peering::PeerGreeting>, NotDialed> {
        let PeerDialerParts { own, trust_domain, certificate, server_roots, keys, carrier, spawn, .. } =
            &self.0.parts;
        let peer = ExpectedPeer { trust_domain: trust_domain.clone(), server_id: id.to_owned() };
        let roots = server_roots.borrow().to_vec();
        let tls = DialTls::for_peer(Arc::clone(certificate), roots, peer)?;
        let opening = PeerOpening { own: own.clone(), dialed_id: id.to_owned() };
        let resolved: Vec<SocketAddr> = match timeout(RESOLVE_MAX, lookup_host(address)).await {
            Ok(Ok(found)) => found.collect(),
            Ok(Err(_)) | Err(_) => Vec::new(),
        };
        let mut failure = NotDialed::NoAddress(address.to_owned());
        // The name counts for nothing: the other server proves its ID.
        let name = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let name = name.trim_start_matches('[').trim_end_matches(']');
        for address in resolved {
            let dialed = match carrier {
                PeerCarrier::Quic => {
                    let endpoint = Endpoint::dialing(address, keys, Arc::clone(spawn))?;
                    endpoint.dial(address, name, &tls, opening.clone(), HANDSHAKE_MAX).await
                }
                PeerCarrier::Http2 => {
                    let path = DialPath::Direct(address);
                    dial_tcp(&path, name, &tls, opening.clone(), HANDSHAKE_MAX, &**spawn).await
                }
            };
            match dialed {
                Ok(dialed) => return Ok(dialed),
                Err(error) => failure = error.into(),
            }
        }
        Err(failure)
    }

    fn dialed(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.dialed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
