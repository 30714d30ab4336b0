//! TLS to the API server: only the configured CA is trusted, never the system's.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::material::{CredentialError, Material};

pub(super) const HTTP_2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// The TLS configurations of the two kinds of connections.
pub(super) struct TlsConfigs {
    /// For ordinary requests: the HTTP version that the server prefers.
    pub(super) pooled: Arc<ClientConfig>,
    /// For upgrades: HTTP/1.1 and nothing else.
    pub(super) upgrade: Arc<ClientConfig>,
}

impl TlsConfigs {
    pub(super) fn new(material: &Material) -> Result<Self, CredentialError> {
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(CredentialError::Tls)?
            .with_root_certificates(roots(material)?);
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

fn roots(material: &Material) -> Result<RootCertStore, CredentialError> {
    let not_pem = || CredentialError::NotPem { what: "CA certificate", found_in: material.ca_source.clone() };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&material.ca).ok_or_else(not_pem)? {
        roots.add(certificate).map_err(|_| not_pem())?;
    }
    if roots.is_empty() { Err(not_pem()) } else { Ok(roots) }
}

fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().ok()
}
