//! The TLS configuration of a side that dials, for both carriers.

use std::marker::PhantomData;
use std::sync::Arc;

use proto::wire::Hello;
use quinn::ClientConfig;
use quinn::crypto::rustls::QuicClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};

use super::peer::PeerOpening;
use crate::tls::{self, ExpectedPeer, ExpectedServers, Material, SharedCertificate, TlsError};

/// The TLS of dials that begin with an `O`: an agent's Hello, or a server's [`PeerOpening`]. Made once and used for every dial.
#[derive(Clone)]
pub struct DialTls<O = Hello> {
    pub(super) quic: ClientConfig,
    pub(super) tcp: Arc<rustls::ClientConfig>,
    opening: PhantomData<fn(O)>,
}

impl DialTls {
    /// Builds the configuration, for dials of the `expected` servers.
    ///
    /// # Errors
    /// `TlsError`.
    pub fn new(material: Material, expected: ExpectedServers) -> Result<Self, TlsError> {
        Self::with_clock(material, expected, Arc::new(DefaultTimeProvider))
    }

    /// Builds the configuration with another clock than the system's, for the validity of servers'
    /// certificates.
    ///
    /// # Errors
    /// `TlsError`.
    pub fn with_clock(
        material: Material,
        expected: ExpectedServers,
        clock: Arc<dyn TimeProvider>,
    ) -> Result<Self, TlsError> {
        Self::from_config(tls::agent(material, expected, clock)?)
    }

    /// Builds the configuration for dials of one server, by its ID. It may show a certificate for any name.
    ///
    /// # Errors
    /// `TlsError`.
    pub fn for_server(
        material: Material,
        server: ExpectedPeer,
        clock: Arc<dyn TimeProvider>,
    ) -> Result<Self, TlsError> {
        Self::from_config(tls::agent_of_server(material, server, clock)?)
    }
}

impl DialTls<PeerOpening> {
    /// Builds the configuration of a server that dials the server `peer`. The other server may show a certificate for any
    /// name, but must be the one with this ID.
    ///
    /// # Errors
    /// `TlsError`.
    pub fn for_peer(
        certificate: Arc<SharedCertificate>,
        server_roots: Vec<CertificateDer<'static>>,
        peer: ExpectedPeer,
    ) -> Result<Self, TlsError> {
        Self::from_config(tls::peer(certificate, server_roots, peer)?)
    }
}

impl<O> DialTls<O> {
    fn from_config(tcp: rustls::ClientConfig) -> Result<Self, TlsError> {
        let tcp = Arc::new(tcp);
        let crypto = QuicClientConfig::try_from(Arc::clone(&tcp))
            .map_err(|error| TlsError::Provider(rustls::Error::General(error.to_string())))?;
        Ok(Self { quic: ClientConfig::new(Arc::new(crypto)), tcp, opening: PhantomData })
    }
}
