//! A caller by its certificate: the common name is the user, each organization a group.

use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;
use trust::serial_text;
use x509_parser::prelude::{AttributeTypeAndValue, FromDer as _, X509Certificate};

use super::credential::Credential;
use super::name::{NameError, Prefixes};

/// Why a caller's certificate, which its CA signed, is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// Not X.509 as we read it.
    #[error("the certificate cannot be read")]
    Unreadable,
    /// It ended, perhaps while its connection lived.
    #[error("the certificate has expired")]
    Expired,
    /// It begins later.
    #[error("the certificate is not valid yet")]
    NotYetValid,
    /// None or several.
    #[error("the certificate has not exactly one common name")]
    CommonName,
    /// Of a kind that is not Unicode, or not valid.
    #[error("a name in the certificate is not UTF-8")]
    Text,
    /// By its URI it is an agent's, a server's or an administrator's.
    #[error("the certificate's URI names another role than a caller")]
    Role,
    /// A user or a group that cannot be.
    #[error(transparent)]
    Name(NameError),
}

/// When a certificate holds: both ends are within, in seconds of Unix time (RFC 5280, section 4.1.2.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Validity {
    not_before: i64,
    not_after: i64,
}

impl Validity {
    pub(super) fn from_certificate(certificate: &X509Certificate<'_>) -> Self {
        let validity = certificate.validity();
        Self { not_before: validity.not_before.timestamp(), not_after: validity.not_after.timestamp() }
    }

    /// The handshake checked this too, but a connection may outlive its certificate.
    pub(super) fn holds(&self, now: SystemTime) -> Result<(), CertificateError> {
        let now = unix_seconds(now).ok_or(CertificateError::NotYetValid)?;
        if now < self.not_before {
            return Err(CertificateError::NotYetValid);
        }
        if now > self.not_after {
            return Err(CertificateError::Expired);
        }
        Ok(())
    }
}

/// User and groups of a certificate, with their prefixes.
pub(super) fn subject(
    certificate: &X509Certificate<'_>,
    prefixes: &Prefixes,
) -> Result<(String, Vec<String>), CertificateError> {
    let user = common_name(certificate)?;
    let groups: Vec<&str> = certificate.subject().iter_organization().map(text).collect::<Result<_, _>>()?;
    prefixes.apply(user, &groups).map_err(CertificateError::Name)
}

/// The one name of whom a certificate is about.
pub(super) fn common_name<'a>(certificate: &'a X509Certificate<'_>) -> Result<&'a str, CertificateError> {
    let mut common_names = certificate.subject().iter_common_name();
    let (Some(name), None) = (common_names.next(), common_names.next()) else {
        return Err(CertificateError::CommonName);
    };
    text(name)
}

/// What a certificate is as a credential.
pub(super) fn credential(certificate: &X509Certificate<'_>) -> Credential {
    let Validity { not_before, not_after } = Validity::from_certificate(certificate);
    Credential {
        id: serial_text(certificate).into(),
        issued: moment(not_before),
        expires: moment(not_after.saturating_add(1)),
    }
}

/// The fields of a certificate, if these bytes are exactly one.
pub(super) fn read<'a>(certificate: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    let (rest, certificate) = X509Certificate::from_der(certificate).ok()?;
    rest.is_empty().then_some(certificate)
}

fn text<'a>(attribute: &AttributeTypeAndValue<'a>) -> Result<&'a str, CertificateError> {
    attribute.as_str().map_err(|_| CertificateError::Text)
}

/// Before 1970 nothing was ever valid; after the end of what this system can tell, nothing ever ends.
fn moment(seconds: i64) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds.try_into().unwrap_or_default()))
}

fn unix_seconds(time: SystemTime) -> Option<i64> {
    time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs().try_into().ok()
}
