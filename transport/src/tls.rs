//! TLS of the tunnel: 1.3 only, both sides with certificates, nothing resumed.

mod chain_length;
mod error;
mod provider;
mod server_verifier;

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::version::TLS13;
use rustls::{ClientConfig, ConnectionCommon, RootCertStore, ServerConfig};

use trust::proof::{EXPORTER_BYTES, EXPORTER_LABEL};

pub use chain_length::{CHAIN_CERTIFICATES_MAX, ChainLengthVerifier};
pub use error::TlsError;
pub use provider::provider;
pub use server_verifier::ExpectedServers;
use server_verifier::ServerVerifier;

/// The tunnel's protocol in the TLS handshake (RFC 7301).
pub const ALPN: &[u8] = b"tombolo/1";

/// What one side shows and whom it trusts.
#[derive(Debug)]
pub struct Material {
    /// This side's certificate, leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    /// Its key.
    pub key: PrivateKeyDer<'static>,
    /// The roots of the other side's role, and of no other.
    pub peer_roots: Vec<CertificateDer<'static>>,
}

/// The server's side of TCP: the same certificates and the same trust as the endpoint's, for agents and nobody else.
///
/// # Errors
/// `TlsError`.
pub fn tcp_server_config(material: Material) -> Result<Arc<ServerConfig>, TlsError> {
    server(material).map(Arc::new)
}

/// The server's side: agents must show a certificate of the agents' root.
pub(crate) fn server(material: Material) -> Result<ServerConfig, TlsError> {
    let provider = provider();
    let roots = Arc::new(roots(material.peer_roots)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider)).build()?;
    let shown =
        CertifiedKey::from_der(material.chain, material.key, &provider).map_err(TlsError::Certificate)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(TlsError::Provider)?
        .with_client_cert_verifier(ChainLengthVerifier::wrap(verifier))
        .with_cert_resolver(Arc::new(TunnelAlpnOnly(Arc::new(shown))));
    config.alpn_protocols = vec![ALPN.to_vec()];
    // A resumed session skips the verifier, so that a revoked agent could come back: no tickets, no store, no 0-RTT.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.max_early_data_size = 0;
    Ok(config)
}

/// Shows the server's certificate to whoever offers the tunnel's protocol and nothing else: who might speak another one too
/// could be led to another door, by somebody between who sees the same address.
#[derive(Debug)]
struct TunnelAlpnOnly(Arc<CertifiedKey>);

impl ResolvesServerCert for TunnelAlpnOnly {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let mut offered = hello.alpn()?;
        (offered.next() == Some(ALPN) && offered.next().is_none()).then(|| Arc::clone(&self.0))
    }
}

/// The agent's side: the server must show a certificate of the servers' root, for the name that was dialed and with the URI
/// of a server that is `meant`. The system's roots are never asked.
pub(crate) fn agent(
    material: Material,
    expected: ExpectedServers,
    clock: Arc<dyn TimeProvider>,
) -> Result<ClientConfig, TlsError> {
    // `dangerous`, because a verifier could ask for less than rustls. This one asks for the same, and for the role.
    let verifier = Arc::new(ServerVerifier::new(roots(material.peer_roots)?, expected)?);
    let mut config = ClientConfig::builder_with_details(provider(), clock)
        .with_protocol_versions(&[&TLS13])
        .map_err(TlsError::Provider)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(material.chain, material.key)
        .map_err(TlsError::Certificate)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    Ok(config)
}

/// What TLS exports of a connection and no other (RFC 8446, section 7.5), for proofs that hold on it alone.
pub(crate) fn exporter<D>(connection: &ConnectionCommon<D>) -> Option<[u8; EXPORTER_BYTES]> {
    connection.export_keying_material([0; EXPORTER_BYTES], EXPORTER_LABEL, None).ok()
}

fn roots(certificates: Vec<CertificateDer<'static>>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate).map_err(TlsError::Root)?;
    }
    if roots.is_empty() { Err(TlsError::NoRoots) } else { Ok(roots) }
}
