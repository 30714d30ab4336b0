//! A certificate with its key, on its way to two files.

use std::path::{Path, PathBuf};

use rcgen::{
    Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
};
use time::OffsetDateTime;

use super::authority::{Authority, AuthorityError};
use super::{BACKDATED, Role};
use crate::files::{self, Audience, Existing, WriteError};
use crate::names::Validity;

/// What stands in a certificate.
pub(super) struct Leaf {
    pub(super) role: Role,
    pub(super) common_name: String,
    pub(super) alternative_names: Vec<SanType>,
}

/// A certificate beside the key that it was made for, not yet written.
pub(super) struct Pair {
    pub(super) certificate: Certificate,
    pub(super) key: KeyPair,
}

/// Where a pair was written.
pub(super) struct Places {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// Why a certificate was not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LeafError {
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error("the certificate could not be made")]
    Make(#[source] rcgen::Error),
}

impl Leaf {
    /// Makes a key and has `authority` sign a certificate for it.
    pub(super) fn issue(self, authority: &Authority, validity: Validity) -> Result<Pair, LeafError> {
        let now = OffsetDateTime::now_utc();
        let mut params = CertificateParams::default();
        params.not_before = now - BACKDATED;
        params.not_after = authority.end_of(validity, now)?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, self.common_name);
        params.subject_alt_names = self.alternative_names;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match self.role {
            Role::Server => ExtendedKeyUsagePurpose::ServerAuth,
            Role::Agent | Role::Caller => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(LeafError::Make)?;
        let certificate = params.signed_by(&key, &authority.issuer).map_err(LeafError::Make)?;
        Ok(Pair { certificate, key })
    }
}

/// Writes `NAME.key` and `NAME.crt` to `directory`, which is created if need be.
///
/// The certificate file holds the leaf alone: it is signed by the root itself, which the other side has.
pub(super) fn write(
    directory: &Path,
    name: &str,
    certificate_pem: &str,
    key: &KeyPair,
    existing: Existing,
) -> Result<Places, WriteError> {
    files::create_private_directory(directory)?;
    // Not `with_extension`: it would cut off what follows a dot in the name.
    let places = Places {
        certificate: directory.join(format!("{name}.crt")),
        key: directory.join(format!("{name}.key")),
    };
    let key = key.serialize_pem();
    let files = vec![
        (places.key.clone(), key.as_str(), Audience::Owner),
        (places.certificate.clone(), certificate_pem, Audience::Everyone),
    ];
    files::write_all(files, existing)?;
    Ok(places)
}
