//! Issues a leaf certificate with a new key, and writes both to files.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use time::OffsetDateTime;
use trust::sealed::LoadError;
use trust::{Intermediate, Issued, Order, ProvenKey, Role, SignError, Subject};

use super::paths;
use super::root::{self, NoPeerRoot};
use crate::files::{self, Existing, NewFile, WriteError};
use crate::names::Validity;
use crate::pem;

/// A certificate and its key, not yet written.
pub(super) struct IssuedPair {
    issued: Issued,
    key: KeyPair,
}

/// The files to which a pair was written.
pub(super) struct PairPaths {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// The error if no certificate was issued.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LeafError {
    #[error(
        "{directory} has no intermediate that issues certificates for the role {role}; make it with `tombolo ca intermediate --dir {directory} --role {role}`"
    )]
    NoIntermediate { directory: PathBuf, role: Role },
    #[error(transparent)]
    NoPeerRoot(#[from] NoPeerRoot),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("no key could be made")]
    Key(#[source] rcgen::Error),
    #[error(
        "a certificate of {validity} would outlive its issuer {issuer}, which ends at {end}; ask for less with --validity, or make a new issuer with `tombolo ca intermediate --force`"
    )]
    Outlived { issuer: PathBuf, validity: Validity, end: OffsetDateTime },
    #[error(transparent)]
    Sign(SignError),
}

impl IssuedPair {
    /// Makes a key, and issues a certificate for it with the intermediate in `directory`.
    pub(super) fn issue(directory: &Path, subject: Subject, validity: Validity) -> Result<Self, LeafError> {
        let role = subject.role();
        let path = paths::intermediate(directory, role);
        if path.symlink_metadata().is_err() {
            root::check_is_there(directory, role)?;
            return Err(LeafError::NoIntermediate { directory: directory.to_owned(), role });
        }
        let issuer: Intermediate = trust::sealed::load(&path, &paths::sealing_key(directory))?;
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(LeafError::Key)?;
        let key =
            ProvenKey::of_pair(&pair).ok_or(LeafError::Key(rcgen::Error::UnsupportedSignatureAlgorithm))?;
        let lasting =
            Duration::try_from(validity.duration()).map_err(|_| LeafError::Sign(SignError::Dates))?;
        let order = Order { subject, key, now: SystemTime::now(), lasting };
        let issued = issuer.sign(&order).map_err(|error| match error {
            SignError::Outlived(end) => LeafError::Outlived { issuer: path, validity, end },
            error @ (SignError::OtherRole { .. }
            | SignError::Subject(_)
            | SignError::Dates
            | SignError::Randomness
            | SignError::Make(_)
            | SignError::Unreachable(_)) => LeafError::Sign(error),
        })?;
        Ok(Self { issued, key: pair })
    }

    /// Writes `NAME.key` and `NAME.crt` to `directory`, which is created if it is missing.
    ///
    /// The certificate file holds the intermediate after the leaf, because peers have only the root.
    pub(super) fn write(
        self,
        directory: &Path,
        name: &str,
        existing: Existing,
    ) -> Result<PairPaths, WriteError> {
        files::create_private_directory(directory)?;
        // Not `with_extension`, which would replace everything after a dot in the name.
        let paths = PairPaths {
            certificate: directory.join(format!("{name}.crt")),
            key: directory.join(format!("{name}.key")),
        };
        let chain: String = self.issued.chain.iter().map(pem::encode_certificate).collect();
        let files = vec![
            NewFile::private(paths.key.clone(), self.key.serialize_pem()),
            NewFile::public(paths.certificate.clone(), chain),
        ];
        files::write_all(files, existing)?;
        Ok(paths)
    }
}
