//! Reads a caller's certificate or token, and checks it before it goes into a kubeconfig.

use std::path::{Path, PathBuf};

use proto::spiffe::{self, AgentId};
use time::OffsetDateTime;
use trust::Role;

use super::writer::{ExecBody, UserBody, base64};
use crate::files::{self, AbsolutePathError, ReadError};
use crate::pem::{self, PemError};
use crate::settings::GatewayCredential;

/// Longest bearer token. A request head with it still fits the limits of common servers.
const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// The error if a credential cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialError {
    #[error(transparent)]
    Pem(#[from] PemError),
    #[error(
        "the key {key} does not belong to the certificate {certificate}; pass the pair that was issued together"
    )]
    Mismatch { certificate: PathBuf, key: PathBuf },
    #[error("the certificate {0} has expired on {1}; have a new one issued with `tombolo ca issue caller`")]
    Expired(PathBuf, OffsetDateTime),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(
        "{certificate} is the certificate of another role, {role} ({uri}); a caller's is needed: tombolo ca issue caller"
    )]
    OtherRole { certificate: PathBuf, role: Role, uri: String },
    #[error(
        "the token file {0} is empty; it must hold one token, as `tombolo user token create --out FILE` writes it"
    )]
    EmptyToken(PathBuf),
    #[error("the token file {0} has more than one line; it must hold one token and nothing else")]
    ManyLines(PathBuf),
    #[error("the token in {0} has a character that a header may not carry; use visible ASCII without spaces")]
    UnsafeToken(PathBuf),
    #[error("the token in {0} is longer than {max} bytes", max = TOKEN_BYTES_MAX)]
    LongToken(PathBuf),
    #[error(transparent)]
    Path(#[from] AbsolutePathError),
}

/// A caller's certificate and key, which belong together.
pub(crate) struct CertificateAndKey {
    /// The chain in PEM, the caller's own certificate first.
    pub(crate) certificates: String,
    /// The private key in PEM.
    pub(crate) key: String,
    /// The time at which the caller's own certificate expires.
    pub(crate) end: OffsetDateTime,
}

/// The `user` entry of a kubeconfig whose credential comes from `tombolo credential`, run as `command`. Files that are here are
/// checked. They may also be on another machine, or be made in a pod.
pub(super) fn exec_user(
    credential: &GatewayCredential,
    command: String,
) -> Result<UserBody, CredentialError> {
    let mut args = vec!["credential".to_owned()];
    let mut push = |flag: &str, file: &Path| -> Result<(), AbsolutePathError> {
        args.extend([flag.to_owned(), files::absolute(file)?]);
        Ok(())
    };
    match credential {
        GatewayCredential::Certificate { certificate, key } => {
            if certificate.exists() || key.exists() {
                CertificateAndKey::read(certificate, key)?;
            }
            push("--cert", certificate)?;
            push("--key", key)?;
        }
        GatewayCredential::TokenFile(file) => {
            if file.exists() {
                bearer_token(file)?;
            }
            push("--token-file", file)?;
        }
    }
    Ok(UserBody { exec: Some(ExecBody::new(command, args)), ..UserBody::default() })
}

/// The `user` entry of a kubeconfig, with the credential embedded or with the paths of its files.
pub(super) fn user(credential: &GatewayCredential, embedded: bool) -> Result<UserBody, CredentialError> {
    match credential {
        GatewayCredential::Certificate { certificate, key } => certificate_user(certificate, key, embedded),
        GatewayCredential::TokenFile(file) => token_user(file, embedded),
    }
}

impl CertificateAndKey {
    /// Reads both files, and checks that they belong together, are a caller's, and have not expired.
    ///
    /// # Errors
    /// [`CredentialError`] names the file and what to do.
    pub(crate) fn read(certificate: &Path, key: &Path) -> Result<Self, CredentialError> {
        let certificates = pem::read_certificates(certificate)?;
        let private = pem::read_key(key)?;
        // The leaf comes first, as in a TLS handshake.
        let leaf = certificates.ders.first().and_then(|leaf| pem::parse_x509(leaf));
        let Some(leaf) = leaf.filter(|leaf| pem::is_for_key(leaf, &private.pair)) else {
            return Err(CredentialError::Mismatch {
                certificate: certificate.to_owned(),
                key: key.to_owned(),
            });
        };
        for uri in pem::uris(&leaf) {
            if let Some(role) = other_role(&uri) {
                return Err(CredentialError::OtherRole { certificate: certificate.to_owned(), role, uri });
            }
        }
        let end = leaf.validity().not_after.to_datetime();
        if end < OffsetDateTime::now_utc() {
            return Err(CredentialError::Expired(certificate.to_owned(), end));
        }
        Ok(Self { certificates: certificates.text.clone(), key: private.text, end })
    }
}

fn certificate_user(certificate: &Path, key: &Path, embedded: bool) -> Result<UserBody, CredentialError> {
    let read = CertificateAndKey::read(certificate, key)?;
    Ok(if embedded {
        UserBody {
            client_certificate_data: Some(base64(&read.certificates)),
            client_key_data: Some(base64(&read.key)),
            ..UserBody::default()
        }
    } else {
        UserBody {
            client_certificate: Some(files::absolute(certificate)?),
            client_key: Some(files::absolute(key)?),
            ..UserBody::default()
        }
    })
}

/// The role of a certificate with this URI, if it is one of ours and not a caller's. Callers may have other URIs.
fn other_role(uri: &str) -> Option<Role> {
    let domain = uri.strip_prefix("spiffe://")?.split('/').next()?;
    let roles = [
        (Role::Agent, AgentId::parse(uri, domain).is_ok()),
        (Role::Server, spiffe::parse_server(uri, domain).is_ok()),
        (Role::Admin, spiffe::parse_admin(uri, domain).is_ok()),
        (Role::Peer, spiffe::parse_peer(uri, domain).is_ok()),
    ];
    roles.into_iter().find(|(_, is_its)| *is_its).map(|(role, _)| role)
}

fn token_user(file: &Path, embedded: bool) -> Result<UserBody, CredentialError> {
    let token = bearer_token(file)?;
    Ok(if embedded {
        UserBody { token: Some(token), ..UserBody::default() }
    } else {
        UserBody { token_file: Some(files::absolute(file)?), ..UserBody::default() }
    })
}

/// Reads a file that holds one bearer token, with or without a line end.
pub(crate) fn bearer_token(file: &Path) -> Result<String, CredentialError> {
    let text = files::read(file)?;
    let token = text.strip_suffix('\n').unwrap_or(&text);
    let token = token.strip_suffix('\r').unwrap_or(token);
    if token.is_empty() {
        return Err(CredentialError::EmptyToken(file.to_owned()));
    }
    if token.contains('\n') {
        return Err(CredentialError::ManyLines(file.to_owned()));
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(CredentialError::UnsafeToken(file.to_owned()));
    }
    if token.len() > TOKEN_BYTES_MAX {
        return Err(CredentialError::LongToken(file.to_owned()));
    }
    Ok(token.to_owned())
}
