//! The section `gateway.authentication.tokenReview`: the API server that reviews callers' tokens.

use std::path::{Path, PathBuf};

use daemon::config::{KeyError, bounded};
use serde::Deserialize;

use super::host_cluster::{HostCluster, RawHostCluster, host_cluster};
use super::value::{GROUPS_PREFIX, NAMES_MAX, NamePrefixes, USERNAME_PREFIX, label, prefixes, text};

/// The key of the section.
pub(super) const TOKEN_REVIEW: &str = "gateway.authentication.tokenReview";

/// An API server that reviews tokens.
#[derive(Debug)]
pub struct TokenReviewConfig {
    /// The reviewer's name in policy rules, a DNS label.
    pub name: String,
    /// The API server that is asked.
    pub host: HostCluster,
    /// The audiences of which a token must name one; at least one.
    pub audiences: Vec<String>,
    /// The prefixes of its names; none of them empty.
    pub prefixes: NamePrefixes,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawTokenReview {
    /// Name of the reviewer, a DNS label. The policy calls its method `token-review:NAME`.
    #[cfg_attr(test, schemars(required))]
    name: Option<String>,
    /// URL of the API server, `https://HOST[:PORT]` without a path.
    #[cfg_attr(test, schemars(required))]
    server: Option<String>,
    /// PEM file with the CA certificates of that API server.
    #[cfg_attr(test, schemars(required))]
    ca_file: Option<PathBuf>,
    /// File with the bearer token that this server sends there. It is read for each request.
    #[cfg_attr(test, schemars(required))]
    token_file: Option<PathBuf>,
    /// Audiences, of which a token has to name one.
    #[cfg_attr(test, schemars(required, length(min = 1, max = NAMES_MAX)))]
    audiences: Option<Vec<String>>,
    /// In front of the user names. It must not be empty.
    #[cfg_attr(test, schemars(required))]
    username_prefix: Option<String>,
    /// In front of the groups. It must not be empty.
    #[cfg_attr(test, schemars(required))]
    groups_prefix: Option<String>,
}

pub(super) fn token_review(raw: RawTokenReview, directory: &Path) -> Result<TokenReviewConfig, KeyError> {
    let RawTokenReview { name, server, ca_file, token_file, audiences, username_prefix, groups_prefix } = raw;
    let at = |key: &str| format!("{TOKEN_REVIEW}.{key}");
    let audiences = audiences.unwrap_or_default();
    bounded(&at("audiences"), audiences.len(), 1..=NAMES_MAX)?;
    let host = host_cluster(TOKEN_REVIEW, RawHostCluster { server, ca_file, token_file }, directory)?;
    let prefixes = prefixes(TOKEN_REVIEW, username_prefix, groups_prefix)?;
    for (key, prefix) in [(USERNAME_PREFIX, &prefixes.username), (GROUPS_PREFIX, &prefixes.groups)] {
        if prefix.is_empty() {
            let allowed = "a prefix of its own: another cluster's names must not look like this server's";
            return Err(KeyError::new(at(key), "\"\"", allowed));
        }
    }
    Ok(TokenReviewConfig {
        name: label(at("name"), name)?,
        host,
        audiences: audiences
            .into_iter()
            .map(|audience| text(at("audiences"), Some(audience)))
            .collect::<Result<_, _>>()?,
        prefixes,
    })
}
