//! `ca.yaml`: the metadata of a certificate authority. It is written last, so that its presence means that the authority is
//! complete.

use std::path::{Path, PathBuf};

use daemon::config::{LoadError, parse_without_head};
use serde::{Deserialize, Serialize};

use crate::files::{self, ReadError};
use crate::names::TrustDomain;

/// The file as it is written.
///
/// The trust domain is not a name constraint of the roots: rustls refuses every URI under a root that constrains URIs.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawMetadata {
    trust_domain: String,
}

/// The error if `ca.yaml` is missing or cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MetadataError {
    #[error("{0} holds no finished authority; make one with `tombolo ca init --dir {0}`")]
    NoAuthority(PathBuf, #[source] ReadError),
    #[error("{0} is not the file that `tombolo ca init` wrote")]
    Syntax(PathBuf, #[source] Box<LoadError>),
    #[error("trustDomain in {0} is not a trust domain")]
    TrustDomain(PathBuf, #[source] crate::names::NotATrustDomain),
}

/// The path of `ca.yaml` in the directory of an authority.
pub(super) fn path(directory: &Path) -> PathBuf {
    directory.join("ca.yaml")
}

/// The contents of `ca.yaml` for this trust domain.
pub(super) fn text(trust_domain: &TrustDomain) -> Result<String, serde_saphyr::SerializeError> {
    serde_saphyr::to_string(&RawMetadata { trust_domain: trust_domain.to_string() })
}

/// The trust domain of the authority in `directory`.
pub(super) fn trust_domain(directory: &Path) -> Result<TrustDomain, MetadataError> {
    let path = path(directory);
    let text = files::read(&path).map_err(|error| MetadataError::NoAuthority(directory.to_owned(), error))?;
    let RawMetadata { trust_domain } = parse_without_head(&text, &path)
        .map_err(|error| MetadataError::Syntax(path.clone(), Box::new(error)))?;
    trust_domain.parse().map_err(|error| MetadataError::TrustDomain(path, error))
}
