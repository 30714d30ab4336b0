//! A token in clear text, with its ID and its secret.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand;

use super::records::hexadecimal;

const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 32;

/// A token as its holder has it: `ID.SECRET`, in hexadecimal. `Debug` shows only the ID.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerToken {
    id: [u8; ID_BYTES],
    secret: [u8; SECRET_BYTES],
}

/// The text is not a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not a token")]
pub struct NotAToken;

impl BearerToken {
    /// The part of the token that is not secret.
    #[must_use]
    pub fn id(&self) -> String {
        hexadecimal(&self.id)
    }

    /// The complete token, for the client that asked for it.
    #[must_use]
    pub fn reveal(&self) -> String {
        format!("{}.{}", self.id(), hexadecimal(&self.secret))
    }

    pub(super) fn random() -> Option<Self> {
        let (mut id, mut secret) = ([0; ID_BYTES], [0; SECRET_BYTES]);
        rand::fill(&mut id).ok()?;
        rand::fill(&mut secret).ok()?;
        Some(Self { id, secret })
    }

    /// The hash of the secret that is stored, as text. A fast hash is enough, because nobody guesses 256
    /// random bits.
    pub(super) fn hash(&self) -> String {
        hexadecimal(digest(&SHA256, &self.secret).as_ref())
    }
}

impl FromStr for BearerToken {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<Self, NotAToken> {
        let (id, secret) = text.split_once('.').ok_or(NotAToken)?;
        Ok(Self { id: bytes(id).ok_or(NotAToken)?, secret: bytes(secret).ok_or(NotAToken)? })
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BearerToken").field("id", &self.id()).finish_non_exhaustive()
    }
}

fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |of: u8| char::from(of).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}
