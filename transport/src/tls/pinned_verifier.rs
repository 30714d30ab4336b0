//! Verifies the enrollment server: its chain has to end at the pinned root, or at a root that is known since
//! enrollment. The agent and `tombolo doctor agent` share it.

use std::fmt;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};
use trust::{Pin, identity};

/// Most certificates that a server may show.
const CHAIN_MAX: usize = 8;

/// Verifies the server's certificate. The system's roots are never used.
pub struct PinnedVerifier {
    /// The pin of the root to trust before the agent is enrolled.
    pub pin: Pin,
    /// The roots to trust since the agent was enrolled. Empty before.
    pub roots: Vec<CertificateDer<'static>>,
    /// The trust domain that the URI of the server's certificate has to name.
    pub trust_domain: String,
    /// The cryptography of the handshake.
    pub provider: Arc<CryptoProvider>,
}

impl PinnedVerifier {
    /// The roots to verify by: the known ones, or else the one in the server's chain that has the pin.
    fn anchors(&self, shown: &[CertificateDer<'_>]) -> Result<RootCertStore, Error> {
        let mut anchors = RootCertStore::empty();
        if self.roots.is_empty() {
            let is_pinned = |certificate: &&CertificateDer<'_>| Pin::of_ca(certificate) == Some(self.pin);
            if shown.len() <= CHAIN_MAX
                && let Some(root) = shown.iter().find(is_pinned)
            {
                anchors.add(root.clone().into_owned())?;
            }
        } else {
            for root in &self.roots {
                anchors.add(root.clone())?;
            }
        }
        if anchors.is_empty() { Err(CertificateError::UnknownIssuer.into()) } else { Ok(anchors) }
    }
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        shown: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let anchors = Arc::new(self.anchors(shown)?);
        let verifier = WebPkiServerVerifier::builder_with_provider(anchors, Arc::clone(&self.provider))
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        verifier.verify_server_cert(leaf, shown, name, ocsp, now)?;
        match identity::server(leaf, &self.trust_domain) {
            Ok(_) => Ok(ServerCertVerified::assertion()),
            Err(error) => Err(CertificateError::Other(OtherError(Arc::new(error))).into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3 is supported here".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl fmt::Debug for PinnedVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedVerifier")
            .field("pin", &self.pin)
            .field("roots", &self.roots.len())
            .finish_non_exhaustive()
    }
}
