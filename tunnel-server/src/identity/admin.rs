//! An administrator by its certificate: one URI names who this is.

use std::time::SystemTime;

use rustls_pki_types::CertificateDer;
use trust::names::Label;
use trust::peer::{self, NotOfRole};

use super::leaf::{LeafTimes, leaf_times};
use super::verified::Verified;

/// An administrator's certificate, verified and read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminCertificate {
    /// Whom it names.
    pub name: Label,
    /// Its serial number in lower-case hexadecimal.
    pub serial: String,
    /// When it was issued.
    pub issued: SystemTime,
    /// The first moment at which it holds no more.
    pub ends: SystemTime,
}

/// Why a certificate, which the administrators' CA signed, is not an administrator's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAnAdmin {
    /// None was shown.
    #[error("no certificate was shown")]
    NoCertificate,
    /// It is not exactly as an administrator's is issued.
    #[error(transparent)]
    Role(#[from] NotOfRole),
}

/// The administrator's certificate at the head of a verified `chain`.
///
/// # Errors
/// [`NotAnAdmin`]: whatever is not exactly as `tombolo ca issue admin` makes it is refused.
pub fn admin_identity(
    chain: &[CertificateDer<'_>],
    trust_domain: &str,
) -> Result<Verified<AdminCertificate>, NotAnAdmin> {
    let leaf = chain.first().ok_or(NotAnAdmin::NoCertificate)?;
    let name = peer::admin(leaf, trust_domain)?;
    let LeafTimes { serial, issued, ends } = leaf_times(leaf)?;
    Ok(Verified::role(AdminCertificate { name, serial, issued, ends }))
}
