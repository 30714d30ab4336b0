//! A person's certificate or token, checked before it goes into a kubeconfig.

use std::path::{Path, PathBuf};

use time::OffsetDateTime;

use super::document::{User, base64};
use crate::files::{self, NoAbsolutePath, ReadError};
use crate::pem::{self, PemError};
use crate::settings::Credential;

/// The longest token: with it, a request's head still fits what servers accept.
const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// Why a credential is of no use.
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
    #[error("the token file {0} is empty")]
    EmptyToken(PathBuf),
    #[error("the token file {0} has more than one line; it must hold one token and nothing else")]
    ManyLines(PathBuf),
    #[error("the token in {0} has a character that a header may not carry; use visible ASCII without spaces")]
    UnsafeToken(PathBuf),
    #[error("the token in {0} is longer than {max} bytes", max = TOKEN_BYTES_MAX)]
    LongToken(PathBuf),
    #[error(transparent)]
    Path(#[from] NoAbsolutePath),
}

/// The user of a kubeconfig, with the credential in it or its files named.
pub(super) fn user(credential: &Credential, embedded: bool) -> Result<User, CredentialError> {
    match credential {
        Credential::Certificate { certificate, key } => of_certificate(certificate, key, embedded),
        Credential::TokenFile(file) => of_token(file, embedded),
    }
}

fn of_certificate(certificate: &Path, key: &Path, embedded: bool) -> Result<User, CredentialError> {
    let certificates = pem::certificates(certificate)?;
    let private = pem::key(key)?;
    // The leaf comes first, as TLS sends it.
    let leaf = certificates.ders.first().and_then(|leaf| pem::parse(leaf));
    let Some(leaf) = leaf.filter(|leaf| pem::belongs_to(leaf, &private.pair)) else {
        return Err(CredentialError::Mismatch { certificate: certificate.to_owned(), key: key.to_owned() });
    };
    let end = leaf.validity().not_after.to_datetime();
    if end < OffsetDateTime::now_utc() {
        return Err(CredentialError::Expired(certificate.to_owned(), end));
    }
    Ok(if embedded {
        User {
            client_certificate_data: Some(base64(&certificates.text)),
            client_key_data: Some(base64(&private.text)),
            ..User::default()
        }
    } else {
        User {
            client_certificate: Some(files::absolute(certificate)?),
            client_key: Some(files::absolute(key)?),
            ..User::default()
        }
    })
}

fn of_token(file: &Path, embedded: bool) -> Result<User, CredentialError> {
    let token = bearer_token(file)?;
    Ok(if embedded {
        User { token: Some(token), ..User::default() }
    } else {
        User { token_file: Some(files::absolute(file)?), ..User::default() }
    })
}

/// The one token of a file.
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
