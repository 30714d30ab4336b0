//! The keys of a log. The chain key stays secret; the signing key signs checkpoints, and its public half may
//! go anywhere.

use std::fmt;

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use aws_lc_rs::{hmac, rand};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

/// The size of each key, in bytes.
const KEY_BYTES: usize = 32;

/// The size of a mark, in bytes.
const MARK_BYTES: usize = 8;

/// The DER prefix of a SubjectPublicKeyInfo of Ed25519 (RFC 8410, section 4); the key follows.
const SPKI_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

const PEM_HEAD: &str = "-----BEGIN PUBLIC KEY-----";
const PEM_TAIL: &str = "-----END PUBLIC KEY-----";

/// The key of the lines' MACs. Anybody who has it can write a valid chain.
#[derive(Clone)]
pub struct ChainKey {
    bytes: [u8; KEY_BYTES],
    key: hmac::Key,
}

/// The key that signs a server's checkpoints.
#[derive(Clone)]
pub struct SigningKey([u8; KEY_BYTES]);

/// The key that verifies the signatures of checkpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey([u8; KEY_BYTES]);

/// The bytes or the text are no key of an audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAKey {
    /// A chain or signing key must be 32 random bytes.
    #[error("not a key of an audit log: {0} bytes instead of {KEY_BYTES}")]
    Length(usize),
    /// A public key must be PEM of an Ed25519 key.
    #[error(
        "not the public key of an audit log: it is PEM, of an Ed25519 key, and a server writes it to audit.pub"
    )]
    Pem,
}

impl ChainKey {
    /// Bytes of a stored key.
    pub const BYTES: usize = KEY_BYTES;

    /// Generates a random chain key.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn generate() -> Result<Self, Unspecified> {
        Ok(Self::of(random()?))
    }

    /// Reads a key as it is stored: 32 bytes.
    ///
    /// # Errors
    /// [`NotAKey::Length`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NotAKey> {
        bytes.try_into().map(Self::of).map_err(|_| NotAKey::Length(bytes.len()))
    }

    /// The key as it is stored.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; KEY_BYTES] {
        self.bytes
    }

    /// An id of the key that reveals nothing of it.
    #[must_use]
    pub fn mark(&self) -> String {
        let tag = hmac::sign(&self.key, b"tombolo: mark of an audit log's key");
        URL_SAFE_NO_PAD.encode(&tag.as_ref()[..MARK_BYTES])
    }

    pub(crate) fn hmac(&self) -> &hmac::Key {
        &self.key
    }

    fn of(bytes: [u8; KEY_BYTES]) -> Self {
        Self { bytes, key: hmac::Key::new(hmac::HMAC_SHA256, &bytes) }
    }
}

impl SigningKey {
    /// Bytes of a stored key.
    pub const BYTES: usize = KEY_BYTES;

    /// Generates a random signing key.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn generate() -> Result<Self, Unspecified> {
        random().map(Self)
    }

    /// Reads a key as it is stored: 32 bytes.
    ///
    /// # Errors
    /// [`NotAKey::Length`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NotAKey> {
        bytes.try_into().map(Self).map_err(|_| NotAKey::Length(bytes.len()))
    }

    /// The key as it is stored.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; KEY_BYTES] {
        self.0
    }

    /// The public half of this key.
    ///
    /// # Errors
    /// The library refuses the key.
    pub fn public(&self) -> Result<PublicKey, Unspecified> {
        let pair = self.pair()?;
        pair.public_key().as_ref().try_into().map(PublicKey).map_err(|_| Unspecified)
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Result<String, Unspecified> {
        Ok(URL_SAFE_NO_PAD.encode(self.pair()?.sign(message)))
    }

    fn pair(&self) -> Result<Ed25519KeyPair, Unspecified> {
        Ed25519KeyPair::from_seed_unchecked(&self.0).map_err(|_| Unspecified)
    }
}

impl PublicKey {
    /// The key in PEM, as other tools read it.
    #[must_use]
    pub fn to_pem(&self) -> String {
        let der = [&SPKI_HEAD[..], &self.0].concat();
        format!("{PEM_HEAD}\n{}\n{PEM_TAIL}\n", STANDARD.encode(der))
    }

    /// Reads a public key from PEM.
    ///
    /// # Errors
    /// [`NotAKey::Pem`].
    pub fn from_pem(text: &str) -> Result<Self, NotAKey> {
        let inner = text.trim().strip_prefix(PEM_HEAD).and_then(|rest| rest.strip_suffix(PEM_TAIL));
        let der = inner.and_then(|inner| STANDARD.decode(inner.trim()).ok());
        let key = der.as_deref().and_then(|der| der.strip_prefix(&SPKI_HEAD));
        key.and_then(|key| key.try_into().ok()).map(Self).ok_or(NotAKey::Pem)
    }

    pub(crate) fn verifies(&self, message: &[u8], signature: &str) -> bool {
        let Ok(signature) = URL_SAFE_NO_PAD.decode(signature) else { return false };
        UnparsedPublicKey::new(&ED25519, self.0).verify(message, &signature).is_ok()
    }
}

fn random() -> Result<[u8; KEY_BYTES], Unspecified> {
    let mut bytes = [0; KEY_BYTES];
    rand::fill(&mut bytes)?;
    Ok(bytes)
}

impl fmt::Debug for ChainKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChainKey(…)")
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_keys_are_read_back_and_no_two_are_alike() {
        let chain = ChainKey::generate().unwrap();
        assert_eq!(ChainKey::from_bytes(&chain.to_bytes()).unwrap().mark(), chain.mark());
        assert_ne!(ChainKey::generate().unwrap().mark(), chain.mark());
        assert_eq!(ChainKey::from_bytes(&[0; 31]).unwrap_err(), NotAKey::Length(31));

        let signing = SigningKey::generate().unwrap();
        let public = signing.public().unwrap();
        assert_eq!(SigningKey::from_bytes(&signing.to_bytes()).unwrap().public().unwrap(), public);
        assert_eq!(PublicKey::from_pem(&public.to_pem()).unwrap(), public);
        assert_ne!(SigningKey::generate().unwrap().public().unwrap(), public);
    }

    #[test]
    fn a_signature_holds_for_its_message_and_its_key_alone() {
        let signing = SigningKey::generate().unwrap();
        let public = signing.public().unwrap();
        let signature = signing.sign(b"so it was").unwrap();
        assert!(public.verifies(b"so it was", &signature));
        assert!(!public.verifies(b"so it was not", &signature));
        assert!(!SigningKey::generate().unwrap().public().unwrap().verifies(b"so it was", &signature));
        assert!(!public.verifies(b"so it was", ""));
    }
}
