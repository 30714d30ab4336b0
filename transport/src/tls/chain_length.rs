//! Refuses certificate chains that are too long to be verified cheaply.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};

/// Most certificates that a peer may present, its own included. Ours are two: a leaf and an intermediate.
///
/// A verifier that searches a path from a certificate to a root tries each that could have issued the last
/// one. Sixty of one name took 0.7 s of CPU without optimisation, where a hundred that do not fit took 1 ms
/// (RUSTSEC-2023-0053), and the peer that presents them is not authenticated yet.
pub const CHAIN_CERTIFICATES_MAX: usize = 5;

#[derive(Debug, thiserror::Error)]
#[error(
    "{0} certificates were shown, show {CHAIN_CERTIFICATES_MAX} at most: the peer's own and what is between it and the root"
)]
struct TooLong(usize);

/// Checks the length of a chain before another verifier verifies it.
#[derive(Debug)]
pub struct ChainLengthVerifier(Arc<dyn ClientCertVerifier>);

impl ChainLengthVerifier {
    /// Wraps `verifier`, so that it sees short chains only.
    #[must_use]
    pub fn wrap(verifier: Arc<dyn ClientCertVerifier>) -> Arc<dyn ClientCertVerifier> {
        Arc::new(Self(verifier))
    }
}

/// Checks the number of certificates, and nothing else.
pub(super) fn check(intermediates: &[CertificateDer<'_>]) -> Result<(), Error> {
    let shown = intermediates.len() + 1;
    if shown <= CHAIN_CERTIFICATES_MAX {
        return Ok(());
    }
    Err(CertificateError::Other(OtherError(Arc::new(TooLong(shown)))).into())
}

impl ClientCertVerifier for ChainLengthVerifier {
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        check(intermediates)?;
        self.0.verify_client_cert(end_entity, intermediates, now)
    }

    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
