//! An agent's certificate: one URI contains the cluster and the instance.

use std::time::SystemTime;

use proto::spiffe::AgentId;
use rustls_pki_types::CertificateDer;
use trust::identity::{self, NotOfRole};

use super::leaf::{LeafTimes, leaf_times};
use super::verified::Verified;

/// An agent's certificate, verified and read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCertificate {
    /// The agent in its URI.
    pub agent: AgentId,
    /// The serial number in lower-case hexadecimal.
    pub serial: String,
    /// The time at which it was issued.
    pub issued: SystemTime,
    /// The first moment at which it is no longer valid.
    pub ends: SystemTime,
}

/// The reason why a certificate of the agents' CA is not an agent's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAnAgent {
    /// The client showed no certificate.
    #[error("no certificate was shown")]
    NoCertificate,
    /// It is not exactly as agents' certificates are issued.
    #[error(transparent)]
    Role(#[from] NotOfRole),
}

/// Reads the agent's certificate at the head of a verified `chain`.
///
/// # Errors
///
/// [`NotAnAgent`]: it is not exactly as enrollment issues it.
pub fn agent_identity(
    chain: &[CertificateDer<'_>],
    trust_domain: &str,
) -> Result<Verified<AgentCertificate>, NotAnAgent> {
    let leaf = chain.first().ok_or(NotAnAgent::NoCertificate)?;
    let agent = identity::agent(leaf, trust_domain)?;
    let LeafTimes { serial, issued, ends } = leaf_times(leaf)?;
    Ok(Verified::role(AgentCertificate { agent, serial, issued, ends }))
}
