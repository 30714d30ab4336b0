//! An intermediate in a file, with its key encrypted under a sealing key in another file, such as a mounted
//! Secret or a credential of systemd.

mod private;

use std::fmt;
use std::path::Path;

use aws_lc_rs::aead::{AES_256_GCM, Aad, RandomizedNonceKey};
use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::KeyPair;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};

use crate::ca::NotACa;
use crate::intermediate::Intermediate;
use crate::role::Role;
use crate::signer::Signer as _;

pub use private::NotPrivate;

/// Largest sealed file, in bytes. Ours have about 2 KiB.
pub const SEALED_BYTES_MAX: u64 = 64 * 1024;

/// Largest file of a sealing key, in bytes.
const SEALING_KEY_BYTES_MAX: u64 = 1024;

/// Separates this file from every other use of the same sealing key.
const LABEL: &[u8] = b"tombolo sealed signer 1";

/// The one version of the file.
const VERSION: u32 = 1;

/// 256 random bits that open sealed files. As text: base64, one line.
pub struct SealingKey([u8; 32]);

/// The reason why a text is no sealing key, or none was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealingKeyError {
    /// The system gave no random bytes.
    #[error("no random bytes for a sealing key")]
    Randomness,
    /// The text is not base64 of 32 bytes.
    #[error("a sealing key is one line of base64 that stands for 32 bytes")]
    Malformed,
}

/// The reason why a sealed file does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file is damaged, of another program, or of a later version.
    #[error("it is not a sealed signer of version {VERSION}")]
    Malformed,
    /// The sealing key is another one, or the file was changed.
    #[error(
        "the sealing key does not open it: it is another one's, or the file was changed since it was sealed"
    )]
    Refused,
    /// The sealed certificate and key are no CA.
    #[error(transparent)]
    NotACa(#[from] NotACa),
}

/// The reason why an intermediate was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// One of the two files cannot be read, or is open to others.
    #[error(transparent)]
    NotPrivate(#[from] NotPrivate),
    /// The key file holds no sealing key.
    #[error("{0} holds no sealing key")]
    Key(String, #[source] SealingKeyError),
    /// The sealed file does not open.
    #[error("{0} cannot be used as a signer")]
    Open(String, #[source] OpenError),
}

/// The sealed file, as JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SealedFile {
    version: u32,
    role: String,
    trust_domain: String,
    certificates: Vec<String>,
    /// The private key: AES-256-GCM with its tag, then the nonce.
    sealed_key: String,
}

/// Loads the intermediate in the file `path` with the sealing key in the file `key`. Both files must belong to this user or
/// root, and be closed to others. Blocks: call it at start, or on a blocking thread.
///
/// # Errors
/// [`LoadError`], which names the file and what to do.
pub fn load(path: &Path, key: &Path) -> Result<Intermediate, LoadError> {
    let sealing = load_key(key)?;
    let text = private::read(path, SEALED_BYTES_MAX)?;
    open(&text, &sealing).map_err(|error| LoadError::Open(path.display().to_string(), error))
}

/// Loads the sealing key in the file `path`, with the same requirements as [`load`]. Blocks.
///
/// # Errors
/// [`LoadError`], but never `Open`.
pub fn load_key(path: &Path) -> Result<SealingKey, LoadError> {
    let text = private::read(path, SEALING_KEY_BYTES_MAX)?;
    text.parse().map_err(|error| LoadError::Key(path.display().to_string(), error))
}

/// Seals `intermediate` into the text of a file. `None` if the system gives no random bytes.
#[must_use]
pub fn seal(intermediate: &Intermediate, sealing: &SealingKey) -> Option<String> {
    let (role, domain) = (intermediate.role(), intermediate.trust_domain().as_str());
    let associated = associated(role.as_str(), domain, intermediate.certificates());
    let mut sealed = intermediate.key().serialize_der();
    let key = RandomizedNonceKey::new(&AES_256_GCM, &sealing.0).ok()?;
    let nonce = key.seal_in_place_append_tag(Aad::from(associated), &mut sealed).ok()?;
    sealed.extend_from_slice(nonce.as_ref());
    let file = SealedFile {
        version: VERSION,
        role: role.as_str().to_owned(),
        trust_domain: domain.to_owned(),
        certificates: intermediate.certificates().iter().map(|der| BASE64.encode(der)).collect(),
        sealed_key: BASE64.encode(sealed),
    };
    let mut text = serde_json::to_string_pretty(&file).ok()?;
    text.push('\n');
    Some(text)
}

/// Opens a sealed file's `text`.
///
/// # Errors
/// [`OpenError`].
pub fn open(text: &str, sealing: &SealingKey) -> Result<Intermediate, OpenError> {
    let file: SealedFile = serde_json::from_str(text).map_err(|_| OpenError::Malformed)?;
    let SealedFile { version, role, trust_domain, certificates, sealed_key } = file;
    if version != VERSION {
        return Err(OpenError::Malformed);
    }
    let decode = |text: &String| BASE64.decode(text).map_err(|_| OpenError::Malformed);
    let certificates: Vec<CertificateDer<'static>> =
        certificates.iter().map(|text| decode(text).map(Into::into)).collect::<Result<_, _>>()?;
    let mut sealed = decode(&sealed_key)?;
    let Some(nonce_at) = sealed.len().checked_sub(AES_256_GCM.nonce_len()) else {
        return Err(OpenError::Malformed);
    };
    let nonce = sealed.split_off(nonce_at);
    let nonce =
        aws_lc_rs::aead::Nonce::try_assume_unique_for_key(&nonce).map_err(|_| OpenError::Malformed)?;
    let associated = associated(&role, &trust_domain, &certificates);
    let key = RandomizedNonceKey::new(&AES_256_GCM, &sealing.0).map_err(|_| OpenError::Refused)?;
    let opened = key.open_in_place(nonce, Aad::from(associated), &mut sealed);
    let pkcs8 = PrivatePkcs8KeyDer::from(&*opened.map_err(|_| OpenError::Refused)?);
    let role: Role = role.parse().map_err(|_| OpenError::Malformed)?;
    let domain = trust_domain.parse().map_err(|_| OpenError::Malformed)?;
    let key = KeyPair::try_from(&pkcs8).map_err(NotACa::Unusable)?;
    Ok(Intermediate::load(role, domain, certificates, key)?)
}

impl SealingKey {
    /// Draws a random sealing key.
    ///
    /// # Errors
    /// `Randomness`.
    pub fn generate() -> Result<Self, SealingKeyError> {
        let mut key = [0; 32];
        rand::fill(&mut key).map_err(|_| SealingKeyError::Randomness)?;
        Ok(Self(key))
    }

    /// The text for its file.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("{}\n", BASE64.encode(self.0))
    }
}

impl std::str::FromStr for SealingKey {
    type Err = SealingKeyError;

    fn from_str(text: &str) -> Result<Self, SealingKeyError> {
        let line = text.strip_suffix('\n').unwrap_or(text);
        let bytes = BASE64.decode(line).map_err(|_| SealingKeyError::Malformed)?;
        bytes.try_into().map(Self).map_err(|_| SealingKeyError::Malformed)
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealingKey").finish_non_exhaustive()
    }
}

/// The associated data: everything in the file but the key, each part after its length. So no part can be replaced.
fn associated(role: &str, domain: &str, certificates: &[CertificateDer<'_>]) -> Vec<u8> {
    let parts = [LABEL, role.as_bytes(), domain.as_bytes()];
    let parts = parts.into_iter().chain(certificates.iter().map(AsRef::as_ref));
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part);
    }
    bytes
}

#[cfg(test)]
mod tests;
