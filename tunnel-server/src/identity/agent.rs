//! An agent by its certificate: one URI names the cluster and which of its agents this is.

use std::time::{Duration, SystemTime};

use proto::spiffe::AgentId;
use rustls_pki_types::CertificateDer;
use trust::peer::{self, NotOfRole};
use trust::{BACKDATED, Serial};
use x509_parser::prelude::X509Certificate;

use super::certificate::read;

/// An agent's certificate, verified and read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCertificate {
    /// Whom it names.
    pub agent: AgentId,
    /// Its serial number in lower-case hexadecimal.
    pub serial: String,
    /// When it was issued.
    pub issued: SystemTime,
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
) -> Result<AgentCertificate, NotAnAgent> {
    let leaf = chain.first().ok_or(NotAnAgent::NoCertificate)?;
    let agent = peer::agent(leaf, trust_domain)?;
    let leaf = read(leaf).ok_or(NotOfRole::Unreadable)?;
    let issued = issued(&leaf).ok_or(NotOfRole::Unreadable)?;
    // Ours have 128 bits; a longer one is somebody else's, and is told as it is.
    let serial = Serial::of(&leaf).map_or_else(|| format!("{:x}", leaf.serial), |serial| serial.to_string());
    Ok(AgentCertificate { agent, serial, issued })
}

/// Certificates are dated back by those who issue them.
fn issued(leaf: &X509Certificate<'_>) -> Option<SystemTime> {
    let begins = u64::try_from(leaf.validity().not_before.timestamp()).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(begins) + BACKDATED)
}
