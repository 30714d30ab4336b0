//! Verifies that a server is one of the agent's own: its chain, its name and its role.
//!
//! Its certificate must chain to the servers' root, have the name that was dialed, and say by its URI that it
//! is a server of the trust domain.

use std::fmt;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};
use trust::peer::{self, NotOfRole};

use super::chain_length;
use super::error::TlsError;
use super::provider::provider;

/// The servers to which an agent connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedServers {
    /// The trust domain of their certificates.
    pub trust_domain: String,
    /// Their ids; any server of the domain, if empty.
    pub ids: Vec<String>,
}

/// The reason why a certificate that chains to the servers' root is not an expected server's.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnexpectedServer {
    #[error(transparent)]
    Role(#[from] NotOfRole),
    #[error("it is the server {0}, which is not among serverIds")]
    Id(String),
}

/// Verifies a server's certificate as rustls does, and then its role.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    chain: Arc<WebPkiServerVerifier>,
    expected: ExpectedServers,
}

impl ServerVerifier {
    pub(super) fn new(roots: RootCertStore, expected: ExpectedServers) -> Result<Self, TlsError> {
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build()?;
        Ok(Self { chain, expected })
    }

    fn check_expected(&self, leaf: &CertificateDer<'_>) -> Result<(), UnexpectedServer> {
        let id = peer::server(leaf, &self.expected.trust_domain)?;
        if self.expected.ids.is_empty() || self.expected.ids.iter().any(|expected| expected == id.as_str()) {
            return Ok(());
        }
        Err(UnexpectedServer::Id(id.to_string()))
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        chain_length::check(intermediates)?;
        let verified =
            self.chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)?;
        self.check_expected(end_entity)
            .map_err(|error| CertificateError::Other(OtherError(Arc::new(error))))?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

/// The same text as `Display`, because rustls shows the errors of other verifiers by their `Debug` alone.
impl fmt::Debug for UnexpectedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
