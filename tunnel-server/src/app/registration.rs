//! The registration of this server among those that share its records, from its start to its end.

use std::time::Duration;

use daemon::{Failure, Readiness, Scope, error_chain};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tracing::{error, info, warn};

use crate::directory::{
    REGISTRATION_TTL, RegisteredServer, RegistrationOutcome, ServerRegistration, StoreError,
};

/// The name of the registration's part of readiness.
const PART: &str = "registration";

/// The time between two signs of life. Three of them fit into the lease.
const KEPT_EVERY: Duration = Duration::from_secs(3);

/// The wait before the next try, at the start.
const AGAIN: Duration = Duration::from_millis(500);

/// Longest wait for the entry of another process of this name, which may have been killed. A new leader of etcd gives every
/// lease its whole time again.
const TAKEN_MAX: Duration = REGISTRATION_TTL.saturating_mul(3);

/// Another process runs under this server's name.
#[derive(Debug, thiserror::Error)]
#[error(
    "another tunnel-server runs as {id} ({software}) with the same records, and with a state directory of its own: give each server \
     its own serverId"
)]
struct Namesake {
    id: String,
    software: String,
}

/// Registers this server, and waits for the entry of an earlier process of its name to go.
///
/// # Errors
/// [`Failure`] if that process lives, or the drain began meanwhile.
pub(super) async fn register(
    id: &str,
    registration: &mut ServerRegistration<RegisteredServer>,
    readiness: &Readiness,
    scope: &Scope,
) -> Result<(), Failure> {
    let _waiting = readiness.lost_because(PART, "this server is not registered yet");
    let until = Instant::now() + TAKEN_MAX;
    loop {
        match registration.keep().await {
            Ok(RegistrationOutcome::Registered) => return Ok(()),
            Ok(RegistrationOutcome::Taken(other)) if Instant::now() >= until => {
                let other = Namesake { id: id.to_owned(), software: other.software };
                return Err(Failure::misconfigured(other));
            }
            Ok(RegistrationOutcome::Taken(other)) => {
                warn!(id, software = other.software, "waiting for the end of another process of this name");
            }
            Err(error @ StoreError::Etcd(_)) => {
                warn!(error = %error_chain(&error), "this server could not be registered yet");
            }
            Err(error) => return Err(error.into()),
        }
        tokio::select! {
            () = sleep(AGAIN) => {}
            () = scope.draining() => return Err(StoreError::Stopping.into()),
        }
    }
}

/// Keeps the registration alive as long as it is polled, and says there that this server stops when its end was requested.
pub(super) async fn keep(
    id: String,
    mut registration: ServerRegistration<RegisteredServer>,
    readiness: Readiness,
    scope: Scope,
) {
    let mut ticks = interval(KEPT_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut lost = None;
    let mut drains = false;
    loop {
        // Both arms are cancel-safe.
        tokio::select! {
            _ = ticks.tick() => {}
            () = scope.stopping(), if !drains => {
                drains = true;
                if let Err(error) = registration.drain().await {
                    warn!(error = %error_chain(&error), "the other servers were not told that this one stops");
                }
                continue;
            }
        }
        match registration.keep().await {
            Ok(RegistrationOutcome::Registered) => {
                if lost.take().is_some() {
                    info!(id, "this server is registered again");
                }
            }
            Ok(RegistrationOutcome::Taken(other)) => {
                error!(
                    id,
                    software = other.software,
                    "another process has registered under this server's name"
                );
                lost.get_or_insert_with(|| {
                    readiness.lost_because(PART, "another process has registered under this server's name")
                });
            }
            // Without news from etcd the age of memory decides what may be done.
            Err(error) => warn!(error = %error_chain(&error), "the registration could not be kept alive"),
        }
    }
}
