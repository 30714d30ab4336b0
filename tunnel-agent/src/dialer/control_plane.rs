//! The description of the cluster's control plane that servers receive, as it changes.

use proto::wire::{Endpoints, ServedCertificate};
use tokio::sync::watch;

/// The control plane's addresses, the serving certificates of its API servers, and their version. Each clone sees every
/// change.
#[derive(Debug, Clone)]
pub struct ControlPlane {
    endpoints: watch::Receiver<Vec<String>>,
    certificates: watch::Receiver<Vec<ServedCertificate>>,
    version: watch::Receiver<String>,
}

impl ControlPlane {
    /// Joins these sources, whose senders are elsewhere in the agent.
    #[must_use]
    pub fn new(
        endpoints: watch::Receiver<Vec<String>>,
        certificates: watch::Receiver<Vec<ServedCertificate>>,
        version: watch::Receiver<String>,
    ) -> Self {
        Self { endpoints, certificates, version }
    }

    /// The description as it is now.
    pub(super) fn current(&self) -> Endpoints {
        let (addresses, certificates) = (self.endpoints.borrow().clone(), self.certificates.borrow().clone());
        Endpoints { addresses, certificates, kubernetes_version: self.version.borrow().clone() }
    }

    /// Waits for a change and returns the new description. Waits for ever once all senders are gone.
    /// Cancel-safe.
    pub(super) async fn changed(&mut self) -> Endpoints {
        // All arms are cancel-safe: a change that came is kept.
        tokio::select! {
            Ok(()) = self.endpoints.changed() => {}
            Ok(()) = self.certificates.changed() => {}
            Ok(()) = self.version.changed() => {}
            else => std::future::pending().await,
        }
        self.current()
    }
}
