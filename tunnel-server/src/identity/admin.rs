//! An administrator's certificate: one URI contains the administrator's name.

use std::time::SystemTime;

use rustls_pki_types::CertificateDer;
use trust::identity::{self, NotOfRole};
use trust::names::Label;

use super::leaf::{LeafTimes, leaf_times};
use super::verified::Verified;

/// An administrator's certificate, verified and read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminCertificate {
    /// The name in its URI.
    pub name: Label,
    /// The serial number in lower-case hexadecimal.
    pub serial: String,
    /// The time at which it was issued.
    pub issued: SystemTime,
    /// The first moment at which it is no longer valid.
    pub ends: SystemTime,
}

/// The reason why a certificate of the administrators' CA is not an administrator's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAnAdmin {
    /// The client showed no certificate.
    #[error("no certificate was shown")]
    NoCertificate,
    /// It is not exactly as administrators' certificates are issued.
    #[error(transparent)]
    Role(#[from] NotOfRole),
}

/// Reads the administrator's certificate at the head of a verified `chain`.
///
/// # Errors
/// [`NotAnAdmin`]: it is not exactly as `tombolo ca issue admin` makes it.
pub fn admin_identity(
    chain: &[CertificateDer<'_>],
    trust_domain: &str,
) -> Result<Verified<AdminCertificate>, NotAnAdmin> {
    let leaf = chain.first().ok_or(NotAnAdmin::NoCertificate)?;
    let name = identity::admin(leaf, trust_domain)?;
    let LeafTimes { serial, issued, ends } = leaf_times(leaf)?;
    Ok(Verified::role(AdminCertificate { name, serial, issued, ends }))
}
