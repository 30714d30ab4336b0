//! The trust bundle of an authority: every role's roots, signed by those of servers.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustls_pki_types::CertificateDer;
use trust::bundle::{BUNDLE_BYTES_MAX, BundleError, SignBundleError, TrustBundle};
use trust::names::TrustDomain;
use trust::{Role, Root};

use super::place;
use crate::files::{self, ReadError};

/// Why there is no new bundle.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BundleFault {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{0} is not the trust bundle that `tombolo ca` wrote; restore it from a backup")]
    Former(PathBuf, #[source] BundleError),
    #[error("the new trust bundle is none")]
    New(#[from] BundleError),
    #[error(transparent)]
    Sign(#[from] SignBundleError),
}

/// The bundle that follows the one in `directory`, of these roots, signed by those of servers among `by`.
pub(super) fn next(
    directory: &Path,
    domain: TrustDomain,
    roots: Vec<(Role, CertificateDer<'static>)>,
    by: &[&Root],
) -> Result<Vec<u8>, BundleFault> {
    let path = place::bundle(directory);
    let former = match path.symlink_metadata() {
        Ok(_) => {
            let bytes = files::read_bytes(&path)?;
            TrustBundle::look(&bytes).map_err(|error| BundleFault::Former(path, error))?.version()
        }
        Err(_) => 0,
    };
    Ok(TrustBundle::new(former + 1, domain, SystemTime::now(), roots)?.sign(by)?)
}

/// The bundle in the file, if it is one.
pub(super) fn look(path: &Path) -> Result<Option<TrustBundle>, ReadError> {
    let bytes = files::read_bytes(path)?;
    Ok(Some(bytes)
        .filter(|bytes| bytes.len() <= BUNDLE_BYTES_MAX)
        .and_then(|bytes| TrustBundle::look(&bytes).ok()))
}
