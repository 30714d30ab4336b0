//! The state that all connections of the enrollment listener share.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use audit::Log;
use tokio::sync::watch;
use trust::Signer;

use super::rate_limits::RateLimits;
use crate::clocks::Clocks;
use crate::directory::Directory;
use crate::identity::oidc::pod::Verifier;
use crate::listener::failed_attempts::FailedAttempts;

/// The settings of the certificates that are issued.
#[derive(Debug, Clone)]
pub struct EnrollmentSettings {
    /// The trust domain of all certificates. The audience of pods' tokens begins with it.
    pub trust_domain: String,
    /// The lifetime of a certificate.
    pub lifetime: Duration,
    /// The time after its end in which a certificate's key can still renew it.
    pub grace: Duration,
    /// The trust bundle for agents, with its later versions.
    pub trust_bundle: watch::Receiver<Arc<[u8]>>,
}

pub(super) struct SharedEnrollment {
    pub(super) directory: Directory,
    /// The newest value issues the next certificate.
    pub(super) signer: watch::Receiver<Arc<dyn Signer>>,
    pub(super) settings: EnrollmentSettings,
    /// FailedAttempts with tokens and proofs.
    pub(super) failures: FailedAttempts,
    /// FailedAttempts of pods. They are counted apart, so that a hundred pods with a used token do not block
    /// clients with another proof.
    pub(super) pod_failures: FailedAttempts,
    /// Rate limits of authenticated clients.
    pub(super) rate_limits: RateLimits,
    pub(super) verifier: Verifier,
    pub(super) clocks: Clocks,
    pub(super) log: Log,
}

/// The address to which failures of a client count.
pub(super) fn source(peer: SocketAddr) -> IpAddr {
    peer.ip().to_canonical()
}
