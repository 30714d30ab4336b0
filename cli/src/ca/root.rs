//! A root, out of its two files.

use std::path::{Path, PathBuf};

use trust::names::TrustDomain;
use trust::{NotACa, Role, Root};

use super::place;
use crate::pem::{self, PemError};

/// Why a root cannot be used.
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
    let (certificate, key) = (place::root_certificate(directory, role), place::root_key(directory, role));
    let pair = pem::key(&key)?.pair;
    // Behind the present root may stand the one before it.
    let present = pem::certificates(&certificate)?.ders.swap_remove(0);
    Root::load(role, domain, present, pair).map_err(|error| match error {
        NotACa::Mismatch => RootError::Mismatch { certificate, key },
        error @ (NotACa::Unreadable | NotACa::Constraints(_) | NotACa::Unusable(_)) => {
            RootError::NotARoot(certificate, error)
        }
    })
}
