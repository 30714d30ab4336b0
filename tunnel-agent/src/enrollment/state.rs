//! What an enrolled agent keeps in its state directory: its key, its certificate, and whom it trusts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use daemon::StateDir;
use daemon::state_dir::StateError;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData as _};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};

/// One file, so that key and certificate are replaced together.
const FILE: &str = "identity.json";

/// Largest file: the longest chain and eight roots, and to spare.
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// The form of the file.
const VERSION: u32 = 1;

/// What is kept. `Debug` shows no key.
pub(super) struct Kept {
    /// The key of `chain`; before the first certificate, the one that it is asked for.
    pub(super) key: KeyPair,
    /// Leaf first; empty before the agent was enrolled.
    pub(super) chain: Vec<CertificateDer<'static>>,
    /// The roots that servers' certificates must chain to.
    pub(super) server_roots: Vec<CertificateDer<'static>>,
    /// The key of the next certificate: written before it is asked for, so that a lost answer is asked for again with it.
    pub(super) next: Option<KeyPair>,
}

/// Why what is kept cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// The state directory.
    #[error(transparent)]
    State(#[from] StateError),
    /// It is damaged, or of a later version.
    #[error(
        "{0} is not an identity of this version of the agent: restore it, or remove it and enroll the agent with a new token"
    )]
    Damaged(String),
    /// No key could be made.
    #[error("no key could be made")]
    Key(#[source] rcgen::Error),
}

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Written {
    version: u32,
    key: String,
    chain: Vec<String>,
    server_roots: Vec<String>,
    next_key: Option<String>,
}

impl Kept {
    /// What is there, if anything is. Blocks.
    pub(super) fn read(state: &StateDir) -> Result<Option<Self>, KeptError> {
        let Some(bytes) = state.read(FILE, FILE_BYTES_MAX)? else { return Ok(None) };
        let damaged = || KeptError::Damaged(state.path().join(FILE).display().to_string());
        Self::parse(&bytes).map(Some).ok_or_else(damaged)
    }

    /// One with a new key and no certificate.
    pub(super) fn new() -> Result<Self, KeptError> {
        let (chain, server_roots) = (Vec::new(), Vec::new());
        Ok(Self { key: new_key()?, chain, server_roots, next: None })
    }

    /// Replaces what is there by this; after a crash it is all of the one or all of the other. Blocks.
    pub(super) fn write(&self, state: &StateDir) -> Result<(), KeptError> {
        let texts = |ders: &[CertificateDer<'_>]| ders.iter().map(|der| BASE64.encode(der)).collect();
        let written = Written {
            version: VERSION,
            key: BASE64.encode(self.key.serialize_der()),
            chain: texts(&self.chain),
            server_roots: texts(&self.server_roots),
            next_key: self.next.as_ref().map(|key| BASE64.encode(key.serialize_der())),
        };
        let bytes = serde_json::to_vec_pretty(&written).map_err(|_| KeptError::Damaged(FILE.to_owned()))?;
        Ok(state.write(FILE, &bytes)?)
    }

    /// The key of which the next certificate is asked for, if there is one: before the first, the only one.
    pub(super) fn asking(&self) -> Option<&KeyPair> {
        if self.chain.is_empty() { Some(&self.key) } else { self.next.as_ref() }
    }

    /// The key, as TLS wants it.
    pub(super) fn tls_key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.serialize_der()).into()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let written: Written = serde_json::from_slice(bytes).ok()?;
        let Written { version, key, chain, server_roots, next_key } = written;
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
        let kept = Self { key: read(key)?, chain: ders(chain)?, server_roots: ders(server_roots)?, next };
        (version == VERSION).then_some(kept)
    }
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").field("certificates", &self.chain.len()).finish_non_exhaustive()
    }
}

/// A key of the one kind that agents have.
pub(super) fn new_key() -> Result<KeyPair, KeptError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(KeptError::Key)
}

/// A key as a `SubjectPublicKeyInfo`, DER.
pub(super) fn spki(key: &KeyPair) -> Vec<u8> {
    key.subject_public_key_info()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_there_again_and_closed_to_others() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open(&folder.path().join("state")).unwrap();
        assert!(Kept::read(&state).unwrap().is_none());
        let mut kept = Kept::new().unwrap();
        kept.next = Some(new_key().unwrap());
        kept.chain.push(CertificateDer::from(vec![1, 2, 3]));

        kept.write(&state).unwrap();

        let again = Kept::read(&state).unwrap().expect("it is there");
        assert_eq!(spki(&again.key), spki(&kept.key));
        assert_eq!(again.next.map(|key| spki(&key)), kept.next.map(|key| spki(&key)));
        assert_eq!(again.chain, kept.chain);
        let mode = std::fs::metadata(state.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn what_is_damaged_is_an_error_that_says_what_to_do_and_shows_no_key() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open(&folder.path().join("state")).unwrap();
        let kept = Kept::new().unwrap();
        kept.write(&state).unwrap();
        let whole = state.read(FILE, FILE_BYTES_MAX).unwrap().unwrap();
        for damaged in [&b""[..], b"{}", &whole[..whole.len() - 3]] {
            state.write(FILE, damaged).unwrap();
            let error = Kept::read(&state).unwrap_err().to_string();
            assert!(error.contains("identity.json") && error.contains("new token"), "{error}");
        }
        assert!(!format!("{kept:?}").contains(&BASE64.encode(kept.key.serialize_der())));
    }
}
