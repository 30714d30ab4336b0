//! TLS configurations for callers, entry points, enrolling agents and administrators.

use std::sync::Arc;

use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientCertVerifierBuilder, NoServerSessionStorage, ResolvesServerCert, VerifierBuilderError,
    WebPkiClientVerifier,
};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use rustls_pki_types::{CertificateDer, UnixTime};
use transport::tls::{ChainLengthVerifier, SharedRoots};

mod optional_verifier;
mod with_roots;

use optional_verifier::OptionalVerifier;
pub use with_roots::CertificateWithRoots;

/// HTTP/2 in the handshake (RFC 9113, section 3.2).
pub const ALPN_H2: &[u8] = b"h2";

/// HTTP/1.1 in the handshake (RFC 7301, section 6).
pub const ALPN_HTTP1: &[u8] = b"http/1.1";

/// The reason why a TLS configuration cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A root certificate cannot be used.
    #[error("a root certificate cannot be used")]
    Root(#[source] rustls::Error),
    /// The verifier of client certificates cannot be built, for example because there is no root.
    #[error("the verifier of certificates cannot be built")]
    Verifier(#[from] VerifierBuilderError),
    /// The cryptography provider lacks an algorithm that TLS 1.2 or 1.3 needs.
    #[error("the cryptography provider cannot be used")]
    Provider(#[source] rustls::Error),
}

/// TLS 1.2 and 1.3 with HTTP/2 and HTTP/1.1, and this `certificate`. With `caller_roots` a caller may
/// show a certificate, which must chain to these roots. Without them none is requested.
///
/// # Errors
///
/// [`TlsError`].
pub fn server_config(
    certificate: Arc<dyn ResolvesServerCert>,
    caller_roots: Option<Vec<CertificateDer<'static>>>,
) -> Result<ServerConfig, TlsError> {
    config(certificate, &[&TLS13, &TLS12], callers_verifier(caller_roots)?, &[ALPN_H2, ALPN_HTTP1])
}

/// TLS 1.2 and 1.3 with HTTP/1.1 for an entry point that requires a client certificate chaining to these
/// roots.
///
/// # Errors
///
/// [`TlsError`].
pub fn for_entry_point(
    certificate: Arc<dyn ResolvesServerCert>,
    roots: Vec<CertificateDer<'static>>,
) -> Result<ServerConfig, TlsError> {
    let verifier = ChainLengthVerifier::wrap(verifier(roots)?.build()?);
    config(certificate, &[&TLS13, &TLS12], verifier, &[ALPN_HTTP1])
}

/// TLS 1.2 and 1.3 with HTTP/1.1 for callers with a dial token. No certificate is requested, because a client
/// would show its kubeconfig's to any server. HTTP/2 is left out because Go's programs offer it to a proxy
/// and then speak HTTP/1.1 whatever was chosen.
///
/// # Errors
///
/// [`TlsError`].
pub fn for_proxy(certificate: Arc<dyn ResolvesServerCert>) -> Result<ServerConfig, TlsError> {
    config(certificate, &[&TLS13, &TLS12], WebPkiClientVerifier::no_client_auth(), &[ALPN_HTTP1])
}

/// TLS 1.3 with HTTP/2 for agents that enroll or renew. An agent may show its certificate. The handshake accepts
/// every one, because an agent renews an expired one too. `agents` tells the valid ones afterwards.
///
/// # Errors
///
/// [`TlsError`].
pub fn for_enrollment(
    certificate: Arc<dyn ResolvesServerCert>,
    agents: Arc<SharedRoots>,
) -> Result<ServerConfig, TlsError> {
    let optional = ChainLengthVerifier::wrap(Arc::new(OptionalVerifier(agents)));
    config(certificate, &[&TLS13], optional, &[ALPN_H2])
}

/// TLS 1.3 with HTTP/2 for administrators, who must show a certificate that chains to these roots.
///
/// # Errors
///
/// [`TlsError`].
pub fn for_admins(
    certificate: Arc<dyn ResolvesServerCert>,
    roots: Vec<CertificateDer<'static>>,
) -> Result<ServerConfig, TlsError> {
    config(certificate, &[&TLS13], ChainLengthVerifier::wrap(verifier(roots)?.build()?), &[ALPN_H2])
}

/// Returns true if this chain, leaf first, is valid now.
pub(super) fn is_verified(verifier: &dyn ClientCertVerifier, chain: &[CertificateDer<'_>]) -> bool {
    let Some((leaf, intermediates)) = chain.split_first() else { return false };
    verifier.verify_client_cert(leaf, intermediates, UnixTime::now()).is_ok()
}

/// The parts that all configurations have in common.
fn config(
    certificate: Arc<dyn ResolvesServerCert>,
    versions: &[&'static SupportedProtocolVersion],
    verifier: Arc<dyn ClientCertVerifier>,
    protocols: &[&[u8]],
) -> Result<ServerConfig, TlsError> {
    let mut config = ServerConfig::builder_with_provider(transport::tls::provider())
        .with_protocol_versions(versions)
        .map_err(TlsError::Provider)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(certificate);
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    never_resumed(&mut config);
    Ok(config)
}

/// Disables resumption: a resumed session skips the verifier, so that a client with an expired certificate, or
/// one whose root is gone, could come back. Hence no tickets (those of TLS 1.2 are off by default), no store, no 0-RTT.
fn never_resumed(config: &mut ServerConfig) {
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.max_early_data_size = 0;
}

fn callers_verifier(
    roots: Option<Vec<CertificateDer<'static>>>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let Some(roots) = roots else {
        return Ok(WebPkiClientVerifier::no_client_auth());
    };
    // A caller without a certificate may have a token.
    Ok(ChainLengthVerifier::wrap(verifier(roots)?.allow_unauthenticated().build()?))
}

fn verifier(roots: Vec<CertificateDer<'static>>) -> Result<ClientCertVerifierBuilder, TlsError> {
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(root).map_err(TlsError::Root)?;
    }
    Ok(WebPkiClientVerifier::builder_with_provider(Arc::new(store), transport::tls::provider()))
}
