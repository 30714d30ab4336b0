//! The state that all connections of the enrollment listener share.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use audit::Log;
use tokio::sync::watch;
use trust::Signer;

use super::rate_limits::RateLimits;
use crate::directory::Directory;
use crate::identity::oidc::pod::Verifier;
use crate::listener::failures::Failures;

/// What is issued at the shared, and for how long.
#[derive(Debug, Clone)]
pub struct EnrollmentSettings {
    /// Of all certificates; what pods' tokens must be meant for begins with it.
    pub trust_domain: String,
    /// How long a certificate holds.
    pub lifetime: Duration,
    /// How long after its end its key still gets the next one.
    pub grace: Duration,
    /// The trust bundle that agents are given, now and later.
    pub trust_bundle: watch::Receiver<Arc<[u8]>>,
}

pub(super) struct SharedEnrollment {
    pub(super) directory: Directory,
    pub(super) signer: Arc<dyn Signer>,
    pub(super) settings: EnrollmentSettings,
    /// Of tokens and proofs.
    pub(super) failures: Failures,
    /// Of pods, apart from those: a hundred pods whose token was used already hold up nobody who proves itself otherwise.
    pub(super) pod_failures: Failures,
    /// Of who is known.
    pub(super) rate_limits: RateLimits,
    pub(super) verifier: Verifier,
    pub(super) log: Log,
}

/// Whose failures they are.
pub(super) fn source(peer: SocketAddr) -> IpAddr {
    peer.ip().to_canonical()
}
