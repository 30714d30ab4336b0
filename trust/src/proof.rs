//! Signatures by which a peer proves, on one TLS connection only, that it holds a key.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519, UnparsedPublicKey, VerificationAlgorithm,
};
use rcgen::{
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PublicKeyData as _,
    SigningKey as _, SubjectPublicKeyInfo,
};

use crate::hash::Hash;
use crate::serial::Serial;

/// The label for the connection's exporter (RFC 8446, section 7.5).
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-tombolo-proof";

/// The number of exported bytes that are signed.
pub const EXPORTER_BYTES: usize = 32;

/// The length of the server's nonce, which an enrolling agent signs.
pub const NONCE_BYTES: usize = 32;

/// The purpose of a signature. A signature for one purpose is invalid for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The holder of the old key asks for a certificate of the new key.
    Renewal,
    /// The holder of the new key extends a tunnel that was opened with the old one.
    Extension,
}

/// The statement of a proof: on the connection with this exporter, for the certificate with this serial
/// number and this new key (`SubjectPublicKeyInfo`, DER).
#[derive(Clone, Copy, Debug)]
pub struct Proof<'a> {
    /// The purpose of the signature.
    pub purpose: Purpose,
    /// The exported bytes of the connection.
    pub exporter: &'a [u8; EXPORTER_BYTES],
    /// The serial number of the old certificate at a renewal, of the new one at an extension.
    pub serial: Serial,
    /// The new public key, in DER.
    pub spki: &'a [u8],
}

/// The statement of an agent without a certificate: on this connection, with this nonce, the holder of the
/// key shows this token.
#[derive(Clone, Copy)]
pub struct Attestation<'a> {
    /// The exported bytes of the connection.
    pub exporter: &'a [u8; EXPORTER_BYTES],
    /// The nonce of the server.
    pub nonce: &'a [u8; NONCE_BYTES],
    /// The token that the agent shows.
    pub token: &'a str,
    /// The key to certify, which also signs.
    pub spki: &'a [u8],
}

impl Proof<'_> {
    /// Signs the statement; `None` if the key's algorithm is not supported.
    #[must_use]
    pub fn sign(&self, key: &KeyPair) -> Option<Vec<u8>> {
        key.sign(&self.message()).ok()
    }

    /// Returns true if the signature is by the key `by` (`SubjectPublicKeyInfo`, DER).
    #[must_use]
    pub fn is_signed(&self, by: &[u8], signature: &[u8]) -> bool {
        is_signed(&self.message(), by, signature)
    }

    /// The signed message. All parts but the key have a fixed length, so that no two proofs share a message.
    fn message(&self) -> Vec<u8> {
        let label: &[u8] = match self.purpose {
            Purpose::Renewal => b"tombolo renewal 1\0",
            Purpose::Extension => b"tombolo extension 1\0",
        };
        [label, self.exporter, &self.serial.to_bytes(), self.spki].concat()
    }
}

impl Attestation<'_> {
    /// Signs the statement; `None` if the key's algorithm is not supported.
    #[must_use]
    pub fn sign(&self, key: &KeyPair) -> Option<Vec<u8>> {
        key.sign(&self.message()).ok()
    }

    /// Returns true if the signature is by the key in the statement.
    #[must_use]
    pub fn is_signed(&self, signature: &[u8]) -> bool {
        is_signed(&self.message(), self.spki, signature)
    }

    /// The signed message. It has the token's digest, so that all parts but the key have a fixed length.
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
    use crate::fixtures::{FakeKey, pair};

    #[test]
    fn a_proof_is_valid_for_exactly_its_own_statement_and_key() {
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
    fn an_attestation_is_valid_for_exactly_its_own_statement() {
        let (key, other) = (pair(), pair());
        let (exporter, elsewhere) = ([1; EXPORTER_BYTES], [2; EXPORTER_BYTES]);
        let (nonce, later) = ([1; NONCE_BYTES], [2; NONCE_BYTES]);
        let (spki, of_other) = (key.subject_public_key_info(), other.subject_public_key_info());
        let attestation = Attestation { exporter: &exporter, nonce: &nonce, token: "token", spki: &spki };
        let signature = attestation.sign(&key).unwrap();

        assert!(attestation.is_signed(&signature));
        assert!(!attestation.is_signed(&attestation.sign(&other).unwrap()), "another key has signed");
        for changed in [
            Attestation { exporter: &elsewhere, ..attestation },
            Attestation { nonce: &later, ..attestation },
            Attestation { token: "another", ..attestation },
            Attestation { spki: &of_other, ..attestation },
        ] {
            assert!(!changed.is_signed(&signature));
        }
        assert!(!attestation.is_signed(b"no signature"));
    }

    #[test]
    fn keys_of_three_algorithms_sign_proofs_each_under_its_own() {
        let taken: [&SignatureAlgorithm; 3] =
            [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519];
        for algorithm in taken.into_iter().chain([&PKCS_ECDSA_P521_SHA512]) {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let (exporter, serial) = ([1; EXPORTER_BYTES], Serial::from([1; 16]));
            let proof = Proof { purpose: Purpose::Renewal, exporter: &exporter, serial, spki: b"new" };
            let signature = proof.sign(&key).unwrap();
            for claimed in taken.into_iter().chain([&PKCS_ECDSA_P521_SHA512]) {
                let by = FakeKey(claimed, key.der_bytes().to_vec()).subject_public_key_info();
                let is_taken = claimed == algorithm && taken.contains(&claimed);
                assert_eq!(
                    proof.is_signed(&by, &signature),
                    is_taken,
                    "{algorithm:?}, claimed as {claimed:?}"
                );
            }
        }
    }
}
