//! An agent by its certificate: one URI names the cluster and which of its agents this is.

use proto::spiffe::AgentId;
use rustls_pki_types::CertificateDer;
use trust::peer::{self, NotOfRole};

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

/// The agent that the first certificate of a verified `chain` names.
///
/// # Errors
///
/// [`NotAnAgent`]: whatever is not exactly as enrolled is refused.
pub fn agent_identity(chain: &[CertificateDer<'_>], trust_domain: &str) -> Result<AgentId, NotAnAgent> {
    let leaf = chain.first().ok_or(NotAnAgent::NoCertificate)?;
    Ok(peer::agent(leaf, trust_domain)?)
}
