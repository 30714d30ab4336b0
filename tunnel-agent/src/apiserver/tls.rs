//! TLS to the API server: only the configured CA is trusted, never the system's.

use std::sync::Arc;

use api_servers::ServerCertificateVerifier;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::version::{TLS12, TLS13};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::material::{CredentialError, Material};
use crate::clock::Clock;

pub(super) const HTTP_2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// The TLS configurations of the two kinds of connections.
#[derive(Clone)]
pub(super) struct TlsConfigs {
    /// For ordinary requests: the HTTP version that the server prefers.
    pub(super) pooled: Arc<ClientConfig>,
    /// For upgrades: HTTP/1.1 and nothing else.
    pub(super) upgrade: Arc<ClientConfig>,
}

impl TlsConfigs {
    pub(super) fn new(material: &Material, clock: &Clock) -> Result<Self, CredentialError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut verifier = ServerCertificateVerifier::new(provider.signature_verification_algorithms);
        let source = &material.ca_source;
        verifier
            .trust_bundle(&material.ca, source)
            .map_err(|_| CredentialError::NotPem { what: "CA certificate", found_in: source.clone() })?;
        let builder = ClientConfig::builder_with_details(provider, Arc::new(clock.clone()))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(CredentialError::Tls)?
            // It verifies as the library does, and in addition what Go's clients accept or refuse.
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &material.client_certificate {
            None => builder.with_no_client_auth(),
            Some(certificate) => {
                let source = &certificate.source;
                let chain =
                    certificates(&certificate.chain).filter(|chain| !chain.is_empty()).ok_or_else(|| {
                        CredentialError::NotPem { what: "client certificate", found_in: source.clone() }
                    })?;
                let key = PrivateKeyDer::from_pem_slice(&certificate.key)
                    .map_err(|_| CredentialError::NotPem { what: "client key", found_in: source.clone() })?;
                builder.with_client_auth_cert(chain, key).map_err(CredentialError::Tls)?
            }
        };
        // A resumed session does not verify the server's certificate again, and connections are few.
        config.resumption = Resumption::disabled();
        let with = |protocols: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            Arc::new(config)
        };
        Ok(Self { pooled: with(&[HTTP_2, HTTP_1_1]), upgrade: with(&[HTTP_1_1]) })
    }
}

fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().ok()
}
