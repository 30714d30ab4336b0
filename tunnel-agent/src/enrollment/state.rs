//! The state of an enrolled agent on disk: its key, its certificate, and the roots that it trusts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use daemon::state_dir::StateError;
use daemon::{StateDir, StateFile};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData as _};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};

/// The file. It is one file, so that key and certificate are replaced together.
const FILE: StateFile = StateFile::Identity;

/// Largest file, in bytes. It has room for the longest chain and eight roots.
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// Version of the file's format.
const VERSION: u32 = 1;

/// The key, certificate and roots. `Debug` shows no key.
pub(super) struct EnrollmentState {
    /// The key of `chain`. Before the first certificate, the key that requests it.
    pub(super) key: KeyPair,
    /// The certificate chain, leaf first. Empty before the agent is enrolled.
    pub(super) chain: Vec<CertificateDer<'static>>,
    /// The roots to which servers' certificates have to chain.
    pub(super) server_roots: Vec<CertificateDer<'static>>,
    /// The key of the next certificate. It is stored before the request, so that the same key is used again
    /// if the answer is lost.
    pub(super) next: Option<KeyPair>,
}

/// The stored state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EnrollmentStateError {
    /// The state directory cannot be read or written.
    #[error(transparent)]
    State(#[from] StateError),
    /// No key could be generated.
    #[error("no key could be made")]
    Key(#[source] rcgen::Error),
}

/// The file is damaged, or of a later version.
#[derive(Debug, thiserror::Error)]
#[error("it is not an identity of this version of the agent")]
struct NotAnIdentity;

/// The format of the file. Certificates and keys are base64 of DER.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct IdentityFile {
    version: u32,
    key: String,
    chain: Vec<String>,
    server_roots: Vec<String>,
    next_key: Option<String>,
}

impl EnrollmentState {
    /// Reads the state, if there is any. Blocks.
    pub(super) fn read(state: &StateDir) -> Result<Option<Self>, EnrollmentStateError> {
        Ok(state.read(FILE, FILE_BYTES_MAX, |bytes| Self::parse(bytes).ok_or(NotAnIdentity))?)
    }

    /// A state with a new key and no certificate.
    pub(super) fn new() -> Result<Self, EnrollmentStateError> {
        let (chain, server_roots) = (Vec::new(), Vec::new());
        Ok(Self { key: new_key()?, chain, server_roots, next: None })
    }

    /// Replaces the state on disk. After a crash it is either the old or the new one. Blocks.
    pub(super) fn write(&self, state: &StateDir) -> Result<(), EnrollmentStateError> {
        let texts = |ders: &[CertificateDer<'_>]| ders.iter().map(|der| BASE64.encode(der)).collect();
        let file = IdentityFile {
            version: VERSION,
            key: BASE64.encode(self.key.serialize_der()),
            chain: texts(&self.chain),
            server_roots: texts(&self.server_roots),
            next_key: self.next.as_ref().map(|key| BASE64.encode(key.serialize_der())),
        };
        let bytes = serde_json::to_vec_pretty(&file).map_err(|error| StateError::Io {
            act: "write",
            path: state.path_of(FILE),
            file: FILE,
            source: error.into(),
        })?;
        Ok(state.write(FILE, &bytes)?)
    }

    /// The key that requests the next certificate, if there is one. Before the first certificate it is the
    /// only key.
    pub(super) fn requesting_key(&self) -> Option<&KeyPair> {
        if self.chain.is_empty() { Some(&self.key) } else { self.next.as_ref() }
    }

    /// The key in the form that TLS needs.
    pub(super) fn tls_key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.serialize_der()).into()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let file: IdentityFile = serde_json::from_slice(bytes).ok()?;
        let IdentityFile { version, key, chain, server_roots, next_key } = file;
        let ders = |texts: Vec<String>| -> Option<Vec<CertificateDer<'static>>> {
            texts.iter().map(|text| BASE64.decode(text).ok().map(CertificateDer::from)).collect()
        };
        let read = |text: String| {
            let der = PrivatePkcs8KeyDer::from(BASE64.decode(text).ok()?);
            KeyPair::try_from(&der).ok()
        };
        let next = match next_key {
            Some(text) => Some(read(text)?),
            None => None,
        };
        let stored = Self { key: read(key)?, chain: ders(chain)?, server_roots: ders(server_roots)?, next };
        (version == VERSION).then_some(stored)
    }
}

impl std::fmt::Debug for EnrollmentState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EnrollmentState").field("certificates", &self.chain.len()).finish_non_exhaustive()
    }
}

/// Generates a key of the only kind that agents use, ECDSA P-256.
pub(super) fn new_key() -> Result<KeyPair, EnrollmentStateError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(EnrollmentStateError::Key)
}

/// The public key as a `SubjectPublicKeyInfo` in DER.
pub(super) fn spki(key: &KeyPair) -> Vec<u8> {
    key.subject_public_key_info()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_state_is_read_again_and_closed_to_others() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open(&folder.path().join("state")).unwrap();
        assert!(EnrollmentState::read(&state).unwrap().is_none());
        let mut stored = EnrollmentState::new().unwrap();
        stored.next = Some(new_key().unwrap());
        stored.chain.push(CertificateDer::from(vec![1, 2, 3]));

        stored.write(&state).unwrap();

        let again = EnrollmentState::read(&state).unwrap().expect("it is there");
        assert_eq!(spki(&again.key), spki(&stored.key));
        assert_eq!(again.next.map(|key| spki(&key)), stored.next.map(|key| spki(&key)));
        assert_eq!(again.chain, stored.chain);
        let mode = std::fs::metadata(state.path_of(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_file_is_an_error_with_advice_and_without_a_key() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open(&folder.path().join("state")).unwrap();
        let stored = EnrollmentState::new().unwrap();
        stored.write(&state).unwrap();
        let whole = std::fs::read(state.path_of(FILE)).unwrap();
        for damaged in [&b""[..], b"{}", &whole[..whole.len() - 3]] {
            state.write(FILE, damaged).unwrap();
            let error = EnrollmentState::read(&state).unwrap_err().to_string();
            assert!(error.contains("identity.json") && error.contains("new token"), "{error}");
        }
        assert!(!format!("{stored:?}").contains(&BASE64.encode(stored.key.serialize_der())));
    }
}
