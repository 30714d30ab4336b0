//! What this command offers and believes when it shakes hands.

use std::sync::Arc;

use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// HTTP/1.1 in the handshake (RFC 7301).
pub(crate) const ALPN_HTTP1: &[u8] = b"http/1.1";

/// HTTP/2 in the handshake (RFC 9113, section 3.2).
pub(crate) const ALPN_H2: &[u8] = b"h2";

/// TLS 1.3 alone, which every server of ours speaks.
pub(crate) const OURS: &[&SupportedProtocolVersion] = &[&TLS13];

/// A certificate with its key, as TLS wants them.
pub(crate) struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

/// Trusts these roots and no others, shows this certificate, and speaks one protocol.
pub(crate) fn client(
    roots: Vec<CertificateDer<'static>>,
    identity: Option<Identity>,
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
        Some(Identity { chain, key }) => config.with_client_auth_cert(chain, key)?,
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![alpn.to_vec()];
    Ok(Arc::new(config))
}
