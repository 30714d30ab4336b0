//! Finds the API servers: by the state file, by seeds, by the cluster's own EndpointSlice, and by those of a Service in a host cluster.

use std::net::SocketAddr;

use daemon::{Scope, StateDir};

use crate::balancer::Balancer;
use crate::config::{HostCluster, Seed};
use crate::members::Source;
use crate::tls::Tls;

mod host_slice;
mod listing;
mod seeds;
mod slice;
pub mod state_file;

/// Everything that finds API servers.
#[derive(Debug)]
pub struct Discovery {
    balancer: Balancer,
    tls: Tls,
    seeds: Vec<Seed>,
    host_cluster: Option<HostCluster>,
    state: StateDir,
    /// The address at which this process listens for callers. The slice is watched through it.
    own_address: SocketAddr,
}

impl Discovery {
    /// Reads the state file, and names the seeds that are addresses. No network is needed for that.
    #[must_use]
    pub fn begin(
        balancer: Balancer,
        tls: Tls,
        (seeds, host_cluster): (Vec<Seed>, Option<HostCluster>),
        state: StateDir,
        own_address: SocketAddr,
    ) -> Self {
        let remembered = state_file::read(&state, &tls.current().ca_keys);
        if !remembered.is_empty() {
            balancer.remember(&remembered);
        }
        let addresses = seeds::addresses(&seeds);
        if !addresses.is_empty() {
            balancer.name(Source::Seeds, &addresses);
        }
        Self { balancer, tls, seeds, host_cluster, state, own_address }
    }

    /// Follows names, the slice and what is to be remembered, until the process ends.
    pub fn run(self, scope: &Scope) {
        let Self { balancer, tls, seeds, host_cluster, state, own_address } = self;
        scope.spawn_background(seeds::follow(seeds, balancer.clone()));
        scope.spawn_background(slice::follow(own_address, tls.clone(), balancer.clone(), scope.clone()));
        if let Some(host) = host_cluster {
            scope.spawn_background(host_slice::follow(host, balancer.clone(), scope.clone()));
        }
        scope.spawn_background(state_file::follow(state, tls, balancer));
    }
}
