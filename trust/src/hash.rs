//! A SHA-256 hash as text: `sha256:` and 64 hexadecimal digits.

use std::fmt;

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};

/// A SHA-256 of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Hash(pub(crate) [u8; SHA256_OUTPUT_LEN]);

const SCHEME: &str = "sha256:";

impl Hash {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut hash = [0; SHA256_OUTPUT_LEN];
        hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
        Self(hash)
    }

    /// Parses the displayed form of a [`struct@Hash`], in upper or lower case.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(SCHEME)?.as_bytes();
        if digits.len() != 2 * SHA256_OUTPUT_LEN {
            return None;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let mut hash = [0; SHA256_OUTPUT_LEN];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(hash))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
