//! Serves pods, and tries again as long as this host does not allow it. The worker's own programs are served
//! meanwhile.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use daemon::listen::BindError;
use daemon::{Degraded, Readiness, Scope, error_chain};
use tokio::time::timeout;
use tracing::error;

use crate::balancer::Balancer;
use crate::handover::SteeringFacts;
use crate::pods::{PodAccess, PodAddress, PodError, PodSteering};
use crate::relay::{BoundRelay, Relays};

/// The part of the process's readiness.
const PART: &str = "pods";

/// The pause after a failure.
const RETRY_EVERY: Duration = Duration::from_secs(10);

/// Pods are not served, or not by the Service's address.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error(transparent)]
    Pods(#[from] PodError),
    #[error(transparent)]
    Bind(#[from] BindError),
}

/// The parts that another process has handed over, so that they are not made anew.
#[derive(Debug, Default)]
pub(super) struct TakenPods {
    /// The address, at which a listener accepts.
    address: Option<Arc<PodAddress>>,
    steering: Option<PodSteering>,
}

impl TakenPods {
    /// Takes the parts that `access` configures. Others end.
    pub(super) fn new(
        access: &PodAccess,
        address: Option<Arc<PodAddress>>,
        steering: Option<(SteeringFacts, OwnedFd)>,
    ) -> Self {
        let address = address.filter(|address| address.access().address == access.address);
        let steering = steering.filter(|_| address.is_some());
        let steering = steering.and_then(|(facts, socket)| PodSteering::take_over(facts, socket, access));
        Self { address, steering }
    }
}

/// Serves pods until the drain. Then packets are no longer led here, and open connections end as all do.
pub(super) async fn serve_pods(
    access: PodAccess,
    taken: TakenPods,
    relays: Relays,
    balancer: Balancer,
    readiness: Readiness,
    scope: Scope,
) {
    let mut report = Report { readiness, degraded: None };
    let TakenPods { address, steering } = taken;
    let address = match address {
        Some(address) => address,
        None => {
            let bound = report.retry(&scope, || bind(&access, &relays, &balancer, &scope)).await;
            let Some(address) = bound else { return };
            address
        }
    };
    let steering = match steering {
        Some(steering) => Some(steering),
        None => report.retry(&scope, || Ok(address.steer()?)).await.flatten(),
    };
    drop(address);
    if let Some(steering) = steering {
        relays.keep(steering, &scope).await;
    }
}

/// Adds the address to this host, and accepts callers there.
fn bind(
    access: &PodAccess,
    relays: &Relays,
    balancer: &Balancer,
    scope: &Scope,
) -> Result<Arc<PodAddress>, ServeError> {
    let address = Arc::new(PodAddress::add(access.clone())?);
    let relay = BoundRelay::bind_for_pods(Arc::clone(&address))?;
    scope.spawn(relay.run(relays.clone(), balancer.clone(), scope.clone()));
    Ok(address)
}

/// The report of failures, in the log and at `/readyz`.
struct Report {
    readiness: Readiness,
    degraded: Option<(String, Degraded)>,
}

impl Report {
    /// Tries until it succeeds; `None` if the drain begins before. Each other failure is logged once.
    async fn retry<T>(
        &mut self,
        scope: &Scope,
        mut attempt: impl FnMut() -> Result<T, ServeError>,
    ) -> Option<T> {
        loop {
            match attempt() {
                Ok(done) => {
                    self.degraded = None;
                    return Some(done);
                }
                Err(error) => self.failed(&error_chain(&error).to_string()),
            }
            if timeout(RETRY_EVERY, scope.draining()).await.is_ok() {
                return None;
            }
        }
    }

    fn failed(&mut self, message: &str) {
        if self.degraded.as_ref().is_some_and(|(last, _)| last == message) {
            return;
        }
        error!(error = message, "pods are not served; trying again");
        let degraded = self.readiness.degraded(PART, "pods are not served, see the log");
        self.degraded = Some((message.to_owned(), degraded));
    }
}
