//! The ways in which callers prove who they are: at least one, and no two that speak of the same names.

use std::path::Path;

use daemon::config::{KeyError, readable_file};

use super::value::{GROUPS_PREFIX, NOTHING, USERNAME_PREFIX, file, prefixes};
use super::{Authentication, ClientCertificate, Prefixes, TokenFile, issuers, pem, written};

/// Largest token file.
const TOKEN_FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Where the methods stand.
const CLIENT_CERTIFICATE: &str = "gateway.authentication.clientCertificate";
const TOKEN_FILE: &str = "gateway.authentication.tokenFile";
const TOKEN_FILE_PATH: &str = "gateway.authentication.tokenFile.path";

pub(super) fn authentication(
    written: written::Authentication,
    directory: &Path,
) -> Result<Authentication, KeyError> {
    let written::Authentication { client_certificate, token_file, oidc, token_review } = written;
    let client_certificate =
        client_certificate.map(|written| self::client_certificate(written, directory)).transpose()?;
    let token_file = token_file.map(|written| self::token_file(written, directory)).transpose()?;
    let oidc = issuers::oidc(oidc.unwrap_or_default(), directory)?;
    let token_review = token_review.map(|written| issuers::token_review(written, directory)).transpose()?;
    let issuers = oidc.iter().enumerate().map(|(index, way)| (issuers::key(index), &way.prefixes));
    let ways: Vec<(String, &Prefixes)> = [
        client_certificate.as_ref().map(|way| (CLIENT_CERTIFICATE.to_owned(), &way.prefixes)),
        token_file.as_ref().map(|way| (TOKEN_FILE.to_owned(), &way.prefixes)),
        token_review.as_ref().map(|way| (issuers::TOKEN_REVIEW.to_owned(), &way.prefixes)),
    ]
    .into_iter()
    .flatten()
    .chain(issuers)
    .collect();
    if ways.is_empty() {
        let allowed =
            "at least one of clientCertificate, tokenFile, oidc and tokenReview, or nobody could come in";
        return Err(KeyError::new("gateway.authentication", NOTHING, allowed));
    }
    apart(&ways)?;
    Ok(Authentication { client_certificate, token_file, oidc, token_review })
}

fn client_certificate(
    written: written::ClientCertificate,
    directory: &Path,
) -> Result<ClientCertificate, KeyError> {
    let written::ClientCertificate { ca_file, username_prefix, groups_prefix } = written;
    let key = format!("{CLIENT_CERTIFICATE}.caFile");
    let ca_file = file(&key, ca_file, directory)?;
    Ok(ClientCertificate {
        roots: pem::roots(&key, &ca_file)?,
        prefixes: prefixes(CLIENT_CERTIFICATE, username_prefix, groups_prefix)?,
    })
}

fn token_file(written: written::TokenFile, directory: &Path) -> Result<TokenFile, KeyError> {
    let written::TokenFile { path, username_prefix, groups_prefix } = written;
    let path = file(TOKEN_FILE_PATH, path, directory)?;
    Ok(TokenFile {
        contents: TokenFile::read(&path)?,
        path,
        prefixes: prefixes(TOKEN_FILE, username_prefix, groups_prefix)?,
    })
}

impl TokenFile {
    /// What stands in the file at `path` now. Blocks.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is too large.
    pub fn read(path: &Path) -> Result<Vec<u8>, KeyError> {
        readable_file(TOKEN_FILE_PATH, path, TOKEN_FILE_BYTES_MAX)
    }
}

/// Refuses two ways of which one could speak of the other's users or groups. With the empty prefix a method has all names
/// that begin with no other's prefix, which is seen to when somebody comes in.
fn apart(ways: &[(String, &Prefixes)]) -> Result<(), KeyError> {
    type Part = fn(&Prefixes) -> &str;
    let parts: [(&str, Part); 2] =
        [(USERNAME_PREFIX, |prefixes| &prefixes.username), (GROUPS_PREFIX, |prefixes| &prefixes.groups)];
    for (name, part) in parts {
        for (index, (way, prefixes)) in ways.iter().enumerate() {
            let own = part(prefixes);
            let meets = |other: &str| match (own.is_empty(), other.is_empty()) {
                (true, true) => true,
                (false, false) => own.starts_with(other) || other.starts_with(own),
                (true, false) | (false, true) => false,
            };
            if let Some((other, _)) = ways[..index].iter().find(|(_, earlier)| meets(part(earlier))) {
                let allowed = format!(
                    "one with which no name looks like one of {other}: neither may begin with the other, and \"\" is for one \
                     method at most"
                );
                return Err(KeyError::new(format!("{way}.{name}"), format_args!("{own:?}"), allowed));
            }
        }
    }
    Ok(())
}
