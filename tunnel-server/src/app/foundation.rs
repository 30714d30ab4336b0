//! The foundation of all parts of the server: state, audit log, probes, roots and records.

use std::net::SocketAddr;

use audit::Log;
use daemon::{Failure, Metrics, NotReady, Probes, Readiness, Scope, StateDir};
use transport::EndpointKeys;

use super::trusted_roots::RootsFollower;
use super::{audit_log, directory, own_identity};
use crate::config::Config;
use crate::directory::Directory;
use crate::registry::Registry;

/// The parts that exist before any listener does.
pub(super) struct Foundation {
    pub(super) readiness: Readiness,
    /// Keeps the server unready until it serves.
    pub(super) starting: NotReady,
    pub(super) keys: EndpointKeys,
    pub(super) log: Log,
    /// The address of the probes, which answer already.
    pub(super) probes: SocketAddr,
    pub(super) roots: RootsFollower,
    pub(super) directory: Directory,
    pub(super) registry: Registry,
}

impl Foundation {
    /// Opens the state directory and the records. A server that shares its records waits for etcd here.
    ///
    /// # Errors
    /// [`Failure`], whose cause names what is wrong and what to do.
    pub(super) async fn lay(config: &mut Config, metrics: &Metrics, scope: &Scope) -> Result<Self, Failure> {
        let readiness = Readiness::new();
        let starting = readiness.handle("server");
        let state = StateDir::open(&config.state_dir)?;
        let keys = own_identity::keys(&state)?;
        let log = audit_log::open(config.audit.as_ref(), &state, &readiness, scope)?;
        // Probes answer while this server waits for etcd.
        let probes = Probes::bind(config.probes_listen, readiness.clone(), metrics.clone())?;
        let address = probes.address();
        probes.run(scope);
        let roots = RootsFollower::new(std::mem::take(&mut config.client_roots), scope);
        let shared = config.etcd.take();
        let directory =
            directory::open((&config.server_id, shared), &state, &roots, &readiness, scope).await?;
        let most = config.limits.server;
        directory.set_clusters_max(most.clusters);
        let registry = Registry::new(directory.clone(), config.tunnel.copied_key, most.tunnels);
        Ok(Self { readiness, starting, keys, log, probes: address, roots, directory, registry })
    }
}
