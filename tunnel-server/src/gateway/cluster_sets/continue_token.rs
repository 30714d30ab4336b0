//! The token with which a read of a cluster set goes on: opaque, and good only for the read that it came from.

use aws_lc_rs::hmac;
use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::columns::Column;
use super::error::ClusterSetError;

/// The bytes of a tag, and of the name of a key.
const TAG_BYTES: usize = 32;
const NAME_BYTES: usize = 8;

/// The key of the tokens of one process. After a restart, or at another server, a caller lists anew, as it does when an API
/// server has forgotten a version.
pub(super) struct TokenKey {
    name: [u8; NAME_BYTES],
    key: hmac::Key,
}

/// The place at which a page ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    /// The name of the cluster that is asked next.
    pub(super) cluster: String,
    /// Its own token, if it was not asked to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) inner: Option<String>,
    /// The columns of a table, which the first page has fixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) columns: Option<Vec<Column>>,
}

impl TokenKey {
    /// Makes the key of a process.
    ///
    /// # Panics
    /// If the system has no random numbers.
    pub(super) fn generate() -> Self {
        let (mut name, mut key) = ([0; NAME_BYTES], [0; TAG_BYTES]);
        let random = SystemRandom::new();
        random.fill(&mut name).and_then(|()| random.fill(&mut key)).expect("random numbers");
        Self { name, key: hmac::Key::new(hmac::HMAC_SHA256, &key) }
    }

    /// The token for a position of the read that these texts describe.
    pub(super) fn seal(&self, position: &Position, read: &[&str]) -> String {
        let text = serde_json::to_vec(position).expect("names are strings");
        let tag = self.tag(&text, read);
        URL_SAFE_NO_PAD.encode([&self.name[..], tag.as_ref(), &text].concat())
    }

    /// The position of a token.
    ///
    /// # Errors
    /// The token is of another process, of another read, or was altered.
    pub(super) fn open(&self, token: &str, read: &[&str]) -> Result<Position, ClusterSetError> {
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| ClusterSetError::ContinueRefused)?;
        let (name, rest) = bytes.split_at_checked(NAME_BYTES).ok_or(ClusterSetError::ContinueRefused)?;
        let (tag, text) = rest.split_at_checked(TAG_BYTES).ok_or(ClusterSetError::ContinueRefused)?;
        if name != self.name {
            return Err(ClusterSetError::ContinueExpired);
        }
        let mut signed = Vec::new();
        absorb(&mut signed, text, read);
        hmac::verify(&self.key, &signed, tag).map_err(|_| ClusterSetError::ContinueRefused)?;
        serde_json::from_slice(text).map_err(|_| ClusterSetError::ContinueRefused)
    }

    fn tag(&self, text: &[u8], read: &[&str]) -> hmac::Tag {
        let mut signed = Vec::new();
        absorb(&mut signed, text, read);
        hmac::sign(&self.key, &signed)
    }
}

/// Writes each text with its length, so that no two reads look alike.
fn absorb(signed: &mut Vec<u8>, text: &[u8], read: &[&str]) {
    for part in read.iter().map(|part| part.as_bytes()).chain([text]) {
        signed.extend_from_slice(&(part.len() as u64).to_be_bytes());
        signed.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_its_own_read_and_process_alone() {
        let (key, other) = (TokenKey::generate(), TokenKey::generate());
        let position = Position { cluster: "edge-a".to_owned(), inner: Some("x".to_owned()), columns: None };
        let read = ["global", "/api/v1/pods?"];
        let token = key.seal(&position, &read);

        assert_eq!(key.open(&token, &read), Ok(position));
        assert_eq!(other.open(&token, &read), Err(ClusterSetError::ContinueExpired));
        for read in [["other", "/api/v1/pods?"], ["global", "/api/v1/secrets?"], ["globa", "l/api/v1/pods?"]]
        {
            assert_eq!(key.open(&token, &read), Err(ClusterSetError::ContinueRefused));
        }
        let mut altered = URL_SAFE_NO_PAD.decode(&token).unwrap();
        for at in NAME_BYTES..altered.len() {
            altered[at] ^= 1;
            let token = URL_SAFE_NO_PAD.encode(&altered);
            assert_eq!(key.open(&token, &read), Err(ClusterSetError::ContinueRefused), "byte {at}");
            altered[at] ^= 1;
        }
        for garbage in ["", "x", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTIzfQ", "ä"] {
            assert!(key.open(garbage, &read).is_err(), "{garbage}");
        }
    }
}
