//! Chains of certificates that are short enough to be looked at.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};

/// Certificates that a peer may show, its own included. Whoever looks for the way from a certificate to a root tries each that
/// could have issued the last one, so that sixty of one name took 0.7 s of CPU without optimisation, where a hundred that do not fit took 1 ms (RUSTSEC-2023-0053),
/// and nobody is known yet who shows them. Ours are two: a leaf and an intermediate.
pub const CHAIN_CERTIFICATES_MAX: usize = 5;

#[derive(Debug, thiserror::Error)]
#[error(
    "{0} certificates were shown, show {CHAIN_CERTIFICATES_MAX} at most: the peer's own and what is between it and the root"
)]
struct TooLong(usize);

/// Verifies as another verifier does what is short enough.
#[derive(Debug)]
pub struct ChainLengthVerifier(Arc<dyn ClientCertVerifier>);

impl ChainLengthVerifier {
    /// Has `verifier` look at short chains alone.
    #[must_use]
    pub fn wrap(verifier: Arc<dyn ClientCertVerifier>) -> Arc<dyn ClientCertVerifier> {
        Arc::new(Self(verifier))
    }
}

/// Looks at nothing but how many there are.
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
