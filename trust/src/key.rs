//! Public keys whose owners have proved possession of the private key.

use rcgen::{
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PublicKeyData,
    SubjectPublicKeyInfo,
};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer as _;

use crate::pin::Pin;

/// Largest certificate signing request, in bytes. Ours have less than 500.
pub const CSR_BYTES_MAX: usize = 8 * 1024;

/// A public key that may be certified: its owner has proved possession of the private key. Only [`ProvenKey::of_csr`] and
/// [`ProvenKey::of_pair`] make one. Nothing else of a signing request is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenKey(SubjectPublicKeyInfo);

/// The reason why a certificate signing request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CsrError {
    /// It is larger than [`CSR_BYTES_MAX`].
    #[error("the request is larger than {CSR_BYTES_MAX} bytes; send a plain PKCS #10 request")]
    TooLarge,
    /// The bytes are not exactly one PKCS #10 request.
    #[error("the request is not one PKCS #10 request in DER")]
    Malformed,
    /// The key is RSA, on an unsupported curve, or in another encoding.
    #[error("the request's key is of a kind that is not supported; use P-256, P-384 or Ed25519")]
    Key,
    /// The private key did not sign it.
    #[error("the request is not signed by its own key")]
    NotItsOwn,
}

impl ProvenKey {
    /// The key of a certificate signing request (PKCS #10, DER, at most [`CSR_BYTES_MAX`]), after its signature is verified.
    /// Names, extensions and attributes in it are ignored.
    ///
    /// # Errors
    /// [`CsrError`].
    pub fn of_csr(der: &[u8]) -> Result<Self, CsrError> {
        if der.len() > CSR_BYTES_MAX {
            return Err(CsrError::TooLarge);
        }
        let (rest, request) = X509CertificationRequest::from_der(der).map_err(|_| CsrError::Malformed)?;
        if !rest.is_empty() {
            return Err(CsrError::Malformed);
        }
        let key = Self::read(request.certification_request_info.subject_pki.raw).ok_or(CsrError::Key)?;
        request.verify_signature().map_err(|_| CsrError::NotItsOwn)?;
        Ok(key)
    }

    /// The public half of a pair that this process holds. `None` for a kind that [`CsrError::Key`] refuses.
    #[must_use]
    pub fn of_pair(pair: &KeyPair) -> Option<Self> {
        Self::read(&pair.subject_public_key_info())
    }

    /// The key as a `SubjectPublicKeyInfo` in DER (RFC 5280, section 4.1).
    #[must_use]
    pub fn spki(&self) -> Vec<u8> {
        self.0.subject_public_key_info()
    }

    /// The pin of the key.
    #[must_use]
    pub fn pin(&self) -> Pin {
        Pin::of_spki(&self.spki())
    }

    fn read(spki: &[u8]) -> Option<Self> {
        let key = SubjectPublicKeyInfo::from_der(spki).ok()?;
        // The point must be uncompressed, as in TLS; any other form is a second encoding of the same key.
        let fits = match key.algorithm() {
            of if *of == PKCS_ED25519 => key.der_bytes().len() == 32,
            of if *of == PKCS_ECDSA_P256_SHA256 => key.der_bytes().len() == 65,
            of if *of == PKCS_ECDSA_P384_SHA384 => key.der_bytes().len() == 97,
            _ => false,
        };
        (fits && key.subject_public_key_info() == spki).then_some(Self(key))
    }
}

impl PublicKeyData for ProvenKey {
    fn der_bytes(&self) -> &[u8] {
        self.0.der_bytes()
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        self.0.algorithm()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, PKCS_ECDSA_P521_SHA512, PKCS_RSA_SHA256, SignatureAlgorithm};

    use super::*;
    use crate::fixtures::{self, FakeKey};

    const TAKEN: [&SignatureAlgorithm; 3] = [&PKCS_ED25519, &PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384];

    #[test]
    fn a_requests_key_is_the_key_that_signed_it() {
        for algorithm in TAKEN {
            let pair = KeyPair::generate_for(algorithm).unwrap();
            let request = CertificateParams::default().serialize_request(&pair).unwrap();

            let key = ProvenKey::of_csr(request.der()).unwrap();

            assert_eq!(key.spki(), pair.subject_public_key_info());
            assert_eq!((key.der_bytes(), key.algorithm()), (pair.der_bytes(), algorithm));
            assert_eq!(key.pin(), Pin::of_spki(&pair.subject_public_key_info()));
            assert_eq!(ProvenKey::of_pair(&pair), Some(key));
        }
        let other = KeyPair::generate_for(&PKCS_ECDSA_P521_SHA512).unwrap();
        assert_eq!(ProvenKey::of_pair(&other), None);
    }

    /// A request reaches the check of its signature only if its key has a valid form.
    #[test]
    fn a_key_is_of_one_of_three_kinds_and_each_has_one_length() {
        for algorithm in TAKEN.into_iter().chain([&PKCS_ECDSA_P521_SHA512, &PKCS_RSA_SHA256]) {
            for length in [0, 31, 32, 33, 49, 65, 96, 97, 98, 133] {
                let claimed = FakeKey(algorithm, vec![4; length]);
                let request = CertificateParams::default().serialize_request(&claimed).unwrap();
                let fits = TAKEN.iter().zip([32, 65, 97]).any(|found| found == (&algorithm, length));
                let expected = if fits { CsrError::NotItsOwn } else { CsrError::Key };
                assert_eq!(ProvenKey::of_csr(request.der()), Err(expected), "{algorithm:?}, {length} bytes");
            }
        }
    }

    #[test]
    fn a_request_is_one_and_of_a_size() {
        let one = CertificateParams::default().serialize_request(&fixtures::pair()).unwrap().der().to_vec();
        for (bytes, error) in [
            (Vec::new(), CsrError::Malformed),
            (vec![0x30; CSR_BYTES_MAX], CsrError::Malformed),
            (vec![0x30; CSR_BYTES_MAX + 1], CsrError::TooLarge),
            (vec![0x30; 2 * CSR_BYTES_MAX], CsrError::TooLarge),
            ([one.clone(), one.clone()].concat(), CsrError::Malformed),
            ([one.clone(), vec![0]].concat(), CsrError::Malformed),
            (one[..one.len() - 1].to_vec(), CsrError::Malformed),
        ] {
            assert_eq!(ProvenKey::of_csr(&bytes), Err(error), "{} bytes", bytes.len());
        }
    }
}
