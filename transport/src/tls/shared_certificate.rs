//! A certificate that is replaced while listeners and clients show it. Each handshake uses the newest one, and running
//! connections go on with theirs.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::provider::provider;
use super::{Material, SharedRoots, TlsError};

/// A certificate with its key, which the listeners of a server share, or the connections of a client.
#[derive(Debug)]
pub struct SharedCertificate(RwLock<Arc<CertifiedKey>>);

/// The TLS material of a server for agents, or for other servers that dial it.
#[derive(Debug, Clone)]
pub struct ServerMaterial {
    /// The certificate that clients see, which may change.
    pub certificate: Arc<SharedCertificate>,
    /// The roots of agents, or of peers, and of no other role, which may change.
    pub client_roots: Arc<SharedRoots>,
}

impl SharedCertificate {
    /// The certificate `chain`, leaf first, with the leaf's key.
    ///
    /// # Errors
    /// [`TlsError`] if they do not fit, or their kind is not supported.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Arc<Self>, TlsError> {
        certified(chain, key).map(|certified| Arc::new(Self(RwLock::new(certified))))
    }

    /// Shows another certificate from the next handshake on.
    ///
    /// # Errors
    /// [`TlsError`], as above. The old certificate stays in use then.
    pub fn replace(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<(), TlsError> {
        let certified = certified(chain, key)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = certified;
        Ok(())
    }

    /// The certificate that is shown now.
    #[must_use]
    pub fn current(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ResolvesServerCert for SharedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

impl ResolvesClientCert for SharedCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl TryFrom<Material> for ServerMaterial {
    type Error = TlsError;

    fn try_from(Material { chain, key, peer_roots }: Material) -> Result<Self, TlsError> {
        Ok(Self {
            certificate: SharedCertificate::new(chain, key)?,
            client_roots: SharedRoots::new(peer_roots)?,
        })
    }
}

fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<CertifiedKey>, TlsError> {
    CertifiedKey::from_der(chain, key, &provider()).map(Arc::new).map_err(TlsError::Certificate)
}
