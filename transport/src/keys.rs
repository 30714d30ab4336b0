//! The keys that an endpoint keeps over a restart.

use std::fmt;

use aws_lc_rs::{hkdf, hmac, rand};

/// Length of each key, in bytes.
const KEY_BYTES: usize = 32;

/// Length of a mark, in bytes. Two different keys practically never have the same mark.
const MARK_BYTES: usize = 8;

/// The keys by which peers recognize a restarted endpoint.
///
/// With the same keys it answers packets of connections it no longer knows with a stateless reset (RFC 9000,
/// section 10.3), so that the peer notices at once. They are persisted together, the connection-ID key
/// included: an endpoint does not answer packets whose connection ID it takes for another server's.
#[derive(Clone, PartialEq, Eq)]
pub struct EndpointKeys {
    reset: [u8; KEY_BYTES],
    connection_id: [u8; KEY_BYTES],
    token: [u8; KEY_BYTES],
}

/// The stored bytes are not the keys of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the keys of an endpoint: {0} bytes instead of {expected}", expected = EndpointKeys::BYTES)]
pub struct NotKeys(usize);

impl EndpointKeys {
    /// Length of `to_bytes`, in bytes.
    pub const BYTES: usize = 3 * KEY_BYTES;

    /// Generates new random keys from the system's generator.
    ///
    /// # Errors
    /// `Unspecified`, if the system gives no random bytes.
    pub fn generate() -> Result<Self, aws_lc_rs::error::Unspecified> {
        let mut bytes = [0; Self::BYTES];
        rand::fill(&mut bytes)?;
        Ok(Self::split(&bytes))
    }

    /// The keys as they are stored.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (part, key) in
            bytes.chunks_exact_mut(KEY_BYTES).zip([&self.reset, &self.connection_id, &self.token])
        {
            part.copy_from_slice(key);
        }
        bytes
    }

    /// Reads the keys as they are stored.
    ///
    /// # Errors
    /// `NotKeys`, where the length is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NotKeys> {
        bytes.try_into().map(Self::split).map_err(|_| NotKeys(bytes.len()))
    }

    /// A digest that identifies these keys without revealing them: two servers with the same mark have the
    /// same keys.
    #[must_use]
    pub fn mark(&self) -> [u8; MARK_BYTES] {
        let tag = hmac::sign(&self.reset_key(), b"tombolo: mark of an endpoint's keys");
        let mut mark = [0; MARK_BYTES];
        mark.copy_from_slice(&tag.as_ref()[..MARK_BYTES]);
        mark
    }

    pub(crate) fn reset_key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.reset)
    }

    pub(crate) fn connection_id_key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.connection_id)
    }

    pub(crate) fn token_key(&self) -> hkdf::Prk {
        hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(&self.token)
    }

    fn split(bytes: &[u8; Self::BYTES]) -> Self {
        let key = |index: usize| {
            let mut key = [0; KEY_BYTES];
            key.copy_from_slice(&bytes[index * KEY_BYTES..(index + 1) * KEY_BYTES]);
            key
        };
        Self { reset: key(0), connection_id: key(1), token: key(2) }
    }
}

impl fmt::Debug for EndpointKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EndpointKeys(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_keys_are_read_back_and_no_two_are_alike() {
        let keys = EndpointKeys::generate().unwrap();
        assert_eq!(EndpointKeys::from_bytes(&keys.to_bytes()), Ok(keys.clone()));
        assert_ne!(EndpointKeys::generate().unwrap(), keys);
        assert!(keys.reset != keys.token && keys.token != keys.connection_id);
    }

    #[test]
    fn keys_that_were_copied_have_the_same_mark_and_others_another() {
        let keys = EndpointKeys::generate().unwrap();
        let copied = EndpointKeys::from_bytes(&keys.to_bytes()).unwrap();
        assert_eq!(keys.mark(), copied.mark());
        assert_ne!(keys.mark(), EndpointKeys::generate().unwrap().mark());
    }

    #[test]
    fn half_a_file_is_refused() {
        assert_eq!(EndpointKeys::from_bytes(&[0; 95]), Err(NotKeys(95)));
    }
}
