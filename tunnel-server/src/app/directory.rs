//! The directory: of this server alone in its state directory, or in etcd, where many servers share it.

use std::future::pending;
use std::time::Duration;

use daemon::{Failure, Readiness, Scope, StateDir, error_chain};
use tokio::time::{interval, sleep};
use tracing::{info, warn};

use super::certificates;
use super::janitor;
use super::trusted_roots::RootsFollower;
use crate::config::{EtcdConfig, EtcdTls};
use crate::directory::{Directory, Freshness, StoreError};
use crate::metrics::ReloadedFile;

/// The name of the directory's part of readiness.
const PART: &str = "directory";

/// The wait before etcd is asked again, where it did not answer at the start.
const OPEN_AGAIN: Duration = Duration::from_secs(1);

/// The reason of a server that is not ready because it waits for etcd.
const NO_ANSWER: &str = "etcd does not answer";

/// The time between two looks at the age of memory.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The election of the server that removes expired records.
const JANITOR: &str = "janitor";

/// Opens the directory of the server `server_id`, from which expired records are removed within `scope`. A server that shares it
/// waits until etcd answers.
///
/// # Errors
/// [`Failure`] if it cannot be opened, or the drain began meanwhile.
pub(super) async fn open(
    (server_id, etcd): (&str, Option<EtcdConfig>),
    state: &StateDir,
    roots: &RootsFollower,
    readiness: &Readiness,
    scope: &Scope,
) -> Result<Directory, Failure> {
    let directory = match etcd {
        None => Directory::open(state)?,
        Some(etcd) => {
            let shared = open_shared(etcd, state, roots, readiness, scope).await?;
            scope.spawn_background(follow(shared.clone(), readiness.clone()));
            shared
        }
    };
    let election = directory.election(JANITOR, server_id);
    scope.spawn_background(janitor::run(directory.clone(), election, scope.clone()));
    Ok(directory)
}

async fn open_shared(
    EtcdConfig { endpoints, tls, prefix, stale_limit }: EtcdConfig,
    state: &StateDir,
    roots: &RootsFollower,
    readiness: &Readiness,
    scope: &Scope,
) -> Result<Directory, Failure> {
    let tls = match tls {
        None => None,
        Some(EtcdTls { roots: trusted, certificate }) => {
            let certificate =
                certificates::follow(ReloadedFile::EtcdCertificate, "etcd", certificate, scope)?;
            Some(roots.etcd(&trusted, certificate)?)
        }
    };
    // The file of the embedded store would be locked.
    let lock = state.lock()?;
    scope.spawn_background(async move {
        let _lock = lock;
        pending().await
    });
    let client = etcd::Client::new(endpoints, tls, scope.clone());
    let mut _waiting = readiness.lost_because(PART, NO_ANSWER);
    loop {
        let (why, error) =
            match Directory::open_shared(client.clone(), prefix.clone(), stale_limit, scope.clone()).await {
                Ok(directory) => {
                    info!(prefix, "the records are shared in etcd");
                    return Ok(directory);
                }
                Err(error @ StoreError::Etcd(_)) => (NO_ANSWER.to_owned(), error),
                Err(error @ StoreError::Importing(_)) => (error.to_string(), error),
                Err(error) => return Err(error.into()),
            };
        _waiting = readiness.lost_because(PART, why);
        warn!(error = %error_chain(&error), "waiting for etcd, because its records are needed to begin");
        tokio::select! {
            () = sleep(OPEN_AGAIN) => {}
            () = scope.draining() => return Err(StoreError::Stopping.into()),
        }
    }
}

/// Keeps readiness in step with the age of memory as long as it is polled.
async fn follow(directory: Directory, readiness: Readiness) {
    let mut looks = interval(LOOK_EVERY);
    let (mut last, mut has_fault) = (Freshness::Fresh, false);
    let mut _guards = (None, None);
    loop {
        looks.tick().await;
        let (now, fault) = (directory.freshness(), directory.fault());
        if (now, fault.is_some()) == (last, has_fault) {
            continue;
        }
        (last, has_fault) = (now, fault.is_some());
        let seconds = directory.age().as_secs();
        // The next guard is there before the last one goes.
        _guards = match (fault, now) {
            (Some(why), _) => (None, Some(readiness.lost_because(PART, why.to_owned()))),
            (None, Freshness::Stale | Freshness::Outdated) => {
                (None, Some(readiness.lost_because(PART, "no news from etcd for too long")))
            }
            (None, Freshness::Behind) => (Some(readiness.degraded(PART, "no news from etcd")), None),
            (None, Freshness::Fresh) => (None, None),
        };
        match now {
            Freshness::Fresh => info!("etcd answers again, and every change is known"),
            Freshness::Behind => {
                warn!(seconds, "no news from etcd: enrollment, renewal, changes and new clusters are refused")
            }
            Freshness::Stale => warn!(seconds, "no news from etcd for too long: nothing new is served"),
            Freshness::Outdated => warn!(seconds, "no news from etcd for too long: what still ran is ended"),
        }
    }
}
