//! Keeps a tunnel to every server: finds their addresses, dials, greets, serves, and dials again.

mod addresses;
mod backoff;
mod carrier_choice;
mod connected_servers;
mod control_plane;
mod dependencies;
mod dial;
mod log_throttle;
mod readiness;
mod resolver;
mod supervisor;
mod tunnel_task;

use std::sync::Arc;

use daemon::Scope;
use proto::spiffe::AgentId;

use crate::server_trust::ServerTrust;
pub use control_plane::ControlPlane;
use dependencies::SharedDialer;
pub use dependencies::{ConfiguredServer, Dependencies};
use resolver::Resolver;

/// Dials all servers for as long as the agent lives.
pub struct Dialer {
    shared: Arc<SharedDialer>,
    servers: Vec<ConfiguredServer>,
}

impl Dialer {
    /// A dialer of these servers for `agent`, which trusts servers and shows its certificate by `trust`.
    #[must_use]
    pub fn new(
        servers: Vec<ConfiguredServer>,
        agent: AgentId,
        trust: ServerTrust,
        dependencies: Dependencies,
        scope: Scope,
    ) -> Self {
        Self { shared: Arc::new(SharedDialer::new(agent, trust, dependencies, scope)), servers }
    }

    /// Begins to dial, and dials again, until the drain begins. Tunnels that are open then are drained first.
    pub fn run(self) {
        for server in self.servers {
            let resolver = Resolver::new(Arc::clone(&self.shared), server);
            self.shared.scope.spawn(resolver.run());
        }
    }
}
