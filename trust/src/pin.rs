//! A pin: the hash of a public key, written as `sha256:…`.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::SHA256_OUTPUT_LEN;
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::hash::Hash;

/// The SHA-256 of a `SubjectPublicKeyInfo` in DER, which a new certificate of the same key shares with the old.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pin(Hash);

/// The text is not a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use sha256: and 64 hexadecimal digits, as `tombolo ca show` prints them")]
pub struct NotAPin;

impl Pin {
    /// The pin of a key, from its `SubjectPublicKeyInfo` in DER.
    #[must_use]
    pub fn of_spki(spki: &[u8]) -> Self {
        Self(Hash::of(spki))
    }

    /// The pin of a certificate's key.
    #[must_use]
    pub fn of_certificate(certificate: &X509Certificate<'_>) -> Self {
        Self::of_spki(certificate.public_key().raw)
    }

    /// The pin of a CA's certificate. `None` if it cannot be read, or is of no CA.
    #[must_use]
    pub fn of_ca(der: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        certificate.is_ca().then(|| Self::of_certificate(&certificate))
    }

    /// The bytes of the hash.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; SHA256_OUTPUT_LEN] {
        &self.0.0
    }
}

impl From<[u8; SHA256_OUTPUT_LEN]> for Pin {
    fn from(hash: [u8; SHA256_OUTPUT_LEN]) -> Self {
        Self(Hash(hash))
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Pin {
    type Err = NotAPin;

    fn from_str(text: &str) -> Result<Self, NotAPin> {
        Hash::parse(text).map(Self).ok_or(NotAPin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_is_read_as_it_is_written() {
        let pin = Pin::of_spki(b"a key");
        assert_eq!(pin.to_string().parse(), Ok(pin));
        assert_eq!(pin.to_string().len(), "sha256:".len() + 64);
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
