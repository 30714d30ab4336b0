//! A public key by its hash, as people carry it: `sha256:…`.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use x509_parser::prelude::X509Certificate;

/// The SHA-256 of a `SubjectPublicKeyInfo` in DER, which a new certificate of the same key shares with the old.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pin([u8; SHA256_OUTPUT_LEN]);

/// Not a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use sha256: and 64 hexadecimal digits, as `tombolo ca show` prints them")]
pub struct NotAPin;

const SCHEME: &str = "sha256:";

impl Pin {
    /// Of a key.
    #[must_use]
    pub fn of_spki(spki: &[u8]) -> Self {
        let mut hash = [0; SHA256_OUTPUT_LEN];
        hash.copy_from_slice(digest(&SHA256, spki).as_ref());
        Self(hash)
    }

    /// Of a certificate's key.
    #[must_use]
    pub fn of_certificate(certificate: &X509Certificate<'_>) -> Self {
        Self::of_spki(certificate.public_key().raw)
    }

    /// The hash.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; SHA256_OUTPUT_LEN] {
        &self.0
    }
}

impl From<[u8; SHA256_OUTPUT_LEN]> for Pin {
    fn from(hash: [u8; SHA256_OUTPUT_LEN]) -> Self {
        Self(hash)
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Pin {
    type Err = NotAPin;

    fn from_str(text: &str) -> Result<Self, NotAPin> {
        let digits = text.strip_prefix(SCHEME).ok_or(NotAPin)?.as_bytes();
        if digits.len() != 2 * SHA256_OUTPUT_LEN {
            return Err(NotAPin);
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let mut hash = [0; SHA256_OUTPUT_LEN];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else {
                return Err(NotAPin);
            };
            *byte = high << 4 | low;
        }
        Ok(Self(hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_is_read_as_it_is_written() {
        let pin = Pin::of_spki(b"a key");
        assert_eq!(pin.to_string().parse(), Ok(pin));
        assert_eq!(pin.to_string().len(), SCHEME.len() + 64);
    }

    #[test]
    fn what_is_no_pin_is_refused() {
        let digits = "0".repeat(64);
        for text in [
            digits.clone(),
            format!("sha1:{digits}"),
            format!("sha256:{digits}0"),
            format!("sha256:{}", &digits[1..]),
            format!("sha256:{}g", &digits[1..]),
            format!("sha256:{}ä", &digits[2..]),
        ] {
            assert_eq!(text.parse::<Pin>(), Err(NotAPin), "{text}");
        }
    }
}
