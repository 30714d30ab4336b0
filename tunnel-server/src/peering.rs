//! Sessions between the servers of an installation: each tells the others of its tunnels, and carries their streams to its
//! agents. Every server dials every other one; no stream takes a second hop.

mod dialer;
mod listener;
mod relay;
mod splice;
mod telling;
mod usage;

use std::sync::Arc;

use ::audit::Log;
use daemon::Scope;
use proto::peering::PeerInfo;
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;
use transport::tls::SharedCertificate;
use transport::{Endpoint, EndpointKeys, Spawn};

use crate::clocks::Clocks;
use crate::config::PeerCarrier;
use crate::limits::Limiter;
use crate::listener::Listener;
use crate::registry::{OwnServer, Registry};
use dialer::{PeerDialer, PeerDialerParts};
use listener::PeerListener;
use relay::Relays;
use telling::Teller;

pub use dialer::PEERS_MAX;

/// The sessions with the other servers, which have not begun yet.
pub struct Peering {
    listener: PeerListener,
    tcp: Listener,
    dialer: PeerDialer,
    teller: Teller,
    limiter: Limiter,
}

/// This server, as the other ones know it.
pub struct OwnPeer {
    /// Its ID and its process.
    pub info: PeerInfo,
    /// The trust domain of all servers.
    pub trust_domain: String,
    /// The certificate that it shows to servers that it dials.
    pub certificate: Arc<SharedCertificate>,
    /// The roots of the servers that it dials.
    pub server_roots: watch::Receiver<Arc<Vec<CertificateDer<'static>>>>,
    /// The keys of its sockets.
    pub keys: EndpointKeys,
    /// The carrier by which it dials.
    pub carrier: PeerCarrier,
    /// Its state, of which it tells the other ones.
    pub server: OwnServer,
}

impl Peering {
    /// Prepares the sessions. `endpoint` and `tcp` accept those of the other servers. `limiter` counts callers, who have their
    /// limits over all servers.
    #[must_use]
    pub fn new(
        (endpoint, tcp): (Endpoint, Listener),
        own: OwnPeer,
        (registry, limiter, clocks, log): (Registry, Limiter, Clocks, Log),
        spawn: Arc<dyn Spawn>,
    ) -> Self {
        let OwnPeer { info, trust_domain, certificate, server_roots, keys, carrier, server } = own;
        let directory = registry.directory().clone();
        let teller = Teller::new(server, registry.clone());
        let accepting = (endpoint, Arc::clone(&spawn));
        let domain = trust_domain.clone();
        let told = (registry.clone(), limiter.clone(), clocks);
        let listener = PeerListener::new(accepting, info.clone(), domain, told);
        let parts = PeerDialerParts {
            own: info,
            trust_domain,
            certificate,
            server_roots,
            keys,
            carrier,
            directory,
            registry: registry.clone(),
            relays: Relays::new(registry, log),
            teller: teller.clone(),
            spawn,
        };
        Self { listener, tcp, dialer: PeerDialer::new(parts), teller, limiter }
    }

    /// Begins the sessions, within `scope`.
    pub fn run(self, scope: &Scope) {
        let Self { listener, tcp, dialer, teller, limiter } = self;
        scope.spawn_background(listener.clone().run_tcp(tcp, scope.clone()));
        scope.spawn_background(listener.run(scope.clone()));
        scope.spawn_background(dialer.run(scope.clone()));
        scope.spawn_background(teller.clone().run());
        scope.spawn_background(teller.clone().run_applied());
        scope.spawn_background(usage::tell(teller.clone(), limiter));
        scope.spawn_background(teller.clone().run_clock());
        scope.spawn_background(teller.clone().run_status());
        let within = scope.clone();
        scope.spawn_background(async move {
            within.stopping().await;
            teller.drain();
        });
    }
}
