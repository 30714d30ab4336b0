//! The list `egress`: entry points for the egress traffic of API servers, each for one API server and one cluster.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use daemon::config::{KeyError, bounded};
use proto::ClusterId;
use proto::cluster::is_dns_label;
use serde::Deserialize;

use super::pem::{self, CertifiedPair};
use super::roots::{self, TrustedRoots};
use super::value::{NAMES_MAX, NOTHING, file, required_listen_address};

/// Most entry points for the egress of API servers.
pub const EGRESS_MAX: usize = 64;

/// Most connections that one of them can be given.
pub const EGRESS_CONNECTIONS_MAX: usize = 2_000;

/// Default number of connections: enough for a busy API server's webhooks, aggregated APIs and shells.
const CONNECTIONS_DEFAULT: usize = 1_000;

/// An entry point for the egress of one API server, to one cluster.
#[derive(Debug)]
pub struct EgressConfig {
    /// A DNS label. Its client is the principal `entry-point:NAME`.
    pub name: String,
    /// The cluster in which its targets are.
    pub cluster: ClusterId,
    /// Connections at once; 1 to [`EGRESS_CONNECTIONS_MAX`].
    pub connections: usize,
    /// The listener at which the API server connects.
    pub listener: EgressListener,
}

/// The listener at which an API server connects.
#[derive(Debug)]
pub enum EgressListener {
    /// By TLS, with a client certificate.
    Tcp(Box<EgressTcp>),
    /// By a Unix socket on this machine.
    Unix(EgressUnix),
}

/// A TLS listener with client certificates.
#[derive(Debug)]
pub struct EgressTcp {
    /// The TCP address to bind.
    pub listen: SocketAddr,
    /// The certificate that the listener shows; the server's own, if it is `None`.
    pub certificate: Option<CertifiedPair>,
    /// The roots that the client's certificate must chain to; at least one, and none that agents, callers, administrators
    /// or peers chain to.
    pub roots: TrustedRoots,
    /// The common name of the client's certificate.
    pub client_name: String,
}

/// A Unix socket with a list of users.
#[derive(Debug)]
pub struct EgressUnix {
    /// The path of the socket.
    pub path: PathBuf,
    /// The user IDs whose processes may connect, as the kernel reports them; at least one.
    pub uids: Vec<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawEgress {
    /// Name of the entry point, a DNS label. The policy calls its caller `entry-point:NAME`.
    #[cfg_attr(test, schemars(required))]
    name: Option<String>,
    /// The cluster to which the entry leads.
    #[cfg_attr(test, schemars(required))]
    cluster: Option<String>,
    /// Connections at once through the entry.
    #[cfg_attr(test, schemars(range(min = 1, max = EGRESS_CONNECTIONS_MAX), extend("default" = CONNECTIONS_DEFAULT)))]
    connections: Option<usize>,
    /// A TLS listener. The entry has either `tcp` or `uds`.
    tcp: Option<RawEgressTcp>,
    /// A Unix socket on this machine.
    uds: Option<RawEgressUnix>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawEgressTcp {
    /// Address and TCP port for the API server.
    #[cfg_attr(test, schemars(required))]
    listen: Option<String>,
    /// PEM file with another certificate than the server's own, together with `keyFile`.
    certificate_file: Option<PathBuf>,
    /// PEM file with the private key of that certificate.
    key_file: Option<PathBuf>,
    /// PEM file with the CA certificates of the API server's client certificate.
    #[cfg_attr(test, schemars(required))]
    #[serde(rename = "clientCAFile")]
    client_ca_file: Option<PathBuf>,
    /// Common name of the one client certificate that may connect.
    #[cfg_attr(test, schemars(required))]
    client_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawEgressUnix {
    /// Path of the Unix socket. The server makes its folder.
    #[cfg_attr(test, schemars(required))]
    path: Option<PathBuf>,
    /// User ids whose processes may connect.
    #[cfg_attr(test, schemars(extend("default" = [0]), length(min = 1, max = NAMES_MAX)))]
    uids: Option<Vec<u32>>,
}

pub(super) fn egress(raw: Vec<RawEgress>, directory: &Path) -> Result<Vec<EgressConfig>, KeyError> {
    bounded("egress", raw.len(), 0..=EGRESS_MAX)?;
    let mut all: Vec<EgressConfig> = Vec::new();
    for (index, raw) in raw.into_iter().enumerate() {
        let egress = entry(index, raw, directory)?;
        // Policy could not distinguish two of one name.
        if all.iter().any(|other| other.name == egress.name) {
            let allowed = "a name that no other entry point has";
            return Err(KeyError::new(at(index, "name"), egress.name, allowed));
        }
        all.push(egress);
    }
    Ok(all)
}

fn entry(index: usize, raw: RawEgress, directory: &Path) -> Result<EgressConfig, KeyError> {
    let RawEgress { name, cluster, connections, tcp, uds } = raw;
    let name = name.unwrap_or_default();
    if !is_dns_label(&name) {
        let allowed = "1 to 63 lower-case letters, digits and '-', which policy has behind entry-point:";
        return Err(KeyError::new(at(index, "name"), format_args!("{name:?}"), allowed));
    }
    let cluster = cluster.unwrap_or_default();
    let cluster = cluster.parse().map_err(|_| {
        KeyError::new(at(index, "cluster"), format_args!("{cluster:?}"), "the name of one cluster")
    })?;
    let listener = match (tcp, uds) {
        (Some(tcp), None) => EgressListener::Tcp(Box::new(self::tcp(index, tcp, directory)?)),
        (None, Some(uds)) => EgressListener::Unix(unix(index, uds, directory)?),
        (Some(_), Some(_)) | (None, None) => {
            let allowed =
                "one of tcp and uds, as the transport of kube-apiserver's EgressSelectorConfiguration";
            return Err(KeyError::new(format!("egress[{index}]"), name, allowed));
        }
    };
    let connections = connections.unwrap_or(CONNECTIONS_DEFAULT);
    let connections = bounded(&at(index, "connections"), connections, 1..=EGRESS_CONNECTIONS_MAX)?;
    Ok(EgressConfig { name, cluster, connections, listener })
}

fn tcp(index: usize, raw: RawEgressTcp, directory: &Path) -> Result<EgressTcp, KeyError> {
    let RawEgressTcp { listen, certificate_file, key_file, client_ca_file, client_name } = raw;
    let [listen_at, certificate_at, key_at, ca_at, name_at] =
        ["listen", "certificateFile", "keyFile", "clientCAFile", "clientName"]
            .map(|key| at(index, &format!("tcp.{key}")));
    let listen = required_listen_address(&listen_at, listen)?;
    let certificate = match (certificate_file, key_file) {
        (None, None) => None,
        (certificate, key) => {
            let certificate = file(&certificate_at, certificate, directory)?;
            let key = file(&key_at, key, directory)?;
            Some(pem::pair((&certificate_at, &certificate), (&key_at, &key))?)
        }
    };
    let client_ca_file = file(&ca_at, client_ca_file, directory)?;
    // The authority may issue certificates to others too, so the name is required.
    let client_name = client_name.filter(|name| !name.is_empty()).ok_or_else(|| {
        let allowed = "the common name of the one client certificate that may come, such as kube-apiserver";
        KeyError::new(&name_at, NOTHING, allowed)
    })?;
    Ok(EgressTcp { listen, certificate, roots: roots::roots(&ca_at, &client_ca_file)?, client_name })
}

fn unix(index: usize, raw: RawEgressUnix, directory: &Path) -> Result<EgressUnix, KeyError> {
    let RawEgressUnix { path, uids } = raw;
    let uids = uids.unwrap_or_else(|| vec![0]);
    bounded(&at(index, "uds.uids"), uids.len(), 1..=NAMES_MAX)?;
    Ok(EgressUnix { path: file(&at(index, "uds.path"), path, directory)?, uids })
}

fn at(index: usize, key: &str) -> String {
    format!("egress[{index}].{key}")
}

impl EgressConfig {
    /// The TLS listener, if it is one.
    #[must_use]
    pub fn tcp(&self) -> Option<&EgressTcp> {
        match &self.listener {
            EgressListener::Tcp(tcp) => Some(tcp),
            EgressListener::Unix(_) => None,
        }
    }
}
