//! Keeps a tunnel to every server: finds their addresses, dials, greets, serves, and dials again.

mod addresses;
mod backoff;
mod carrier_choice;
mod connected_servers;
mod control_plane;
mod dependencies;
mod dial;
mod known_servers;
mod log_throttle;
mod readiness;
mod rendezvous;
mod resolver;
mod server_choice;
mod server_tasks;
mod supervisor;
mod tunnel_task;
mod usage;

use std::sync::Arc;

use daemon::{Scope, StateError};
use proto::spiffe::AgentId;

use crate::server_trust::ServerTrust;
pub use control_plane::ControlPlane;
use dependencies::SharedDialer;
pub use dependencies::{ConfiguredServer, Dependencies};
use known_servers::KnownServers;
use server_tasks::ServerTasks;

/// Dials servers for as long as the agent lives.
pub struct Dialer {
    tasks: ServerTasks,
    scope: Scope,
}

impl Dialer {
    /// Begins to dial for `agent`, which trusts servers and shows its certificate by `trust`: these servers, and those that it
    /// was told of. Blocks.
    ///
    /// # Errors
    /// The state directory cannot be read.
    pub fn begin(
        servers: Vec<ConfiguredServer>,
        agent: AgentId,
        trust: ServerTrust,
        dependencies: Dependencies,
        scope: Scope,
    ) -> Result<Self, StateError> {
        let known = KnownServers::open(&dependencies.state)?;
        let shared = Arc::new(SharedDialer::new(agent, trust, known, dependencies, scope.clone()));
        Ok(Self { tasks: ServerTasks::new(shared, servers), scope })
    }

    /// Dials, and dials again, until the drain begins. Tunnels that are open then are drained first.
    pub fn run(self) {
        self.scope.spawn_background(self.tasks.run());
    }
}
