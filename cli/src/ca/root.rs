//! Loads a root CA from its certificate and key files.

use std::path::{Path, PathBuf};

use trust::names::TrustDomain;
use trust::{NotACa, Role, Root};

use super::paths;
use crate::pem::{self, PemError};

/// The error if a root cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RootError {
    #[error(transparent)]
    Pem(#[from] PemError),
    #[error("the key {key} does not belong to the certificate {certificate}; restore the pair from a backup")]
    Mismatch { certificate: PathBuf, key: PathBuf },
    #[error("{0} is not a root that may sign certificates; restore it from a backup")]
    NotARoot(PathBuf, #[source] NotACa),
}

/// Loads the root of `role` from an authority's directory.
pub(super) fn load(directory: &Path, role: Role, domain: TrustDomain) -> Result<Root, RootError> {
    let (certificate, key) = (paths::root_certificate(directory, role), paths::root_key(directory, role));
    let pair = pem::read_key(&key)?.pair;
    // During a rotation, the previous root follows the present one.
    let present = pem::read_certificates(&certificate)?.ders.swap_remove(0);
    Root::load(role, domain, present, pair).map_err(|error| match error {
        NotACa::Mismatch => RootError::Mismatch { certificate, key },
        error @ (NotACa::Unreadable | NotACa::Constraints(_) | NotACa::Unusable(_)) => {
            RootError::NotARoot(certificate, error)
        }
    })
}
