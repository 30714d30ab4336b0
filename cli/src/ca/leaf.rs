//! A certificate with its key, on its way to two files.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use time::OffsetDateTime;
use trust::sealed::LoadError;
use trust::{Intermediate, Issued, Order, ProvenKey, Role, SignError, Subject};

use super::place;
use crate::files::{self, Audience, Existing, WriteError};
use crate::names::Validity;
use crate::pem;

/// A certificate beside the key that it was made for, not yet written.
pub(super) struct Pair {
    issued: Issued,
    key: KeyPair,
}

/// Where a pair was written.
pub(super) struct Places {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// Why a certificate was not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LeafError {
    #[error(
        "{directory} has nothing that issues certificates for the role {role}; make it with `tombolo ca intermediate --dir {directory} --role {role}`"
    )]
    NoIntermediate { directory: PathBuf, role: Role },
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

impl Pair {
    /// Makes a key and has the intermediate in `directory` issue a certificate for it.
    pub(super) fn issue(directory: &Path, subject: Subject, validity: Validity) -> Result<Self, LeafError> {
        let role = subject.role();
        let path = place::intermediate(directory, role);
        if path.symlink_metadata().is_err() {
            return Err(LeafError::NoIntermediate { directory: directory.to_owned(), role });
        }
        let issuer: Intermediate = trust::sealed::load(&path, &place::sealing_key(directory))?;
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
            | SignError::Away(_)) => LeafError::Sign(error),
        })?;
        Ok(Self { issued, key: pair })
    }

    /// Writes `NAME.key` and `NAME.crt` to `directory`, which is created if need be.
    ///
    /// The certificate file holds the intermediates behind the leaf, which the other side does not have.
    pub(super) fn write(
        self,
        directory: &Path,
        name: &str,
        existing: Existing,
    ) -> Result<Places, WriteError> {
        files::create_private_directory(directory)?;
        // Not `with_extension`: it would cut off what follows a dot in the name.
        let places = Places {
            certificate: directory.join(format!("{name}.crt")),
            key: directory.join(format!("{name}.key")),
        };
        let key = self.key.serialize_pem();
        let chain: String = self.issued.chain.iter().map(pem::certificate_text).collect();
        let files = vec![
            (places.key.clone(), key.as_str(), Audience::Owner),
            (places.certificate.clone(), chain.as_str(), Audience::Everyone),
        ];
        files::write_all(files, existing)?;
        Ok(places)
    }
}
