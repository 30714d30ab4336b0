//! An agent's TLS configuration for both carriers.

use std::sync::Arc;

use quinn::ClientConfig;
use quinn::crypto::rustls::QuicClientConfig;
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};

use crate::tls::{self, ExpectedServers, Material, TlsError};

/// An agent's TLS, made once and used for every dial.
#[derive(Clone)]
pub struct DialTls {
    pub(super) quic: ClientConfig,
    pub(super) tcp: Arc<rustls::ClientConfig>,
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
        let tcp = Arc::new(tls::agent(material, expected, clock)?);
        let crypto = QuicClientConfig::try_from(Arc::clone(&tcp))
            .map_err(|error| TlsError::Provider(rustls::Error::General(error.to_string())))?;
        Ok(Self { quic: ClientConfig::new(Arc::new(crypto)), tcp })
    }
}
