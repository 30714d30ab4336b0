//! Ways in for the egress of API servers, as they were written and as they are valid.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use daemon::config::{KeyError, bounded};
use proto::ClusterId;
use proto::cluster::is_dns_label;
use rustls_pki_types::CertificateDer;
use serde::Deserialize;

use super::value::{NOTHING, file, said_listen};
use super::{CertifiedPair, EGRESS_CONNECTIONS_MAX, EGRESS_MAX, NAMES_MAX, pem};

/// How many connections one has unless something else is said: a busy API server's webhooks, aggregated APIs and shells.
const CONNECTIONS_DEFAULT: usize = 1_000;

/// A way in for the egress of one API server, to one cluster.
#[derive(Debug)]
pub struct Egress {
    /// A DNS label: who comes by it is `way-in:NAME`.
    pub name: String,
    /// Where its targets are.
    pub cluster: ClusterId,
    /// Connections at once; 1 to [`EGRESS_CONNECTIONS_MAX`].
    pub connections: usize,
    /// Where one comes.
    pub door: EgressDoor,
}

/// Where an API server comes.
#[derive(Debug)]
pub enum EgressDoor {
    /// By TLS, with a certificate.
    Tcp(EgressTcp),
    /// On this machine.
    Unix(EgressUnix),
}

/// By TLS.
#[derive(Debug)]
pub struct EgressTcp {
    /// A TCP address.
    pub listen: SocketAddr,
    /// What is shown there; the server's own certificate, if it is none.
    pub certificate: Option<CertifiedPair>,
    /// What the other side's certificate must chain to; at least one, and none that agents, callers or administrators chain to.
    pub roots: Vec<CertificateDer<'static>>,
    /// Its common name.
    pub client_name: String,
}

/// By a Unix socket.
#[derive(Debug)]
pub struct EgressUnix {
    /// Its path.
    pub path: PathBuf,
    /// Whose processes may come, by the kernel's word; at least one.
    pub uids: Vec<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Written {
    name: Option<String>,
    cluster: Option<String>,
    connections: Option<usize>,
    tcp: Option<WrittenTcp>,
    uds: Option<WrittenUnix>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenTcp {
    listen: Option<String>,
    certificate_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    #[serde(rename = "clientCAFile")]
    client_ca_file: Option<PathBuf>,
    client_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenUnix {
    path: Option<PathBuf>,
    uids: Option<Vec<u32>>,
}

pub(super) fn valid(written: Vec<Written>, directory: &Path) -> Result<Vec<Egress>, KeyError> {
    bounded("egress", written.len(), 0..=EGRESS_MAX)?;
    let mut all: Vec<Egress> = Vec::new();
    for (index, written) in written.into_iter().enumerate() {
        let egress = egress(index, written, directory)?;
        // Policy could not tell the two apart.
        if all.iter().any(|other| other.name == egress.name) {
            let allowed = "a name that no other way in has";
            return Err(KeyError::new(at(index, "name"), egress.name, allowed));
        }
        all.push(egress);
    }
    Ok(all)
}

fn egress(index: usize, written: Written, directory: &Path) -> Result<Egress, KeyError> {
    let Written { name, cluster, connections, tcp, uds } = written;
    let name = name.unwrap_or_default();
    if !is_dns_label(&name) {
        let allowed = "1 to 63 lower-case letters, digits and '-', which policy has behind way-in:";
        return Err(KeyError::new(at(index, "name"), format_args!("{name:?}"), allowed));
    }
    let cluster = cluster.unwrap_or_default();
    let cluster = cluster.parse().map_err(|_| {
        KeyError::new(at(index, "cluster"), format_args!("{cluster:?}"), "the name of one cluster")
    })?;
    let door = match (tcp, uds) {
        (Some(tcp), None) => EgressDoor::Tcp(self::tcp(index, tcp, directory)?),
        (None, Some(uds)) => EgressDoor::Unix(unix(index, uds, directory)?),
        (Some(_), Some(_)) | (None, None) => {
            let allowed =
                "one of tcp and uds, as the transport of kube-apiserver's EgressSelectorConfiguration";
            return Err(KeyError::new(format!("egress[{index}]"), name, allowed));
        }
    };
    let connections = connections.unwrap_or(CONNECTIONS_DEFAULT);
    let connections = bounded(&at(index, "connections"), connections, 1..=EGRESS_CONNECTIONS_MAX)?;
    Ok(Egress { name, cluster, connections, door })
}

fn tcp(index: usize, written: WrittenTcp, directory: &Path) -> Result<EgressTcp, KeyError> {
    let WrittenTcp { listen, certificate_file, key_file, client_ca_file, client_name } = written;
    let [listen_at, certificate_at, key_at, ca_at, name_at] =
        ["listen", "certificateFile", "keyFile", "clientCAFile", "clientName"]
            .map(|key| at(index, &format!("tcp.{key}")));
    let listen = said_listen(&listen_at, listen)?;
    let certificate = match (certificate_file, key_file) {
        (None, None) => None,
        (certificate, key) => {
            let certificate = file(&certificate_at, certificate, directory)?;
            let key = file(&key_at, key, directory)?;
            Some(pem::pair((&certificate_at, &certificate), (&key_at, &key))?)
        }
    };
    let client_ca_file = file(&ca_at, client_ca_file, directory)?;
    // Whoever has a certificate of that authority must not do.
    let client_name = client_name.filter(|name| !name.is_empty()).ok_or_else(|| {
        let allowed = "the common name of the one client certificate that may come, such as kube-apiserver";
        KeyError::new(&name_at, NOTHING, allowed)
    })?;
    Ok(EgressTcp { listen, certificate, roots: pem::roots(&ca_at, &client_ca_file)?, client_name })
}

fn unix(index: usize, written: WrittenUnix, directory: &Path) -> Result<EgressUnix, KeyError> {
    let WrittenUnix { path, uids } = written;
    let uids = uids.unwrap_or_else(|| vec![0]);
    bounded(&at(index, "uds.uids"), uids.len(), 1..=NAMES_MAX)?;
    Ok(EgressUnix { path: file(&at(index, "uds.path"), path, directory)?, uids })
}

fn at(index: usize, key: &str) -> String {
    format!("egress[{index}].{key}")
}

impl Egress {
    /// What it is by TLS, if it is that.
    #[must_use]
    pub fn tcp(&self) -> Option<&EgressTcp> {
        match &self.door {
            EgressDoor::Tcp(tcp) => Some(tcp),
            EgressDoor::Unix(_) => None,
        }
    }
}
