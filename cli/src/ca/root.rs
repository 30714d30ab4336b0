//! Loads a root CA from its certificate and key files.

use std::path::{Path, PathBuf};

use rustls_pki_types::CertificateDer;
use trust::names::TrustDomain;
use trust::{NotACa, Role, Root};

use super::paths;
use crate::pem::{self, PemError};

/// The error if an authority has no root of the role peer. Earlier versions made none.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0} has no root of the role peer, because an earlier version made this authority; add it with `tombolo ca init --dir {0}`"
)]
pub(crate) struct NoPeerRoot(PathBuf);

/// The error if a root cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RootError {
    #[error(transparent)]
    NoPeerRoot(#[from] NoPeerRoot),
    #[error(transparent)]
    Pem(#[from] PemError),
    #[error("the key {key} does not belong to the certificate {certificate}; restore the pair from a backup")]
    Mismatch { certificate: PathBuf, key: PathBuf },
    #[error("{0} is not a root that may sign certificates; restore it from a backup")]
    NotARoot(PathBuf, #[source] NotACa),
}

/// Loads the root of `role` from an authority's directory.
pub(super) fn load(directory: &Path, role: Role, domain: TrustDomain) -> Result<Root, RootError> {
    check_is_there(directory, role)?;
    let certificate = paths::root_certificate(directory, role);
    // During a rotation, the previous root follows the present one.
    let present = pem::read_certificates(&certificate)?.ders.swap_remove(0);
    with_key(role, domain, (certificate, present), paths::root_key(directory, role))
}

/// Loads the roots that sign a trust bundle for all agents: the root of servers, and during its rotation also the previous one,
/// because some agents trust only that.
pub(super) fn load_bundle_signers(directory: &Path, domain: TrustDomain) -> Result<Vec<Root>, RootError> {
    let certificate = paths::root_certificate(directory, Role::Server);
    let previous = pem::read_certificates(&certificate)?.ders.into_iter().nth(1);
    let mut signers = vec![load(directory, Role::Server, domain.clone())?];
    if let Some(previous) = previous {
        let key = paths::old_root_key(directory, Role::Server);
        signers.push(with_key(Role::Server, domain, (certificate, previous), key)?);
    }
    Ok(signers)
}

/// Checks that an authority has a root of this role. Only the role peer can be missing.
pub(super) fn check_is_there(directory: &Path, role: Role) -> Result<(), NoPeerRoot> {
    let is_missing = || paths::root_certificate(directory, role).symlink_metadata().is_err();
    if role == Role::Peer && is_missing() { Err(NoPeerRoot(directory.to_owned())) } else { Ok(()) }
}

fn with_key(
    role: Role,
    domain: TrustDomain,
    (certificate, der): (PathBuf, CertificateDer<'static>),
    key: PathBuf,
) -> Result<Root, RootError> {
    let pair = pem::read_key(&key)?.pair;
    Root::load(role, domain, der, pair).map_err(|error| match error {
        NotACa::Mismatch => RootError::Mismatch { certificate, key },
        error @ (NotACa::Unreadable | NotACa::Constraints(_) | NotACa::Unusable(_)) => {
            RootError::NotARoot(certificate, error)
        }
    })
}
