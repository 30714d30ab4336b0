//! TLS of the tunnel: version 1.3 only, certificates on both sides, no resumption.

mod chain_length;
mod error;
mod pinned_verifier;
mod provider;
mod server_verifier;
mod shared_certificate;
mod shared_roots;

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::version::TLS13;
use rustls::{ClientConfig, ConnectionCommon, RootCertStore, ServerConfig};

use proto::session::Protocol;
use trust::proof::{EXPORTER_BYTES, EXPORTER_LABEL};

pub use chain_length::{CHAIN_CERTIFICATES_MAX, ChainLengthVerifier};
pub use error::TlsError;
pub use pinned_verifier::PinnedVerifier;
pub use provider::provider;
use server_verifier::ServerVerifier;
pub use server_verifier::{ExpectedPeer, ExpectedServers};
pub use shared_certificate::{ServerMaterial, SharedCertificate};
pub use shared_roots::{SharedRoots, SignerNotAccepted};

/// The tunnel's protocol in the TLS handshake (RFC 7301).
pub const ALPN: &[u8] = b"tombolo/1";

/// The protocol of sessions between servers in the TLS handshake.
pub const PEER_ALPN: &[u8] = b"tombolo-peer/1";

/// The certificate of one side, and the roots that it trusts.
#[derive(Debug)]
pub struct Material {
    /// This side's certificate, leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key of the certificate.
    pub key: PrivateKeyDer<'static>,
    /// The roots of the other side's role, and of no other.
    pub peer_roots: Vec<CertificateDer<'static>>,
}

/// The server's TLS configuration for TCP, with the certificates and the trust of the endpoint: for agents
/// and nobody else.
///
/// # Errors
/// `TlsError`.
pub fn tcp_server_config(material: ServerMaterial) -> Result<Arc<ServerConfig>, TlsError> {
    server(Protocol::Agent, material).map(Arc::new)
}

/// The TLS configuration of a server for TCP, for other servers that dial it and nobody else.
///
/// # Errors
/// `TlsError`.
pub fn peer_tcp_server_config(material: ServerMaterial) -> Result<Arc<ServerConfig>, TlsError> {
    server(Protocol::Peer, material).map(Arc::new)
}

/// The accepting side's TLS configuration: clients must present a certificate of the clients' roots, whose newest ones count.
pub(crate) fn server(protocol: Protocol, material: ServerMaterial) -> Result<ServerConfig, TlsError> {
    let ServerMaterial { certificate, client_roots } = material;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(TlsError::Provider)?
        .with_client_cert_verifier(client_roots)
        .with_cert_resolver(Arc::new(TunnelAlpnOnly { certificate, alpn: alpn(protocol) }));
    config.alpn_protocols = vec![alpn(protocol).to_vec()];
    // A resumed session skips the verifier, so that an agent could come back that was revoked, or whose root is gone: no
    // tickets, no store, no 0-RTT.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.max_early_data_size = 0;
    Ok(config)
}

/// Presents the server's certificate only to clients that offer the tunnel's protocol and nothing else. A
/// client that might speak another protocol could be redirected to another listener of the same address by
/// somebody in between.
#[derive(Debug)]
struct TunnelAlpnOnly {
    certificate: Arc<SharedCertificate>,
    alpn: &'static [u8],
}

impl ResolvesServerCert for TunnelAlpnOnly {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let mut offered = hello.alpn()?;
        (offered.next() == Some(self.alpn) && offered.next().is_none()).then(|| self.certificate.current())
    }
}

/// The agent's TLS configuration: the server must present a certificate of the servers' root, for the name
/// that was dialed and with the URI of an `expected` server. The system's roots are never used.
pub(crate) fn agent(
    material: Material,
    expected: ExpectedServers,
    clock: Arc<dyn TimeProvider>,
) -> Result<ClientConfig, TlsError> {
    let verifier = ServerVerifier::new(roots(material.peer_roots)?, expected)?;
    client(Protocol::Agent, SharedCertificate::new(material.chain, material.key)?, verifier, clock)
}

/// The same for one server that is known by its ID: its DNS names and addresses do not count.
pub(crate) fn agent_of_server(
    material: Material,
    server: ExpectedPeer,
    clock: Arc<dyn TimeProvider>,
) -> Result<ClientConfig, TlsError> {
    let verifier = ServerVerifier::for_peer(roots(material.peer_roots)?, server)?;
    client(Protocol::Agent, SharedCertificate::new(material.chain, material.key)?, verifier, clock)
}

/// The TLS configuration of a server that dials `peer`: that one must present a certificate of the servers' root with exactly
/// this server's URI. Its DNS names and addresses do not count.
pub(crate) fn peer(
    certificate: Arc<SharedCertificate>,
    server_roots: Vec<CertificateDer<'static>>,
    peer: ExpectedPeer,
) -> Result<ClientConfig, TlsError> {
    let verifier = ServerVerifier::for_peer(roots(server_roots)?, peer)?;
    client(Protocol::Peer, certificate, verifier, Arc::new(DefaultTimeProvider))
}

fn client(
    protocol: Protocol,
    certificate: Arc<SharedCertificate>,
    verifier: ServerVerifier,
    clock: Arc<dyn TimeProvider>,
) -> Result<ClientConfig, TlsError> {
    // rustls calls it `dangerous`, because a verifier could require less than rustls does. This one requires
    // the same, and the role; of a peer its ID in place of its name.
    let mut config = ClientConfig::builder_with_details(provider(), clock)
        .with_protocol_versions(&[&TLS13])
        .map_err(TlsError::Provider)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(certificate);
    config.alpn_protocols = vec![alpn(protocol).to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    Ok(config)
}

/// The name of a protocol in the TLS handshake.
fn alpn(protocol: Protocol) -> &'static [u8] {
    match protocol {
        Protocol::Agent => ALPN,
        Protocol::Peer => PEER_ALPN,
    }
}

/// The keying material that TLS exports for a connection and no other (RFC 8446, section 7.5), for proofs
/// that hold on it alone.
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
