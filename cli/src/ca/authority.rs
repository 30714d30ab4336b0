//! One root, ready to sign.

use std::path::{Path, PathBuf};

use rcgen::{Issuer, KeyPair};
use time::OffsetDateTime;

use super::Role;
use crate::names::Validity;
use crate::pem::{self, PemError};

/// A root whose key belongs to it and which is valid now.
pub(super) struct Authority {
    pub(super) issuer: Issuer<'static, KeyPair>,
    not_after: OffsetDateTime,
    certificate: PathBuf,
}

/// Why a root cannot issue a certificate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthorityError {
    #[error(transparent)]
    Pem(#[from] PemError),
    #[error("the key {key} does not belong to the certificate {certificate}; restore the pair from a backup")]
    Mismatch { certificate: PathBuf, key: PathBuf },
    #[error("{0} is not a root that may sign certificates; restore it from a backup")]
    NotARoot(PathBuf),
    #[error("the root {0} cannot be used to sign")]
    Unusable(PathBuf, #[source] rcgen::Error),
    #[error(
        "a certificate of {validity} would outlive its root {root}, which ends at {end}; ask for less with --validity, or make new roots"
    )]
    Outlived { root: PathBuf, validity: Validity, end: OffsetDateTime },
}

impl Authority {
    /// Loads the root of `role` from an authority's directory.
    pub(super) fn load(directory: &Path, role: Role) -> Result<Self, AuthorityError> {
        let (path, key_path) = (role.root_certificate(directory), role.root_key(directory));
        let certificates = pem::certificates(&path)?;
        let key = pem::key(&key_path)?;
        let [root] = certificates.ders.as_slice() else {
            return Err(AuthorityError::NotARoot(path));
        };
        let parsed = pem::parse(root).filter(|root| root.is_ca());
        let Some(parsed) = parsed else {
            return Err(AuthorityError::NotARoot(path));
        };
        if !pem::belongs_to(&parsed, &key.pair) {
            return Err(AuthorityError::Mismatch { certificate: path, key: key_path });
        }
        let not_after = parsed.validity().not_after.to_datetime();
        let issuer = Issuer::from_ca_cert_der(root, key.pair)
            .map_err(|error| AuthorityError::Unusable(path.clone(), error))?;
        Ok(Self { issuer, not_after, certificate: path })
    }

    /// The end of a certificate that begins now; never later than the root's own.
    pub(super) fn end_of(
        &self,
        validity: Validity,
        now: OffsetDateTime,
    ) -> Result<OffsetDateTime, AuthorityError> {
        let end = now + validity.duration();
        if end > self.not_after {
            let (root, end) = (self.certificate.clone(), self.not_after);
            return Err(AuthorityError::Outlived { root, validity, end });
        }
        Ok(end)
    }
}
