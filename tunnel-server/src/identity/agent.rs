//! An agent by its certificate: one URI names the cluster and which of its agents this is.

use proto::spiffe::{AgentId, SpiffeError};
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::GeneralName;

use super::certificate::read;

/// Why a certificate, which the agents' CA signed, is not an agent's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAnAgent {
    /// None was shown.
    #[error("no certificate was shown")]
    NoCertificate,
    /// Not X.509 as we read it.
    #[error("the certificate cannot be read")]
    Unreadable,
    /// It is a CA's.
    #[error("the certificate is a CA's")]
    Authority,
    /// It is for something else, or for anything.
    #[error("the certificate is not for client authentication alone")]
    Usage,
    /// No name, several, or one of another kind.
    #[error("the certificate's alternative names are not exactly one URI")]
    Names,
    /// A URI that is no agent's.
    #[error(transparent)]
    Uri(#[from] SpiffeError),
}

/// The agent that the first certificate of a verified `chain` names.
///
/// # Errors
///
/// [`NotAnAgent`]: whatever is not exactly as enrolled is refused.
pub fn agent_identity(chain: &[CertificateDer<'_>], trust_domain: &str) -> Result<AgentId, NotAnAgent> {
    let leaf = read(chain.first().ok_or(NotAnAgent::NoCertificate)?).ok_or(NotAnAgent::Unreadable)?;
    if leaf.is_ca() {
        return Err(NotAnAgent::Authority);
    }
    let usage =
        leaf.extended_key_usage().map_err(|_| NotAnAgent::Unreadable)?.ok_or(NotAnAgent::Usage)?.value;
    if !usage.client_auth || usage.server_auth || usage.any {
        return Err(NotAnAgent::Usage);
    }
    let names =
        leaf.subject_alternative_name().map_err(|_| NotAnAgent::Unreadable)?.ok_or(NotAnAgent::Names)?;
    let [GeneralName::URI(uri)] = names.value.general_names.as_slice() else {
        return Err(NotAnAgent::Names);
    };
    Ok(AgentId::parse(uri, trust_domain)?)
}
