//! Verifies that a server is the one that is meant: its chain, its name or ID, and its role.
//!
//! Its certificate must chain to the servers' root, have the name that was dialed, and say by its URI that it
//! is a server of the trust domain. Of a peer the ID is known, and counts in place of the name.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};
use trust::identity::{self, NotOfRole};

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

/// One server that is known by its ID, whatever name or address it is dialed by: another server's peer, or one that an agent was
/// told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedPeer {
    /// The trust domain of both sides.
    pub trust_domain: String,
    /// The ID that its certificate must have.
    pub server_id: String,
}

/// The reason why a certificate that chains to the servers' root is not an expected server's.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnexpectedServer {
    #[error(transparent)]
    Role(#[from] NotOfRole),
    #[error("it is the server {0}, which is not among serverIds")]
    Id(String),
    #[error("it is the server {found}, and {dialed} was dialed")]
    Peer { dialed: String, found: String },
}

/// Verifies a server's certificate as rustls does, and then its role.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    chain: Arc<WebPkiServerVerifier>,
    meant: Meant,
}

/// The servers that a dial may reach.
#[derive(Debug)]
enum Meant {
    Servers(ExpectedServers),
    Peer(ExpectedPeer, Arc<RootCertStore>),
}

impl ServerVerifier {
    pub(super) fn new(roots: RootCertStore, expected: ExpectedServers) -> Result<Self, TlsError> {
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build()?;
        Ok(Self { chain, meant: Meant::Servers(expected) })
    }

    /// Verifies by the ID of one server, whatever name or address was dialed.
    pub(super) fn for_peer(roots: RootCertStore, peer: ExpectedPeer) -> Result<Self, TlsError> {
        let roots = Arc::new(roots);
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), provider()).build()?;
        Ok(Self { chain, meant: Meant::Peer(peer, roots) })
    }

    fn check_expected(&self, leaf: &CertificateDer<'_>) -> Result<(), UnexpectedServer> {
        match &self.meant {
            Meant::Servers(expected) => {
                let id = identity::server(leaf, &expected.trust_domain)?;
                if expected.ids.is_empty() || expected.ids.iter().any(|expected| expected == id.as_str()) {
                    return Ok(());
                }
                Err(UnexpectedServer::Id(id.to_string()))
            }
            Meant::Peer(expected, _) => {
                let id = identity::server(leaf, &expected.trust_domain)?;
                if expected.server_id == id.as_str() {
                    return Ok(());
                }
                Err(UnexpectedServer::Peer { dialed: expected.server_id.clone(), found: id.to_string() })
            }
        }
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
        match &self.meant {
            Meant::Servers(_) => {
                self.chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)?;
            }
            Meant::Peer(_, roots) => {
                let leaf = ParsedCertificate::try_from(end_entity)?;
                let algorithms = provider().signature_verification_algorithms.all;
                verify_server_cert_signed_by_trust_anchor(&leaf, roots, intermediates, now, algorithms)?;
            }
        }
        self.check_expected(end_entity)
            .map_err(|error| CertificateError::Other(OtherError(Arc::new(error))))?;
        Ok(ServerCertVerified::assertion())
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
