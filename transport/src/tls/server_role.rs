//! Which servers an agent takes for its own: those whose certificate chains to the servers' root, bears the name that was
//! dialed, and says by its URI that it is a server of the trust domain.

use std::fmt;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};
use trust::peer::{self, NotOfRole};

use super::{TlsError, provider, short_chains};

/// The servers that an agent means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeantServers {
    /// The trust domain of their certificates.
    pub trust_domain: String,
    /// Their ids; any, if there is none.
    pub ids: Vec<String>,
}

/// Why a certificate that chains to the servers' root is not a meant server's.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotMeant {
    #[error(transparent)]
    Role(#[from] NotOfRole),
    #[error("it is the server {0}, which is not among serverIds")]
    Id(String),
}

/// Verifies as rustls does, and then the role.
#[derive(Debug)]
pub(super) struct ServerRole {
    chain: Arc<WebPkiServerVerifier>,
    meant: MeantServers,
}

impl ServerRole {
    pub(super) fn new(roots: RootCertStore, meant: MeantServers) -> Result<Self, TlsError> {
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build()?;
        Ok(Self { chain, meant })
    }

    fn is_meant(&self, leaf: &CertificateDer<'_>) -> Result<(), NotMeant> {
        let id = peer::server(leaf, &self.meant.trust_domain)?;
        if self.meant.ids.is_empty() || self.meant.ids.iter().any(|meant| meant == id.as_str()) {
            return Ok(());
        }
        Err(NotMeant::Id(id.to_string()))
    }
}

impl ServerCertVerifier for ServerRole {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        short_chains::check(intermediates)?;
        let verified =
            self.chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)?;
        self.is_meant(end_entity).map_err(|error| CertificateError::Other(OtherError(Arc::new(error))))?;
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

/// In words, because rustls shows the errors of other verifiers by their `Debug` alone.
impl fmt::Debug for NotMeant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
