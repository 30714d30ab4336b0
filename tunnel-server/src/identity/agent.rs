//! An agent by its certificate: one URI names the cluster and which of its agents this is.

use std::time::{Duration, SystemTime};

use proto::spiffe::AgentId;
use rustls_pki_types::CertificateDer;
use trust::peer::{self, NotOfRole};
use trust::{BACKDATED, Serial};
use x509_parser::time::ASN1Time;

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
    /// When it ends.
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
) -> Result<AgentCertificate, NotAnAgent> {
    let leaf = chain.first().ok_or(NotAnAgent::NoCertificate)?;
    let agent = peer::agent(leaf, trust_domain)?;
    let leaf = read(leaf).ok_or(NotOfRole::Unreadable)?;
    let validity = leaf.validity();
    // Certificates are dated back by those who issue them.
    let issued = time(validity.not_before).map(|begins| begins + BACKDATED).ok_or(NotOfRole::Unreadable)?;
    let ends = time(validity.not_after).ok_or(NotOfRole::Unreadable)?;
    // Ours have 128 bits; a longer one is somebody else's, and is told as it is.
    let serial = Serial::of(&leaf).map_or_else(|| format!("{:x}", leaf.serial), |serial| serial.to_string());
    Ok(AgentCertificate { agent, serial, issued, ends })
}

fn time(time: ASN1Time) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(time.timestamp()).ok()?))
}
