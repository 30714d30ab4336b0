//! This server among those that share its records: its registration, its sessions with the others, and its orderly leave.

use std::sync::Arc;
use std::time::Duration;

use audit::Log;
use daemon::{DrainHold, Failure, Readiness, Scope};
use tokio::time::sleep;
use tracing::info;
use transport::Spawn;

use super::own_identity;
use super::peering::{self, OwnProcess};
use super::registration;
use super::trusted_roots::RootsFollower;
use crate::clocks::Clocks;
use crate::config::PeeringConfig;
use crate::directory::{Directory, RegisteredServer, ServerRegistration};
use crate::limits::Limiter;
use crate::peering::Peering;
use crate::registry::Registry;

/// The time between the word that this server stops and its drain. Meanwhile it serves as before: agents dial other servers,
/// and balancers, whose lists of servers lag, send callers elsewhere.
const LEAVE_TAKES: Duration = Duration::from_secs(5);

/// The membership of this server; empty if it shares no records.
pub(super) struct Membership {
    registration: Option<(String, ServerRegistration<RegisteredServer>, Readiness)>,
    peering: Option<Peering>,
    registry: Registry,
}

/// Binds the port for other servers, and registers this one, which agents dial at `addresses`.
///
/// # Errors
/// [`Failure`] if the port or a file cannot be used, or another process has this server's name.
pub(super) async fn join(
    peering: Option<PeeringConfig>,
    addresses: &[String],
    own: OwnProcess<'_>,
    (roots, readiness, scope): (&RootsFollower, &Readiness, &Scope),
    shared: (Registry, Limiter, Clocks, Log),
    spawn: Arc<dyn Spawn>,
) -> Result<Membership, Failure> {
    let address = peering.as_ref().map(|peering| peering.address.clone());
    let entry = own_identity::registered(own.host, addresses, address);
    let id = own.host.server_id.clone();
    let registry = shared.0.clone();
    let bind = |peering| peering::bind(peering, own, (roots, scope), shared, spawn);
    let peering = peering.map(bind).transpose()?;
    let registration = match registry.directory().registration(&id, entry) {
        None => None,
        Some(mut registration) => {
            registration::register(&id, &mut registration, readiness, scope).await?;
            Some((id, registration, readiness.clone()))
        }
    };
    Ok(Membership { registration, peering, registry })
}

impl Membership {
    /// Keeps the registration alive, follows the others' changes, and begins the sessions, within `scope`.
    pub(super) fn run(self, scope: &Scope) {
        if let Some((id, registration, readiness)) = self.registration {
            let directory = self.registry.directory().clone();
            scope.spawn_background(leave(id.clone(), scope.hold_drain(), directory, scope.clone()));
            scope.spawn_background(registration::keep(id, registration, readiness, scope.clone()));
            scope.spawn_background(self.registry.follow_directory());
        }
        if let Some(peering) = self.peering {
            peering.run(scope);
        }
    }
}

/// Holds the drain back for a moment after the end was requested, if another server can serve meanwhile.
async fn leave(id: String, held: DrainHold, directory: Directory, scope: Scope) {
    scope.stopping().await;
    if directory.has_another_server(&id) {
        info!(
            seconds = LEAVE_TAKES.as_secs(),
            "the other servers and the agents are told that this one stops"
        );
        sleep(LEAVE_TAKES).await;
    }
    drop(held);
}
