//! The ways in which callers prove who they are: at least one, and no two that speak of the same names.

use std::path::{Path, PathBuf};

use daemon::config::{KeyError, readable_file};

use super::valid::NOTHING;
use super::{Authentication, ClientCertificate, TokenFile, pem, written};

/// Largest token file.
const TOKEN_FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// In front of the names of a token's holder, unless told otherwise.
const TOKEN_PREFIX_DEFAULT: &str = "token:";

/// Longest prefix, in bytes.
const PREFIX_BYTES_MAX: usize = 64;

pub(super) fn authentication(
    written: written::Authentication,
    directory: &Path,
) -> Result<Authentication, KeyError> {
    let written::Authentication { client_certificate, token_file } = written;
    let client_certificate =
        client_certificate.map(|written| self::client_certificate(written, directory)).transpose()?;
    let token_file = token_file.map(|written| self::token_file(written, directory)).transpose()?;
    match (&client_certificate, &token_file) {
        (None, None) => Err(KeyError::new(
            "gateway.authentication",
            NOTHING,
            "clientCertificate, tokenFile or both; without either nobody could come in",
        )),
        (Some(certificate), Some(token)) => {
            differ("usernamePrefix", &certificate.username_prefix, &token.username_prefix)?;
            differ("groupsPrefix", &certificate.groups_prefix, &token.groups_prefix)?;
            Ok(Authentication { client_certificate, token_file })
        }
        (Some(_), None) | (None, Some(_)) => Ok(Authentication { client_certificate, token_file }),
    }
}

fn client_certificate(
    written: written::ClientCertificate,
    directory: &Path,
) -> Result<ClientCertificate, KeyError> {
    let written::ClientCertificate { ca_file, username_prefix, groups_prefix } = written;
    let at = |key: &str| format!("gateway.authentication.clientCertificate.{key}");
    let ca_file = file(&at("caFile"), ca_file, directory)?;
    Ok(ClientCertificate {
        roots: pem::roots(&at("caFile"), &ca_file)?,
        username_prefix: prefix(&at("usernamePrefix"), username_prefix.unwrap_or_default())?,
        groups_prefix: prefix(&at("groupsPrefix"), groups_prefix.unwrap_or_default())?,
    })
}

fn token_file(written: written::TokenFile, directory: &Path) -> Result<TokenFile, KeyError> {
    let written::TokenFile { path, username_prefix, groups_prefix } = written;
    let at = |key: &str| format!("gateway.authentication.tokenFile.{key}");
    let path = file(&at("path"), path, directory)?;
    let or_default = |prefix: Option<String>| prefix.unwrap_or_else(|| TOKEN_PREFIX_DEFAULT.to_owned());
    Ok(TokenFile {
        contents: readable_file(&at("path"), &path, TOKEN_FILE_BYTES_MAX)?,
        path,
        username_prefix: prefix(&at("usernamePrefix"), or_default(username_prefix))?,
        groups_prefix: prefix(&at("groupsPrefix"), or_default(groups_prefix))?,
    })
}

/// The path of a file that must be named; a relative one starts at the configuration file.
pub(super) fn file(key: &str, path: Option<PathBuf>, directory: &Path) -> Result<PathBuf, KeyError> {
    match path {
        Some(path) if !path.as_os_str().is_empty() => Ok(directory.join(path)),
        Some(_) | None => Err(KeyError::new(key, NOTHING, "the path of a file")),
    }
}

fn prefix(key: &str, prefix: String) -> Result<String, KeyError> {
    let visible = prefix.bytes().all(|byte| byte.is_ascii_graphic());
    if visible && prefix.len() <= PREFIX_BYTES_MAX && !prefix.starts_with("system:") {
        return Ok(prefix);
    }
    let allowed =
        format!("at most {PREFIX_BYTES_MAX} visible ASCII characters that do not begin with system:");
    Err(KeyError::new(key, format_args!("{prefix:?}"), allowed))
}

fn differ(key: &str, certificate: &str, token: &str) -> Result<(), KeyError> {
    if certificate != token {
        return Ok(());
    }
    let key = format!("gateway.authentication.tokenFile.{key}");
    let allowed = "another one than for client certificates, so that a name tells who vouches for it";
    Err(KeyError::new(key, format_args!("{token:?}"), allowed))
}
