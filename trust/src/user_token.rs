//! Static tokens of callers. The server stores only their digests.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::hash::Hash;

/// The SHA-256 of a token. The token has so many random bits that nobody can find it from the digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenDigest(Hash);

/// The text is not the digest of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use sha256: and 64 hexadecimal digits, as `tombolo user token create` prints them")]
pub struct NotATokenDigest;

/// The prefix of every token, so that secret scanners recognize one, in a repository for example.
const BEGIN: &str = "tombolo-user-";

/// The number of random bits in a token.
const RANDOM_BITS: usize = 256;

impl TokenDigest {
    /// The digest of a token.
    #[must_use]
    pub fn of(token: &[u8]) -> Self {
        Self(Hash::of(token))
    }

    /// The digest of this digest: an id for the token that reveals nothing.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        Hash::of(&self.0.0).0
    }
}

/// Generates a token of 256 random bits; `None` if the system gives no random bytes.
#[must_use]
pub fn generate() -> Option<String> {
    let mut bits = [0; RANDOM_BITS / 8];
    rand::fill(&mut bits).ok()?;
    Some(format!("{BEGIN}{}", URL_SAFE_NO_PAD.encode(bits)))
}

impl FromStr for TokenDigest {
    type Err = NotATokenDigest;

    fn from_str(text: &str) -> Result<Self, NotATokenDigest> {
        Hash::parse(text).map(Self).ok_or(NotATokenDigest)
    }
}

impl fmt::Display for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenDigest")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_is_written_and_shows_itself_nowhere_else() {
        let digest = TokenDigest::of(b"sesame");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert_eq!("sesame".parse::<TokenDigest>(), Err(NotATokenDigest));
        assert_eq!(format!("{digest:?}"), "TokenDigest");
    }

    #[test]
    fn a_tokens_name_is_the_digest_of_its_digest() {
        // `printf sesame | sha256sum`, and the same of those 32 bytes.
        let once = "sha256:d0c04f4b1951e4aeaaec8223ed2039e542f3aae805a6fa7f6d794e5afff5d272";
        let twice = "sha256:d610333a4e6cebafc873b63a7e4b21cf5b9bfb1113d703056badc4bf231521f4";
        assert_eq!(TokenDigest::of(b"sesame").to_string(), once);
        assert_eq!(Hash(TokenDigest::of(b"sesame").digest()).to_string(), twice);
    }

    #[test]
    fn tokens_are_long_and_no_two_are_alike() {
        let (one, other) = (generate().unwrap(), generate().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.len(), BEGIN.len() + RANDOM_BITS.div_ceil(6));
    }
}
