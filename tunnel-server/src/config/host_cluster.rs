//! An API server that this server calls: its URL, the roots of its certificate and the token file.

use std::path::{Path, PathBuf};

use daemon::config::KeyError;
use http::Uri;
use http::uri::Scheme;
use serde::Deserialize;

use super::roots::{self, TrustedRoots};
use super::value::{file, text};

/// An API server that this server calls, with a token of its own.
#[derive(Debug)]
pub struct HostCluster {
    /// The URL `https://HOST[:PORT]`, without a path.
    pub server: Uri,
    /// The roots that its certificate must chain to; at least one.
    pub roots: TrustedRoots,
    /// The file of the bearer token, which is read for each request.
    pub token_file: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawHostCluster {
    /// URL of the API server, `https://HOST[:PORT]` without a path.
    #[cfg_attr(test, schemars(required))]
    pub(super) server: Option<String>,
    /// PEM file with the CA certificates of that API server.
    #[cfg_attr(test, schemars(required))]
    pub(super) ca_file: Option<PathBuf>,
    /// File with the bearer token that this server sends there. It is read for each request.
    #[cfg_attr(test, schemars(required))]
    pub(super) token_file: Option<PathBuf>,
}

/// The API server whose keys stand below `section`.
pub(super) fn host_cluster(
    section: &str,
    raw: RawHostCluster,
    directory: &Path,
) -> Result<HostCluster, KeyError> {
    let RawHostCluster { server, ca_file, token_file } = raw;
    let at = |key: &str| format!("{section}.{key}");
    let (server_text, server) = https_url(at("server"), server)?;
    if server.path_and_query().is_some_and(|path| path.as_str() != "/") {
        return Err(KeyError::new(at("server"), server_text, "https://HOST[:PORT] without a path"));
    }
    Ok(HostCluster {
        server,
        roots: https_roots(&at("caFile"), ca_file, directory)?,
        token_file: file(&at("tokenFile"), token_file, directory)?,
    })
}

/// A URL and its original text, because an issuer is compared byte by byte.
pub(super) fn https_url(key: String, url: Option<String>) -> Result<(String, Uri), KeyError> {
    let url = text(key.clone(), url)?;
    let is_plain = |uri: &Uri| {
        let authority = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
        authority && uri.scheme() == Some(&Scheme::HTTPS) && uri.query().is_none()
    };
    match url.parse::<Uri>().ok().filter(is_plain) {
        Some(uri) => Ok((url, uri)),
        None => {
            Err(KeyError::new(key, format_args!("{url:?}"), "an https URL without user, query or fragment"))
        }
    }
}

/// The roots of a server that is called by HTTPS. They can be a system's complete trust store.
pub(super) fn https_roots(
    key: &str,
    path: Option<PathBuf>,
    directory: &Path,
) -> Result<TrustedRoots, KeyError> {
    let path = file(key, path, directory)?;
    roots::authorities(key, &path)
}
