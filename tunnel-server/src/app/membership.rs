//! This server among those that share its records: its registration, its sessions with the others, and its orderly leave.

use std::sync::Arc;
use std::time::Duration;

use audit::Log;
use daemon::{DrainHold, Failure, NotReady, Readiness, Scope};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};
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
use crate::registry::{OwnServer, Registry};

/// The time between the word that this server stops and its drain. Meanwhile it serves as before: agents dial other servers,
/// and balancers, whose lists of servers lag, send callers elsewhere.
const LEAVE_TAKES: Duration = Duration::from_secs(5);

/// The longest wait of a starting server for its sessions with the others. One of them may be dead and registered still.
const SESSIONS_WITHIN: Duration = Duration::from_secs(10);

/// The time between two looks at the sessions of a starting server.
const SESSIONS_EVERY: Duration = Duration::from_millis(100);

/// The membership of this server; empty if it shares no records.
pub(super) struct Membership {
    registration: Option<(String, ServerRegistration<RegisteredServer>, Readiness)>,
    peering: Option<(Peering, NotReady)>,
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
    let peering = peering.map(|peering| {
        let why = "it has no session yet with each of the other servers, and waits 10 s at most";
        (peering, readiness.lost_because("peers", why))
    });
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
    /// Keeps the registration alive, follows the others' changes, and begins the sessions of `own`, within `scope`.
    pub(super) fn run(self, own: OwnServer, scope: &Scope) {
        if let Some((id, registration, readiness)) = self.registration {
            let directory = self.registry.directory().clone();
            scope.spawn_background(leave(id.clone(), scope.hold_drain(), directory, scope.clone()));
            scope.spawn_background(registration::keep(id, registration, readiness, scope.clone()));
            scope.spawn_background(self.registry.follow_directory());
        }
        if let Some((peering, not_ready)) = self.peering {
            peering.run(scope);
            scope.spawn_background(join_others(own, not_ready));
        }
    }
}

/// Keeps this server unready until it has a session with each of the others, within bounds: without one, a caller's request
/// would be parked for a cluster that is connected to another server.
async fn join_others(own: OwnServer, not_ready: NotReady) {
    let joining = async {
        while own.reach().missing > 0 {
            sleep(SESSIONS_EVERY).await;
        }
    };
    if timeout(SESSIONS_WITHIN, joining).await.is_err() {
        let missing = own.reach().missing;
        warn!(missing, "no session with other servers that are registered: serving without them");
    }
    drop(not_ready);
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
