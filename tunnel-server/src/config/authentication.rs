//! The section `gateway.authentication`: at least one method, and no two whose names can collide.

use std::fmt;
use std::path::{Path, PathBuf};

use daemon::config::{KeyError, readable_file};
use serde::Deserialize;

use super::oidc::{OidcConfig, RawOidc, issuer_key, oidc};
use super::roots::{self, TrustedRoots};
use super::token_review::{RawTokenReview, TOKEN_REVIEW, TokenReviewConfig, token_review};
use super::value::{GROUPS_PREFIX, NOTHING, NamePrefixes, USERNAME_PREFIX, file, prefixes};

/// Largest token file, in bytes.
const TOKEN_FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

const CLIENT_CERTIFICATE: &str = "gateway.authentication.clientCertificate";
const TOKEN_FILE: &str = "gateway.authentication.tokenFile";
const TOKEN_FILE_PATH: &str = "gateway.authentication.tokenFile.path";

/// The methods by which callers authenticate.
#[derive(Debug)]
pub struct AuthenticationConfig {
    /// A client certificate in the TLS handshake.
    pub client_certificate: Option<ClientCertificate>,
    /// A bearer token that is listed in a file.
    pub token_file: Option<TokenFile>,
    /// A token of one of these issuers, no two with the same name or issuer; at most [`ISSUERS_MAX`](super::ISSUERS_MAX).
    pub oidc: Vec<OidcConfig>,
    /// A token that another cluster's API server reviews.
    pub token_review: Option<TokenReviewConfig>,
}

/// The method of client certificates.
#[derive(Debug)]
pub struct ClientCertificate {
    /// The roots that they must chain to; at least one, and none that agents chain to.
    pub roots: TrustedRoots,
    /// The prefixes of their names.
    pub prefixes: NamePrefixes,
}

/// Static bearer tokens. `Debug` shows none of them.
pub struct TokenFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The bytes of the file.
    pub contents: Vec<u8>,
    /// The prefixes of the token holders' names.
    pub prefixes: NamePrefixes,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawAuthentication {
    /// Client certificates in the TLS handshake.
    client_certificate: Option<RawClientCertificate>,
    /// Static bearer tokens that a file lists.
    token_file: Option<RawTokenFile>,
    /// Tokens of OpenID Connect issuers.
    #[cfg_attr(test, schemars(length(min = 0, max = super::ISSUERS_MAX), extend("default" = [])))]
    oidc: Option<Vec<RawOidc>>,
    /// Tokens that another cluster reviews, for all tokens that no other method knows.
    token_review: Option<RawTokenReview>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawClientCertificate {
    /// PEM file with the CA certificates of callers. No agent's certificate may chain to them.
    #[cfg_attr(test, schemars(required))]
    ca_file: Option<PathBuf>,
    /// In front of the user names of this method, so that names of two methods differ. One method at most may have "",
    /// and none may begin with system:.
    #[cfg_attr(test, schemars(required))]
    username_prefix: Option<String>,
    /// The same in front of the groups.
    #[cfg_attr(test, schemars(required))]
    groups_prefix: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawTokenFile {
    /// CSV file with one line for each token: `sha256:DIGEST,user,uid,"group1,group2"`. `tombolo user token hash` makes
    /// the digests.
    #[cfg_attr(test, schemars(required))]
    path: Option<PathBuf>,
    /// In front of the user names of this method, so that names of two methods differ. One method at most may have "",
    /// and none may begin with system:.
    #[cfg_attr(test, schemars(required))]
    username_prefix: Option<String>,
    /// The same in front of the groups.
    #[cfg_attr(test, schemars(required))]
    groups_prefix: Option<String>,
}

pub(super) fn authentication(
    raw: RawAuthentication,
    directory: &Path,
) -> Result<AuthenticationConfig, KeyError> {
    let RawAuthentication { client_certificate, token_file, oidc, token_review } = raw;
    let client_certificate =
        client_certificate.map(|raw| self::client_certificate(raw, directory)).transpose()?;
    let token_file = token_file.map(|raw| self::token_file(raw, directory)).transpose()?;
    let oidc = self::oidc(oidc.unwrap_or_default(), directory)?;
    let token_review = token_review.map(|raw| self::token_review(raw, directory)).transpose()?;
    let issuers = oidc.iter().enumerate().map(|(index, issuer)| (issuer_key(index), &issuer.prefixes));
    let methods: Vec<(String, &NamePrefixes)> = [
        client_certificate.as_ref().map(|method| (CLIENT_CERTIFICATE.to_owned(), &method.prefixes)),
        token_file.as_ref().map(|method| (TOKEN_FILE.to_owned(), &method.prefixes)),
        token_review.as_ref().map(|method| (TOKEN_REVIEW.to_owned(), &method.prefixes)),
    ]
    .into_iter()
    .flatten()
    .chain(issuers)
    .collect();
    if methods.is_empty() {
        let allowed =
            "at least one of clientCertificate, tokenFile, oidc and tokenReview, or nobody could come in";
        return Err(KeyError::new("gateway.authentication", NOTHING, allowed));
    }
    check_no_collision(&methods)?;
    Ok(AuthenticationConfig { client_certificate, token_file, oidc, token_review })
}

fn client_certificate(raw: RawClientCertificate, directory: &Path) -> Result<ClientCertificate, KeyError> {
    let RawClientCertificate { ca_file, username_prefix, groups_prefix } = raw;
    let key = format!("{CLIENT_CERTIFICATE}.caFile");
    let ca_file = file(&key, ca_file, directory)?;
    Ok(ClientCertificate {
        roots: roots::roots(&key, &ca_file)?,
        prefixes: prefixes(CLIENT_CERTIFICATE, username_prefix, groups_prefix)?,
    })
}

fn token_file(raw: RawTokenFile, directory: &Path) -> Result<TokenFile, KeyError> {
    let RawTokenFile { path, username_prefix, groups_prefix } = raw;
    let path = file(TOKEN_FILE_PATH, path, directory)?;
    Ok(TokenFile {
        contents: TokenFile::read(&path)?,
        path,
        prefixes: prefixes(TOKEN_FILE, username_prefix, groups_prefix)?,
    })
}

impl TokenFile {
    /// Reads the file at `path` now. Blocks.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is too large.
    pub fn read(path: &Path) -> Result<Vec<u8>, KeyError> {
        readable_file(TOKEN_FILE_PATH, path, TOKEN_FILE_BYTES_MAX)
    }

    /// The error for a file that could be read but whose lines are no tokens.
    #[must_use]
    pub fn refused(&self, reason: impl fmt::Display) -> KeyError {
        let allowed = format!("a file of lines sha256:DIGEST,user,uid,\"group1,group2\" ({reason})");
        KeyError::new(TOKEN_FILE_PATH, self.path.display(), allowed)
    }
}

impl fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenFile")
            .field("path", &self.path)
            .field("prefixes", &self.prefixes)
            .finish_non_exhaustive()
    }
}

/// Refuses two methods of which one could produce the other's user or group names. A method with the empty prefix has all
/// names that begin with no other's prefix; each authentication checks that.
fn check_no_collision(methods: &[(String, &NamePrefixes)]) -> Result<(), KeyError> {
    type Part = fn(&NamePrefixes) -> &str;
    let parts: [(&str, Part); 2] =
        [(USERNAME_PREFIX, |prefixes| &prefixes.username), (GROUPS_PREFIX, |prefixes| &prefixes.groups)];
    for (name, part) in parts {
        for (index, (method, prefixes)) in methods.iter().enumerate() {
            let own = part(prefixes);
            let collides = |other: &str| match (own.is_empty(), other.is_empty()) {
                (true, true) => true,
                (false, false) => own.starts_with(other) || other.starts_with(own),
                (true, false) | (false, true) => false,
            };
            if let Some((other, _)) = methods[..index].iter().find(|(_, earlier)| collides(part(earlier))) {
                let allowed = format!(
                    "one with which no name looks like one of {other}: neither may begin with the other, and \"\" is for one \
                     method at most"
                );
                return Err(KeyError::new(format!("{method}.{name}"), format_args!("{own:?}"), allowed));
            }
        }
    }
    Ok(())
}
