//! Asks the gateway for the clusters that this caller may reach.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Request;
use kube::Client;
use kube::config::AuthInfo;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde::Deserialize;

use crate::config::{Credential, GatewayConfig};

/// Most clusters that are published.
pub const CLUSTERS_MAX: usize = 10_000;

/// Longest time until the gateway takes the connection.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Longest time until more of the answer comes.
const READ_MAX: Duration = Duration::from_secs(30);

/// A cluster as the gateway lists it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Cluster {
    /// The name and labels of the cluster.
    pub metadata: ClusterMetadata,
    /// The state of the cluster, as the gateway knows it now.
    #[serde(default)]
    pub status: ClusterStatus,
}

/// The name and the labels of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct ClusterMetadata {
    /// The name of the cluster.
    pub name: String,
    /// The labels that the gateway's operators have given it.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// The state of a cluster, as the gateway knows it now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// True if the gateway has a tunnel to it that lives.
    #[serde(default)]
    pub connected: bool,
    /// The release of its API server, such as `v1.36.3`, if the gateway knows it.
    pub version: Option<String>,
    /// The time at which its last tunnel was alive, by RFC 3339, if the gateway knows it.
    pub last_seen: Option<String>,
}

#[derive(Deserialize)]
struct ClusterList {
    items: Vec<Cluster>,
}

/// The answer of the gateway, and the CA that has proven who it is.
#[derive(Debug)]
pub struct Listing {
    /// The CA of the gateway's certificate, PEM; `None` if it is one of the system's.
    pub ca_pem: Option<String>,
    /// The clusters that this caller may reach, ordered by name.
    pub clusters: Vec<Cluster>,
}

/// The gateway, with a connection that is kept.
pub struct Gateway {
    config: GatewayConfig,
    /// The client, and the texts of the files by which it was made.
    client: Option<(Client, FileTexts)>,
}

/// The texts of the files that a client is made by. A token is read again by the client itself.
#[derive(PartialEq, Eq)]
struct FileTexts {
    /// Those of the certificate and its key; none with a token.
    certificate: Vec<String>,
    ca_pem: Option<String>,
}

/// The gateway was not asked, or did not say which clusters there are.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// A file cannot be read.
    #[error("cannot read {}", .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// A file has no certificate.
    #[error("{} has no certificate of PEM form", .0.display())]
    NoCertificate(PathBuf),
    /// The URL, the certificate or the key cannot be used.
    #[error("there is no client for the gateway {0}; see that the certificate and the key belong together")]
    Client(String, #[source] Box<dyn std::error::Error + Send + Sync>),
    /// The gateway did not answer, or refused.
    #[error("the gateway {0} does not list its clusters")]
    NoList(String, #[source] Box<kube::Error>),
    /// There are more clusters than are published.
    #[error(
        "the gateway lists {0} clusters, which is more than {CLUSTERS_MAX}; give the controller a caller that may reach fewer"
    )]
    TooMany(usize),
}

impl Gateway {
    /// The gateway with this configuration. Nothing is read before the first question.
    #[must_use]
    pub fn new(config: GatewayConfig) -> Self {
        Self { config, client: None }
    }

    /// Asks for the clusters that this caller may reach.
    ///
    /// # Errors
    /// [`GatewayError`]
    pub async fn list(&mut self) -> Result<Listing, GatewayError> {
        let files = FileTexts::read(&self.config)?;
        let ca_pem = files.ca_pem.clone();
        let client = self.client(files)?;
        let request = Request::get("/clusters").body(Vec::new());
        let request = request.map_err(|error| GatewayError::Client(self.config.url.clone(), error.into()))?;
        let list = client.request::<ClusterList>(request).await;
        let list = list.map_err(|error| GatewayError::NoList(self.config.url.clone(), error.into()))?;
        Ok(Listing { ca_pem, clusters: ordered(list.items)? })
    }

    /// The client of before, or another one if a file has changed since.
    fn client(&mut self, files: FileTexts) -> Result<Client, GatewayError> {
        if let Some((client, of)) = &self.client
            && *of == files
        {
            return Ok(client.clone());
        }
        let refused = |error| GatewayError::Client(self.config.url.clone(), error);
        let config = self.client_config(files.ca_pem.as_deref())?;
        let client = Client::try_from(config).map_err(|error| refused(error.into()))?;
        self.client = Some((client.clone(), files));
        Ok(client)
    }

    fn client_config(&self, ca_pem: Option<&str>) -> Result<kube::Config, GatewayError> {
        let GatewayConfig { url, ca, credential } = &self.config;
        let parsed = url.parse::<http::Uri>();
        let mut config =
            kube::Config::new(parsed.map_err(|error| GatewayError::Client(url.clone(), error.into()))?);
        config.connect_timeout = Some(CONNECT_MAX);
        config.read_timeout = Some(READ_MAX);
        // Otherwise the time that a kept connection was idle counts, too.
        config.reset_reader_on_write = true;
        config.root_cert = match (ca, ca_pem) {
            (Some(path), Some(pem)) => Some(certificates(path, pem)?),
            (Some(_), None) | (None, _) => None,
        };
        let text = |path: &Path| Some(path.display().to_string());
        config.auth_info = match credential {
            Credential::Certificate(certificate, key) => AuthInfo {
                client_certificate: text(certificate),
                client_key: text(key),
                ..AuthInfo::default()
            },
            Credential::Token(file) => AuthInfo { token_file: text(file), ..AuthInfo::default() },
        };
        Ok(config)
    }
}

impl FileTexts {
    fn read(config: &GatewayConfig) -> Result<Self, GatewayError> {
        let certificate = match &config.credential {
            Credential::Certificate(certificate, key) => vec![read(certificate)?, read(key)?],
            Credential::Token(_) => Vec::new(),
        };
        Ok(Self { certificate, ca_pem: config.ca.as_deref().map(read).transpose()? })
    }
}

fn ordered(mut clusters: Vec<Cluster>) -> Result<Vec<Cluster>, GatewayError> {
    if clusters.len() > CLUSTERS_MAX {
        return Err(GatewayError::TooMany(clusters.len()));
    }
    clusters.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    Ok(clusters)
}

fn read(path: &Path) -> Result<String, GatewayError> {
    fs::read_to_string(path).map_err(|error| GatewayError::Read(path.to_owned(), error))
}

/// The certificates in the text of a PEM file, DER each.
fn certificates(path: &Path, text: &str) -> Result<Vec<Vec<u8>>, GatewayError> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(text.as_bytes())
        .flatten()
        .map(|certificate| certificate.to_vec())
        .collect();
    if found.is_empty() { Err(GatewayError::NoCertificate(path.to_owned())) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gateway of an older release tells neither labels nor the version.
    #[test]
    fn a_cluster_of_an_older_gateway_is_read_too() {
        let older = r#"{ "items": [{ "apiVersion": "tombolo.dev/v1alpha1", "kind": "Cluster", "metadata": { "name": "a" },
            "status": { "connected": true, "tunnels": [] } }] }"#;

        let list: ClusterList = serde_json::from_str(older).unwrap();

        assert_eq!(list.items[0].metadata.name, "a");
        assert_eq!(list.items[0].status, ClusterStatus { connected: true, ..ClusterStatus::default() });
    }

    #[test]
    fn beyond_the_limit_of_clusters_none_is_published() {
        let cluster = |number: usize| Cluster {
            metadata: ClusterMetadata { name: format!("{number:05}"), ..ClusterMetadata::default() },
            status: ClusterStatus::default(),
        };
        let clusters = |count: usize| (0..count).rev().map(cluster).collect::<Vec<_>>();

        assert_eq!(ordered(clusters(CLUSTERS_MAX)).unwrap()[0].metadata.name, "00000");
        let refused = ordered(clusters(CLUSTERS_MAX + 1)).unwrap_err();
        assert!(refused.to_string().contains("lists 10001 clusters"), "{refused}");
    }

    #[test]
    fn a_file_without_a_certificate_is_named() {
        assert!(
            certificates(Path::new("ca.crt"), "").unwrap_err().to_string().contains("has no certificate")
        );
    }
}
