//! Builds the load balancer from its configuration, and runs it.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use daemon::{Failure, Metrics, Product, Readiness, Scope, StateDir};
use tracing::warn;

use crate::balancer::{Balancer, HandoverResult};
use crate::config::Config;
use crate::discovery::Discovery;
use crate::handover::{HandoverSocket, ListenerFacts, ListenerKind, Predecessor, SOCKET_FILE};
use crate::members::Source;
use crate::pods::{PodAccess, PodAddress};
use crate::relay::{BoundRelay, Relays};
use crate::tls::Tls;
use crate::{metrics, probing, systemd};

mod hand_over;
mod serve_pods;
mod sockets;

use hand_over::Estate;
use serve_pods::{TakenPods, serve_pods};
use sockets::{Sockets, WantedAddresses};

/// The names of this program.
pub const PRODUCT: Product =
    Product { name: "node-lb", metrics_prefix: "tombolo_lb", version: env!("CARGO_PKG_VERSION") };

/// A load balancer that has read its files, and has its sockets.
#[must_use = "a predecessor ends when this is dropped"]
pub struct Bound {
    sockets: Sockets,
    predecessor: Option<Predecessor>,
    pods: Option<PodAccess>,
    readiness: Readiness,
    balancer: Balancer,
    tls: Tls,
    discovery: Discovery,
    state: StateDir,
}

impl Bound {
    /// Reads the CA, takes everything over from a process that runs or binds all addresses, and reads the state
    /// file. No network is used.
    ///
    /// # Errors
    /// [`Failure`], whose cause names what is wrong and what to do.
    pub async fn bind(config: Config, metrics: &Metrics) -> Result<Self, Failure> {
        let Config {
            seeds,
            host_cluster,
            listen,
            listens_as_configured,
            pods,
            tls,
            state_dir,
            probes_listen,
            ..
        } = config;
        let readiness = Readiness::new();
        let balancer = Balancer::new(readiness.clone());
        let slice = tls.certificate.as_ref().map(|_| Source::Slice);
        let host_slice = host_cluster.as_ref().map(|_| Source::HostSlice);
        let sources = [Some(Source::StateFile), Some(Source::Seeds), slice, host_slice];
        let sources = sources.into_iter().flatten().collect();
        let tls = Tls::load(tls).map_err(Failure::misconfigured)?;
        let state = StateDir::open(&state_dir)?;
        let wanted = WantedAddresses {
            listen: &listen,
            listens_as_configured,
            probes: probes_listen,
            readiness: &readiness,
            metrics,
        };
        let (sockets, predecessor) = wanted.get(&state.path().join(SOCKET_FILE)).await?;
        if predecessor.is_some() {
            balancer.handover(HandoverResult::Taken);
        }
        metrics::observe(metrics, &balancer, sources);
        let own_address = sockets.relays.first().map_or(listen[0], BoundRelay::address);
        let named = (seeds, host_cluster);
        let discovery = Discovery::begin(balancer.clone(), tls.clone(), named, state.clone(), own_address);
        Ok(Self { sockets, predecessor, pods, readiness, balancer, tls, discovery, state })
    }

    /// The addresses at which callers are accepted.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sockets.relays.iter().map(BoundRelay::address).collect()
    }

    /// The address at which `/livez`, `/readyz` and `/metrics` answer.
    #[must_use]
    pub fn probes_address(&self) -> SocketAddr {
        self.sockets.probes.address()
    }

    /// Runs until the drain has begun. Connections that are open then belong to the scope.
    pub async fn run(self, scope: Scope) {
        let Self { sockets, predecessor, pods, readiness, balancer, tls, discovery, state } = self;
        let Sockets { relays: mut listeners, probes, pods: pod_listener, steering, connections } = sockets;
        let relays = Relays::default();
        let pod_address = pod_listener.and_then(|(address, socket)| {
            let is_configured =
                pods.as_ref().is_some_and(|access| SocketAddr::from(access.address) == address);
            take_over_pods(pods.as_ref().filter(|_| is_configured), address, socket, &mut listeners)
        });
        relays.go_on(connections, &listeners, pod_address.as_ref(), &balancer, &scope);
        for listener in listeners {
            scope.spawn(listener.run(relays.clone(), balancer.clone(), scope.clone()));
        }
        if let Some(access) = pods {
            let taken = TakenPods::new(&access, pod_address, steering);
            scope.spawn(serve_pods(
                access,
                taken,
                relays.clone(),
                balancer.clone(),
                readiness,
                scope.clone(),
            ));
        }
        let socket = HandoverSocket::bind(&state.path().join(SOCKET_FILE));
        let facts = ListenerFacts { kind: ListenerKind::Probes, address: probes.address() };
        match (socket, probes.share()) {
            (Ok(socket), Ok(shared)) => {
                let estate = Estate { relays, probes: (facts, shared), balancer: balancer.clone() };
                scope.spawn_background(estate.hand_over(socket, scope.clone()));
            }
            (Err(error), _) | (_, Err(error)) => {
                warn!(%error, "no successor can ask for a handover, so an upgrade will end connections");
            }
        }
        probes.run(&scope);
        // Before the predecessor ends: systemd is to know who comes after it.
        systemd::notify_ready();
        drop(predecessor);
        scope.spawn_background(probing::run(balancer, tls.clone(), scope.clone()));
        scope.spawn_background(tls.follow(scope.clone()));
        discovery.run(&scope);
        scope.draining().await;
    }
}

/// Goes on with a listener for pods, if it is one that is configured. Returns the address that connections of pods
/// hold.
fn take_over_pods(
    access: Option<&PodAccess>,
    address: SocketAddr,
    socket: OwnedFd,
    listeners: &mut Vec<BoundRelay>,
) -> Option<Arc<PodAddress>> {
    let SocketAddr::V4(v4) = address else { return None };
    let closed = PodAccess { address: v4, networks: Vec::new(), service: None };
    let held = match PodAddress::add(access.cloned().unwrap_or(closed)) {
        Ok(held) => Arc::new(held),
        Err(error) => {
            warn!(%error, "the address for pods is not held");
            return None;
        }
    };
    if access.is_some() {
        match BoundRelay::take_over(socket, Some(Arc::clone(&held))) {
            Ok(listener) => listeners.push(listener),
            Err(error) => warn!(%error, "the listener for pods is not taken over"),
        }
    }
    Some(held)
}
