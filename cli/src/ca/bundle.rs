//! The trust bundle of a certificate authority: the roots of every role, signed by the server roots.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustls_pki_types::CertificateDer;
use trust::bundle::{BUNDLE_BYTES_MAX, BundleError, SignBundleError, TrustBundle};
use trust::names::TrustDomain;
use trust::{Role, Root};

use super::paths;
use super::root;
use crate::files::{self, ReadError};
use crate::pem::{self, PemError};

/// The error if no new trust bundle was made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BundleFileError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Pem(#[from] PemError),
    #[error("{0} is not the trust bundle that `tombolo ca` wrote; restore it from a backup")]
    Previous(PathBuf, #[source] BundleError),
    #[error("the new trust bundle is not valid")]
    New(#[from] BundleError),
    #[error(transparent)]
    Sign(#[from] SignBundleError),
}

/// Encodes the next version of the bundle in `directory`, or version 1 if there is none. The server roots among `by` sign it.
pub(super) fn next(
    directory: &Path,
    domain: TrustDomain,
    roots: Vec<(Role, CertificateDer<'static>)>,
    by: &[&Root],
) -> Result<Vec<u8>, BundleFileError> {
    let path = paths::bundle(directory);
    let previous = match path.symlink_metadata() {
        Ok(_) => {
            let bytes = files::read_bytes(&path)?;
            TrustBundle::decode_unverified(&bytes)
                .map_err(|error| BundleFileError::Previous(path, error))?
                .version()
        }
        Err(_) => 0,
    };
    Ok(TrustBundle::new(previous + 1, domain, SystemTime::now(), roots)?.sign(by)?)
}

/// Encodes the next version of the bundle in `directory`: the given roots for `role`, and the present roots of every other role.
pub(super) fn next_with(
    directory: &Path,
    domain: TrustDomain,
    (role, certificates): (Role, &[CertificateDer<'static>]),
    by: &[Root],
) -> Result<Vec<u8>, BundleFileError> {
    let mut roots = Vec::new();
    for other in Role::ALL {
        let of_role = if other == role {
            certificates.to_vec()
        } else if root::check_is_there(directory, other).is_err() {
            Vec::new()
        } else {
            pem::read_certificates(&paths::root_certificate(directory, other))?.ders
        };
        roots.extend(of_role.into_iter().map(|root| (other, root)));
    }
    next(directory, domain, roots, &by.iter().collect::<Vec<_>>())
}

/// Reads a trust bundle. `None` if the file is something else.
pub(super) fn read(path: &Path) -> Result<Option<TrustBundle>, ReadError> {
    let bytes = files::read_bytes(path)?;
    Ok(Some(bytes)
        .filter(|bytes| bytes.len() <= BUNDLE_BYTES_MAX)
        .and_then(|bytes| TrustBundle::decode_unverified(&bytes).ok()))
}
