//! Makes and parses CA certificates, for roots and intermediates alike.

use std::time::SystemTime;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PublicKeyData as _, SerialNumber,
};
use rustls_pki_types::CertificateDer;
use time::{Duration, OffsetDateTime};
use x509_parser::extensions::ExtendedKeyUsage;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::names::TrustDomain;
use crate::role::Role;
use crate::serial::Serial;
use crate::signer::BACKDATED;

/// The reason why no CA was made.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// The system gave no random bytes.
    #[error("no random bytes for a key or a serial number")]
    Randomness,
    /// The clock is beyond the calendar.
    #[error("the certificate's beginning or end is not a date; check the clock")]
    Dates,
    /// The encoding or the signature failed.
    #[error("the certificate could not be made")]
    Make(#[from] rcgen::Error),
}

/// The reason why a certificate and a key are not a CA that can sign.
#[derive(Debug, thiserror::Error)]
pub enum NotACa {
    /// The bytes are not exactly one X.509 certificate.
    #[error("the certificate cannot be read")]
    Unreadable,
    /// It is a leaf, or a CA of another depth or purpose.
    #[error("the certificate is not one of {0} that may sign certificates")]
    Constraints(&'static str),
    /// The key belongs to another certificate.
    #[error("the key does not belong to the certificate; restore the pair from a backup")]
    Mismatch,
    /// The library rcgen cannot read the certificate.
    #[error("the certificate cannot be signed with")]
    Unusable(#[source] rcgen::Error),
}

/// Generates a key for a CA.
pub(crate) fn key() -> Result<KeyPair, MakeError> {
    Ok(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?)
}

/// A CA certificate before it is signed, with this many levels of CAs below it.
pub(crate) fn params(
    role: Role,
    domain: &TrustDomain,
    kind: &str,
    levels: u8,
    now: SystemTime,
    lasting: Duration,
) -> Result<CertificateParams, MakeError> {
    let mut params = CertificateParams::default();
    params.serial_number =
        Some(SerialNumber::from_slice(&Serial::random().ok_or(MakeError::Randomness)?.to_bytes()));
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, domain.as_str());
    params.distinguished_name.push(DnType::CommonName, format!("tombolo {role} {kind}"));
    (params.not_before, params.not_after) = dates(now, lasting).ok_or(MakeError::Dates)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(levels));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// The validity of a certificate that is made now.
pub(crate) fn dates(now: SystemTime, lasting: Duration) -> Option<(OffsetDateTime, OffsetDateTime)> {
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
    let now = OffsetDateTime::from_unix_timestamp(seconds.try_into().ok()?).ok()?;
    Some((now.checked_sub(BACKDATED.try_into().ok()?)?, now.checked_add(lasting)?))
}

/// Parses a certificate; `None` if the bytes are not exactly one.
pub(crate) fn parse<'a>(der: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    let (rest, certificate) = X509Certificate::from_der(der).ok()?;
    rest.is_empty().then_some(certificate)
}

/// Returns true if the certificate was made for this key.
pub(crate) fn belongs_to(certificate: &X509Certificate<'_>, key: &KeyPair) -> bool {
    certificate.public_key().raw == key.subject_public_key_info()
}

/// Returns true if a certificate is for the role's side of TLS and for no other purpose.
pub(crate) fn is_bound_to(usage: &ExtendedKeyUsage<'_>, role: Role) -> bool {
    let ExtendedKeyUsage { any, server_auth, client_auth, .. } = *usage;
    !any && server_auth == (role == Role::Server) && client_auth == (role != Role::Server)
}

/// The number of CA levels that a CA's certificate allows below it; `None` for a leaf, or without a path
/// length.
pub(crate) fn levels(certificate: &X509Certificate<'_>) -> Option<u32> {
    let constraints = certificate.basic_constraints().ok()??.value;
    let may_sign = certificate.key_usage().ok()??.value.key_cert_sign();
    (constraints.ca && may_sign).then_some(constraints.path_len_constraint).flatten()
}
