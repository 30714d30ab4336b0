//! Waits until this controller holds the Lease of all controllers of a manager.

use std::time::Duration;

use kube_lease_manager::{LeaseManagerBuilder, LeaseManagerError};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::host::Host;

/// The time after which the Lease of a controller that says nothing more is free, in seconds.
pub const LEASE_SECONDS: u64 = 15;

/// So long before the end of its Lease the controller renews it, in seconds.
const RENEW_BEFORE_SECONDS: u64 = 5;

/// Longest time for which the end waits until the Lease is free.
const RELEASE_MAX: Duration = Duration::from_secs(5);

/// The Lease, which is held or waited for.
pub struct Leadership {
    /// True as long as this controller holds the Lease.
    pub is_leader: watch::Receiver<bool>,
    task: JoinHandle<kube_lease_manager::Result<kube_lease_manager::LeaseManager>>,
}

impl Leadership {
    /// Begins to wait for the Lease of this name.
    ///
    /// # Errors
    /// The host cluster does not answer, or forbids Leases.
    pub async fn begin(host: &Host, lease: &str, identity: &str) -> Result<Self, LeaseManagerError> {
        let manager = LeaseManagerBuilder::new(host.client.clone(), lease)
            .with_namespace(&host.namespace)
            .with_identity(identity)
            .with_duration(LEASE_SECONDS)
            .with_grace(RENEW_BEFORE_SECONDS)
            .build()
            .await?;
        let (is_leader, task) = manager.watch().await;
        Ok(Self { is_leader, task })
    }

    /// Frees the Lease, so that another controller goes on at once.
    pub async fn release(self) {
        drop(self.is_leader);
        // If it takes longer, the Lease ends by itself.
        let _ = timeout(RELEASE_MAX, self.task).await;
    }
}
