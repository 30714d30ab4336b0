//! What servers are told of the cluster's control plane, as it changes.

use proto::wire::{Endpoints, ServedCertificate};
use tokio::sync::watch;

/// Where the control plane answers, and what its API servers show there. Clones hear of every change themselves.
#[derive(Debug, Clone)]
pub struct ControlPlane {
    endpoints: watch::Receiver<Vec<String>>,
    certificates: watch::Receiver<Vec<ServedCertificate>>,
}

impl ControlPlane {
    /// Of both, as they are said elsewhere.
    #[must_use]
    pub fn new(
        endpoints: watch::Receiver<Vec<String>>,
        certificates: watch::Receiver<Vec<ServedCertificate>>,
    ) -> Self {
        Self { endpoints, certificates }
    }

    /// What is to be said now.
    pub(super) fn now(&self) -> Endpoints {
        let (addresses, certificates) = (self.endpoints.borrow().clone(), self.certificates.borrow().clone());
        Endpoints { addresses, certificates }
    }

    /// What is to be said, once it is something else; never, where nobody can change it any more. Cancel-safe.
    pub(super) async fn changed(&mut self) -> Endpoints {
        // Both arms are cancel-safe: a change that came is kept.
        tokio::select! {
            Ok(()) = self.endpoints.changed() => {}
            Ok(()) = self.certificates.changed() => {}
            else => std::future::pending().await,
        }
        self.now()
    }
}
