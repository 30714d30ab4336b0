//! The errors of a TLS handshake with the API server, and the codes that tell the server what was wrong.

use std::io;
use std::sync::Arc;

use api_servers::ServerCertificateError;
use proto::AbortCode;
use rustls::{AlertDescription, CertificateError, Error};

use super::error::ApiServerError;
use super::material::ApiServerAddress;

/// The error of a handshake that failed.
pub(super) fn handshake_error(target: &ApiServerAddress, error: io::Error) -> ApiServerError {
    let authority = target.authority.clone();
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match tls {
        None => ApiServerError::Unreachable { authority, source: Arc::new(error) },
        Some(Error::AlertReceived(alert)) if concerns_client_certificate(*alert) => {
            ApiServerError::NoCredential { authority, source: Arc::new(Error::AlertReceived(*alert)) }
        }
        Some(tls) => {
            ApiServerError::Untrusted { authority, cause: untrusted_code(tls), source: Arc::new(tls.clone()) }
        }
    }
}

/// Returns true if the server's alert is about the agent's certificate.
fn concerns_client_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRequired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::UnknownCA
    )
}

/// The code that tells the server why the API server's certificate was refused.
fn untrusted_code(error: &Error) -> AbortCode {
    let Error::InvalidCertificate(error) = error else { return AbortCode::ApiServerUntrusted };
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the library's list may grow, and its other causes have no advice of their own"
    )]
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => AbortCode::ApiServerUnknownIssuer,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            AbortCode::ApiServerWrongName
        }
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => AbortCode::ApiServerCertificateExpired,
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            AbortCode::ApiServerWeakCertificate
        }
        CertificateError::Other(other) => match other.0.downcast_ref::<ServerCertificateError>() {
            Some(ServerCertificateError::CaExpired | ServerCertificateError::CaNotValidYet) => {
                AbortCode::ApiServerCertificateExpired
            }
            Some(ServerCertificateError::ShortKey(_)) => AbortCode::ApiServerWeakCertificate,
            Some(ServerCertificateError::NotForServers) | None => AbortCode::ApiServerUntrusted,
        },
        _ => AbortCode::ApiServerUntrusted,
    }
}
