//! The agent's identity: its certificate, its key, and the roots to which its servers have to chain.

use std::io;
use std::path::{Path, PathBuf};

use daemon::config::redact;
use daemon::read_bounded;
use proto::ClusterId;
use proto::spiffe::{AgentId, SpiffeError};
use rustls::crypto::aws_lc_rs;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use crate::config::TlsFiles;

/// Largest PEM file that is read.
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// An agent's identity for its servers, after all checks.
pub struct Identity {
    /// The name in the certificate.
    pub agent: AgentId,
    /// The certificate, and intermediates after it.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key of the certificate.
    pub key: PrivateKeyDer<'static>,
    /// The roots to which servers' certificates have to chain.
    pub server_roots: Vec<CertificateDer<'static>>,
}

/// The agent has no usable identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file cannot be read.
    #[error(
        "{key}: cannot read {}, check that it is there and that this user may read it",
        redact(&path.display().to_string())
    )]
    Unreadable {
        /// The configuration key that names the file.
        key: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file is too large.
    #[error("{key}: {} is larger than {FILE_BYTES_MAX} bytes", path.display())]
    TooLarge {
        /// The configuration key that names the file.
        key: &'static str,
        /// The path of the file.
        path: PathBuf,
    },
    /// A file does not have what it should.
    #[error("{key}: {} holds no {expected} in PEM", path.display())]
    NotPem {
        /// The configuration key that names the file.
        key: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The content that it should have.
        expected: &'static str,
    },
    /// The certificate does not have exactly one URI.
    #[error("{} names no agent: it needs exactly one URI; {}", path.display(), issue(cluster))]
    NoUri {
        /// The path of the file.
        path: PathBuf,
        /// The cluster of the agent's configuration.
        cluster: ClusterId,
    },
    /// The certificate's URI is not an agent's.
    #[error("{} is not an agent's certificate; {}", path.display(), issue(cluster))]
    NotAnAgent {
        /// The path of the file.
        path: PathBuf,
        /// The cluster of the agent's configuration.
        cluster: ClusterId,
        /// The error in the URI.
        source: SpiffeError,
    },
    /// The certificate is for another cluster.
    #[error(
        "{} is for cluster {found} and this agent is configured for {cluster}; correct `cluster`, or {}",
        path.display(), issue(cluster)
    )]
    OtherCluster {
        /// The path of the file.
        path: PathBuf,
        /// The cluster in the certificate.
        found: ClusterId,
        /// The cluster of the agent's configuration.
        cluster: ClusterId,
    },
    /// The key belongs to another certificate.
    #[error("{} is not the key of {}; {}", key.display(), certificate.display(), issue(cluster))]
    NotAPair {
        /// The path of the key's file.
        key: PathBuf,
        /// The path of the certificate's file.
        certificate: PathBuf,
        /// The cluster of the agent's configuration.
        cluster: ClusterId,
        /// The error that TLS reported.
        source: Box<rustls::Error>,
    },
}

impl Identity {
    /// Reads and checks the files that the configuration names. The validity period is not checked, because
    /// the clock may be wrong: see [`trust::OutsideValidity`].
    ///
    /// # Errors
    ///
    /// [`IdentityError`] names the file and the command that makes a good one.
    pub fn load(files: &TlsFiles, cluster: &ClusterId, trust_domain: &str) -> Result<Self, IdentityError> {
        let chain = certificates("tls.certificateFile", &files.certificate)?;
        let key = private_key("tls.keyFile", &files.key)?;
        let server_roots = certificates("tls.serverCAFile", &files.server_ca)?;
        let path = &files.certificate;
        let leaf = chain.first().and_then(|leaf| X509Certificate::from_der(leaf).ok());
        let (_, leaf) = leaf.ok_or_else(|| not_pem("tls.certificateFile", path, CERTIFICATE))?;
        let agent = agent_of_leaf(&leaf, path, cluster, trust_domain)?;
        check_pair(&chain, &key, path, &files.key, cluster)?;
        Ok(Self { agent, chain, key, server_roots })
    }

    /// An identity of this cluster that enrollment returned. Its validity period is not checked.
    ///
    /// # Errors
    ///
    /// [`IdentityError`] names the check that failed.
    pub fn from_enrollment(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        server_roots: Vec<CertificateDer<'static>>,
        cluster: &ClusterId,
        trust_domain: &str,
    ) -> Result<Self, IdentityError> {
        let leaf = chain.first().and_then(|leaf| X509Certificate::from_der(leaf).ok());
        let (_, leaf) = leaf.ok_or_else(|| not_pem(RECEIVED, Path::new(RECEIVED), CERTIFICATE))?;
        let agent = Self::agent_in(&leaf, cluster, trust_domain)?;
        check_pair(&chain, &key, Path::new(RECEIVED), Path::new(RECEIVED), cluster)?;
        if server_roots.is_empty() {
            return Err(not_pem(RECEIVED, Path::new(RECEIVED), CERTIFICATE));
        }
        Ok(Self { agent, chain, key, server_roots })
    }

    /// The agent in a certificate that enrollment returned, if it is one of this cluster.
    ///
    /// # Errors
    ///
    /// [`IdentityError`] names the check that failed.
    pub fn agent_in(
        leaf: &X509Certificate<'_>,
        cluster: &ClusterId,
        trust_domain: &str,
    ) -> Result<AgentId, IdentityError> {
        agent_of_leaf(leaf, Path::new(RECEIVED), cluster, trust_domain)
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("agent", &self.agent).finish_non_exhaustive()
    }
}

const CERTIFICATE: &str = "certificate";
const KEY: &str = "private key";

/// Stands in errors in place of a path.
const RECEIVED: &str = "the received identity";

fn agent_of_leaf(
    leaf: &X509Certificate<'_>,
    path: &Path,
    cluster: &ClusterId,
    trust_domain: &str,
) -> Result<AgentId, IdentityError> {
    let no_uri = || IdentityError::NoUri { path: path.to_owned(), cluster: cluster.clone() };
    let names = leaf.subject_alternative_name().ok().flatten().ok_or_else(no_uri)?;
    #[expect(clippy::wildcard_enum_match_arm, reason = "GeneralName is foreign and non-exhaustive")]
    let mut uris = names.value.general_names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => Some(*uri),
        _ => None,
    });
    let (Some(uri), None) = (uris.next(), uris.next()) else {
        return Err(no_uri());
    };
    let agent = AgentId::parse(uri, trust_domain).map_err(|source| IdentityError::NotAnAgent {
        path: path.to_owned(),
        cluster: cluster.clone(),
        source,
    })?;
    if agent.cluster() == cluster {
        return Ok(agent);
    }
    let found = agent.cluster().clone();
    Err(IdentityError::OtherCluster { path: path.to_owned(), found, cluster: cluster.clone() })
}

fn check_pair(
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
    path: &Path,
    key_path: &Path,
    cluster: &ClusterId,
) -> Result<(), IdentityError> {
    let provider = aws_lc_rs::default_provider();
    let paired = CertifiedKey::from_der(chain.to_vec(), key.clone_key(), &provider);
    paired.map(drop).map_err(|source| IdentityError::NotAPair {
        key: key_path.to_owned(),
        certificate: path.to_owned(),
        cluster: cluster.clone(),
        source: Box::new(source),
    })
}

fn certificates(key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let bytes = read(key, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or_else(|| not_pem(key, path, CERTIFICATE))
}

fn private_key(key: &'static str, path: &Path) -> Result<PrivateKeyDer<'static>, IdentityError> {
    PrivateKeyDer::from_pem_slice(&read(key, path)?).map_err(|_| not_pem(key, path, KEY))
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, IdentityError> {
    let bytes = read_bounded(path, FILE_BYTES_MAX).map_err(|source| IdentityError::Unreadable {
        key,
        path: path.to_owned(),
        source,
    })?;
    bytes.ok_or_else(|| IdentityError::TooLarge { key, path: path.to_owned() })
}

fn not_pem(key: &'static str, path: &Path, expected: &'static str) -> IdentityError {
    IdentityError::NotPem { key, path: path.to_owned(), expected }
}

/// The command that makes a certificate for this agent.
fn issue(cluster: &ClusterId) -> String {
    format!("make another one with: tombolo ca issue agent --cluster {cluster}")
}

#[cfg(test)]
mod tests;
