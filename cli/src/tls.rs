//! TLS client configurations: trusted roots, client certificate, protocol versions and ALPN.

use std::sync::Arc;

use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// The ALPN name of HTTP/1.1 (RFC 7301).
pub(crate) const ALPN_HTTP1: &[u8] = b"http/1.1";

/// The ALPN name of HTTP/2 (RFC 9113, section 3.2).
pub(crate) const ALPN_H2: &[u8] = b"h2";

/// TLS 1.3 alone, which every tunnel-server speaks.
pub(crate) const TLS13_ONLY: &[&SupportedProtocolVersion] = &[&TLS13];

/// A client certificate chain with its private key.
pub(crate) struct ClientIdentity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

/// A client that trusts only these roots, presents this certificate, and offers one ALPN protocol.
///
/// # Errors
/// A root that is no CA certificate, or a key that does not belong to the certificate.
pub(crate) fn client(
    roots: Vec<CertificateDer<'static>>,
    identity: Option<ClientIdentity>,
    versions: &[&'static SupportedProtocolVersion],
    alpn: &[u8],
) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(root)?;
    }
    let config = ClientConfig::builder_with_provider(transport::tls::provider())
        .with_protocol_versions(versions)?
        .with_root_certificates(store);
    let mut config = match identity {
        Some(ClientIdentity { chain, key }) => config.with_client_auth_cert(chain, key)?,
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![alpn.to_vec()];
    Ok(Arc::new(config))
}
