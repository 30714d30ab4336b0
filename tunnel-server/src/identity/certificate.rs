//! A caller's certificate: the common name is the user, each organization a group.

use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;
use trust::serial_text;
use x509_parser::prelude::{AttributeTypeAndValue, FromDer as _, X509Certificate};

use super::credential::Credential;
use super::name::{NameError, Prefixes};

/// The reason why a caller's certificate is refused although its CA has signed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// It cannot be parsed as X.509.
    #[error("the certificate cannot be read")]
    Unreadable,
    /// It has expired, perhaps during its connection.
    #[error("the certificate has expired")]
    Expired,
    /// It is not valid yet.
    #[error("the certificate is not valid yet")]
    NotYetValid,
    /// It has no common name, or several.
    #[error("the certificate has not exactly one common name")]
    CommonName,
    /// A name is not Unicode, or not valid.
    #[error("a name in the certificate is not UTF-8")]
    Text,
    /// Its URI names an agent, a server or an administrator.
    #[error("the certificate's URI names another role than a caller")]
    Role,
    /// A user or group name is invalid.
    #[error(transparent)]
    Name(NameError),
}

/// The validity of a certificate: both ends are included, in seconds of Unix time (RFC 5280, section
/// 4.1.2.5).
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

    /// Checks the validity at `now`. The handshake checked it too, but a connection can outlive its
    /// certificate.
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

/// The user and groups of a certificate, with their prefixes.
pub(super) fn subject(
    certificate: &X509Certificate<'_>,
    prefixes: &Prefixes,
) -> Result<(String, Vec<String>), CertificateError> {
    let user = common_name(certificate)?;
    let groups: Vec<&str> = certificate.subject().iter_organization().map(text).collect::<Result<_, _>>()?;
    prefixes.apply(user, &groups).map_err(CertificateError::Name)
}

/// The only common name of a certificate's subject.
pub(super) fn common_name<'a>(certificate: &'a X509Certificate<'_>) -> Result<&'a str, CertificateError> {
    let mut common_names = certificate.subject().iter_common_name();
    let (Some(name), None) = (common_names.next(), common_names.next()) else {
        return Err(CertificateError::CommonName);
    };
    text(name)
}

/// The credential that a certificate is.
pub(super) fn credential(certificate: &X509Certificate<'_>) -> Credential {
    let Validity { not_before, not_after } = Validity::from_certificate(certificate);
    Credential {
        id: serial_text(certificate).into(),
        issued: moment(not_before),
        expires: moment(not_after.saturating_add(1)),
    }
}

/// The fields of a certificate, if these bytes are exactly one certificate.
pub(super) fn read<'a>(certificate: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    let (rest, certificate) = X509Certificate::from_der(certificate).ok()?;
    rest.is_empty().then_some(certificate)
}

fn text<'a>(attribute: &AttributeTypeAndValue<'a>) -> Result<&'a str, CertificateError> {
    attribute.as_str().map_err(|_| CertificateError::Text)
}

/// The time of these Unix seconds, at least 1970; `None` if the system cannot represent it.
fn moment(seconds: i64) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds.try_into().unwrap_or_default()))
}

fn unix_seconds(time: SystemTime) -> Option<i64> {
    time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs().try_into().ok()
}
