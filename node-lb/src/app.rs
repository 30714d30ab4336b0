//! Builds the load balancer from its configuration, and runs it.

use std::net::SocketAddr;

use daemon::{BindError, BoundProbes, Failure, Metrics, Probes, Product, Readiness, Scope, StateDir};

use crate::balancer::Balancer;
use crate::config::Config;
use crate::discovery::Discovery;
use crate::members::Source;
use crate::pods::PodAccess;
use crate::relay::{self, BoundRelay};
use crate::tls::Tls;
use crate::{metrics, probing};

mod serve_pods;

use serve_pods::serve_pods;

/// The names of this program.
pub const PRODUCT: Product =
    Product { name: "node-lb", metrics_prefix: "tombolo_lb", version: env!("CARGO_PKG_VERSION") };

/// A load balancer that has read its files, and bound its addresses.
#[derive(Debug)]
pub struct Bound {
    probes: BoundProbes,
    relays: Vec<BoundRelay>,
    pods: Option<PodAccess>,
    readiness: Readiness,
    balancer: Balancer,
    tls: Tls,
    discovery: Discovery,
}

impl Bound {
    /// Reads the CA and the state file, and binds all addresses. No network is used.
    ///
    /// # Errors
    /// [`Failure`], whose cause names what is wrong and what to do.
    pub fn bind(config: Config, metrics: &Metrics) -> Result<Self, Failure> {
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
        let sources = [
            tls.certificate.as_ref().map(|_| Source::Slice),
            host_cluster.as_ref().map(|_| Source::HostSlice),
        ];
        let sources =
            [Source::StateFile, Source::Seeds].into_iter().chain(sources.into_iter().flatten()).collect();
        let tls = Tls::load(tls).map_err(Failure::misconfigured)?;
        let state = StateDir::open(&state_dir)?;
        let relays = bind_relays(&listen, listens_as_configured)?;
        let probes = Probes::bind(probes_listen, readiness.clone(), metrics.clone())?;
        metrics::observe(metrics, &balancer, sources);
        let own_address = relays.first().map_or(listen[0], BoundRelay::address);
        let discovery =
            Discovery::begin(balancer.clone(), tls.clone(), (seeds, host_cluster), state, own_address);
        Ok(Self { probes, relays, pods, readiness, balancer, tls, discovery })
    }

    /// The addresses at which callers are accepted.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.relays.iter().map(BoundRelay::address).collect()
    }

    /// The address at which `/livez`, `/readyz` and `/metrics` answer.
    #[must_use]
    pub fn probes_address(&self) -> SocketAddr {
        self.probes.address()
    }

    /// Runs until the drain has begun. Connections that are open then belong to the scope.
    pub async fn run(self, scope: Scope) {
        let Self { probes, relays, pods, readiness, balancer, tls, discovery } = self;
        probes.run(&scope);
        scope.spawn_background(probing::run(balancer.clone(), tls.clone(), scope.clone()));
        scope.spawn_background(tls.follow(scope.clone()));
        discovery.run(&scope);
        for relay in relays {
            scope.spawn(relay.run(balancer.clone(), scope.clone()));
        }
        if let Some(pods) = pods {
            scope.spawn(serve_pods(pods, balancer, readiness, scope.clone()));
        }
        scope.draining().await;
    }
}

/// Binds the addresses for callers. Of the defaults, those that this host does not have are left out, but not
/// all.
fn bind_relays(listen: &[SocketAddr], listens_as_configured: bool) -> Result<Vec<BoundRelay>, BindError> {
    let mut relays = Vec::new();
    for address in listen {
        match BoundRelay::bind(*address) {
            Ok(relay) => relays.push(relay),
            Err(error) if !listens_as_configured && address.is_ipv6() && is_absent(&error) => {
                relay::warn_not_bound(*address, &error);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(relays)
}

/// Returns true if the host does not have the address, as one without IPv6.
fn is_absent(error: &BindError) -> bool {
    match error {
        BindError::NotHere { .. } => true,
        BindError::Refused { source, .. } => {
            source.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
        }
        BindError::InUse { .. } | BindError::Forbidden { .. } => false,
    }
}
