//! An agent by its certificate: one URI names the cluster and which of its agents this is.

use std::time::SystemTime;

use proto::spiffe::AgentId;
use rustls_pki_types::CertificateDer;
use trust::peer::{self, NotOfRole};

use super::leaf::{LeafTimes, leaf_times};
use super::verified::Verified;

/// An agent's certificate, verified and read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCertificate {
    /// Whom it names.
    pub agent: AgentId,
    /// Its serial number in lower-case hexadecimal.
    pub serial: String,
    /// When it was issued.
    pub issued: SystemTime,
    /// From when on it does not hold.
    pub ends: SystemTime,
}

/// Why a certificate, which the agents' CA signed, is not an agent's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAnAgent {
    /// None was shown.
    #[error("no certificate was shown")]
    NoCertificate,
    /// It is not exactly as an agent's is issued.
    #[error(transparent)]
    Role(#[from] NotOfRole),
}

/// The agent's certificate at the head of a verified `chain`.
///
/// # Errors
///
/// [`NotAnAgent`]: whatever is not exactly as enrolled is refused.
pub fn agent_identity(
    chain: &[CertificateDer<'_>],
    trust_domain: &str,
) -> Result<Verified<AgentCertificate>, NotAnAgent> {
    let leaf = chain.first().ok_or(NotAnAgent::NoCertificate)?;
    let agent = peer::agent(leaf, trust_domain)?;
    let LeafTimes { serial, issued, ends } = leaf_times(leaf)?;
    Ok(Verified::role(AgentCertificate { agent, serial, issued, ends }))
}
