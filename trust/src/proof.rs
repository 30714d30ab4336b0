//! A signature that shows, on one TLS connection and there alone, that its sender holds a key.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519, UnparsedPublicKey, VerificationAlgorithm,
};
use rcgen::{
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PublicKeyData as _,
    SigningKey as _, SubjectPublicKeyInfo,
};

use crate::hash::Hash;
use crate::serial::Serial;

/// What the connection's exporter (RFC 8446, section 7.5) is asked with.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-tombolo-proof";

/// How much of it is signed.
pub const EXPORTER_BYTES: usize = 32;

/// How long the server's nonce is that a newcomer signs.
pub const NONCE_BYTES: usize = 32;

/// What a signature is for. One for one purpose is none for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The old key asks for a certificate of the new one.
    Renewal,
    /// The new key takes over a tunnel that was opened with the old one.
    Extension,
}

/// What a proof says: on the connection with this exporter, about the certificate with this serial number and this other
/// key (`SubjectPublicKeyInfo`, DER).
#[derive(Clone, Copy, Debug)]
pub struct Proof<'a> {
    /// For what.
    pub purpose: Purpose,
    /// Of the connection.
    pub exporter: &'a [u8; EXPORTER_BYTES],
    /// Of the old certificate at a renewal, of the new one at an extension.
    pub serial: Serial,
    /// The new key.
    pub spki: &'a [u8],
}

/// What a newcomer without any certificate says: that on this connection, asked with this nonce, the token is shown by who
/// holds the key.
#[derive(Clone, Copy)]
pub struct Newcomer<'a> {
    /// Of the connection.
    pub exporter: &'a [u8; EXPORTER_BYTES],
    /// The server's.
    pub nonce: &'a [u8; NONCE_BYTES],
    /// The token that is shown.
    pub token: &'a str,
    /// The key that a certificate is asked for, and that signs.
    pub spki: &'a [u8],
}

impl Proof<'_> {
    /// Signs it; `None` where the key is of a kind that cannot.
    #[must_use]
    pub fn sign(&self, key: &KeyPair) -> Option<Vec<u8>> {
        key.sign(&self.message()).ok()
    }

    /// Whether the owner of the key `by` (`SubjectPublicKeyInfo`, DER) signed it.
    #[must_use]
    pub fn is_signed(&self, by: &[u8], signature: &[u8]) -> bool {
        is_signed(&self.message(), by, signature)
    }

    /// Everything but the key has one length for each purpose, so that no two proofs have one message.
    fn message(&self) -> Vec<u8> {
        let label: &[u8] = match self.purpose {
            Purpose::Renewal => b"tombolo renewal 1\0",
            Purpose::Extension => b"tombolo extension 1\0",
        };
        [label, self.exporter, &self.serial.to_bytes(), self.spki].concat()
    }
}

impl Newcomer<'_> {
    /// Signs it; `None` where the key is of a kind that cannot.
    #[must_use]
    pub fn sign(&self, key: &KeyPair) -> Option<Vec<u8>> {
        key.sign(&self.message()).ok()
    }

    /// Whether the owner of its key signed it.
    #[must_use]
    pub fn is_signed(&self, signature: &[u8]) -> bool {
        is_signed(&self.message(), self.spki, signature)
    }

    /// The token by its digest, so that everything but the key has one length.
    fn message(&self) -> Vec<u8> {
        let label: &[u8] = b"tombolo attestation 1\0";
        let Hash(token) = Hash::of(self.token.as_bytes());
        [label, self.exporter, self.nonce, &token, self.spki].concat()
    }
}

fn is_signed(message: &[u8], by: &[u8], signature: &[u8]) -> bool {
    let Ok(key) = SubjectPublicKeyInfo::from_der(by) else { return false };
    let algorithm: &dyn VerificationAlgorithm = match key.algorithm() {
        of if *of == PKCS_ECDSA_P256_SHA256 => &ECDSA_P256_SHA256_ASN1,
        of if *of == PKCS_ECDSA_P384_SHA384 => &ECDSA_P384_SHA384_ASN1,
        of if *of == PKCS_ED25519 => &ED25519,
        _ => return false,
    };
    UnparsedPublicKey::new(algorithm, key.der_bytes()).verify(message, signature).is_ok()
}

#[cfg(test)]
mod tests {
    use rcgen::{PKCS_ECDSA_P521_SHA512, SignatureAlgorithm};

    use super::*;
    use crate::made::{Claimed, pair};

    #[test]
    fn a_proof_holds_for_its_key_purpose_connection_certificate_and_new_key_alone() {
        let (key, other) = (pair(), pair());
        let (exporter, elsewhere) = ([1; EXPORTER_BYTES], [2; EXPORTER_BYTES]);
        let serial = Serial::random().unwrap();
        let proof = Proof { purpose: Purpose::Renewal, exporter: &exporter, serial, spki: b"new" };
        let signature = proof.sign(&key).unwrap();
        let by = key.subject_public_key_info();

        assert!(proof.is_signed(&by, &signature));
        assert!(!proof.is_signed(&other.subject_public_key_info(), &signature));
        for changed in [
            Proof { purpose: Purpose::Extension, ..proof },
            Proof { exporter: &elsewhere, ..proof },
            Proof { serial: Serial::random().unwrap(), ..proof },
            Proof { spki: b"another", ..proof },
        ] {
            assert!(!changed.is_signed(&by, &signature), "{changed:?}");
        }
        assert!(!proof.is_signed(b"no key", &signature) && !proof.is_signed(&by, b"no signature"));
    }

    #[test]
    fn a_newcomers_proof_holds_for_its_connection_nonce_token_and_key_alone() {
        let (key, other) = (pair(), pair());
        let (exporter, elsewhere) = ([1; EXPORTER_BYTES], [2; EXPORTER_BYTES]);
        let (nonce, later) = ([1; NONCE_BYTES], [2; NONCE_BYTES]);
        let (spki, of_other) = (key.subject_public_key_info(), other.subject_public_key_info());
        let said = Newcomer { exporter: &exporter, nonce: &nonce, token: "token", spki: &spki };
        let signature = said.sign(&key).unwrap();

        assert!(said.is_signed(&signature));
        assert!(!said.is_signed(&said.sign(&other).unwrap()), "another key has signed");
        for changed in [
            Newcomer { exporter: &elsewhere, ..said },
            Newcomer { nonce: &later, ..said },
            Newcomer { token: "another", ..said },
            Newcomer { spki: &of_other, ..said },
        ] {
            assert!(!changed.is_signed(&signature));
        }
        assert!(!said.is_signed(b"no signature"));
    }

    #[test]
    fn keys_of_three_kinds_prove_something_each_as_what_it_is() {
        let taken: [&SignatureAlgorithm; 3] =
            [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519];
        for algorithm in taken.into_iter().chain([&PKCS_ECDSA_P521_SHA512]) {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let (exporter, serial) = ([1; EXPORTER_BYTES], Serial::from([1; 16]));
            let proof = Proof { purpose: Purpose::Renewal, exporter: &exporter, serial, spki: b"new" };
            let signature = proof.sign(&key).unwrap();
            for said in taken.into_iter().chain([&PKCS_ECDSA_P521_SHA512]) {
                let by = Claimed(said, key.der_bytes().to_vec()).subject_public_key_info();
                let is_taken = said == algorithm && taken.contains(&said);
                assert_eq!(proof.is_signed(&by, &signature), is_taken, "{algorithm:?}, said to be {said:?}");
            }
        }
    }
}
