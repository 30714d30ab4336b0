//! The section `peering`: the listener for the other servers of an installation, and the certificate that this server shows to them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use daemon::config::{KeyError, socket_address};
use serde::Deserialize;

use super::pem::{self, CertifiedPair};
use super::roots::{self, TrustedRoots};
use super::value::{NOTHING, file, is_host_and_port};

const SECTION: &str = "peering";
const ADDRESS: &str = "peering.address";
const CERTIFICATE: &str = "peering.certificateFile";
const KEY: &str = "peering.keyFile";
const CA: &str = "peering.peerCAFile";
const SERVER_CA: &str = "peering.serverCAFile";

/// The address of the listener for other servers, unless another is configured.
const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8446);

/// The listener for the other servers of an installation, and the identity with which this server dials theirs.
#[derive(Debug)]
pub struct PeeringConfig {
    /// The address to bind: UDP for QUIC, and TCP for HTTP/2.
    pub listen: SocketAddr,
    /// The carrier by which this server dials the others.
    pub carrier: PeerCarrier,
    /// The address at which other servers dial this one: `HOST:PORT`.
    pub address: String,
    /// The certificate of the role peer that this server shows when it dials another server. It names this server's ID.
    pub certificate: CertifiedPair,
    /// The roots that the certificates of dialing servers must chain to; at least one, and none of another role.
    pub roots: TrustedRoots,
    /// The roots that the certificates of dialed servers must chain to; at least one.
    pub server_roots: TrustedRoots,
}

/// The carrier of the sessions that this server dials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PeerCarrier {
    /// QUIC over UDP: each relayed stream is lost and resent by itself.
    #[default]
    Quic,
    /// HTTP/2 over TLS over TCP, for networks between servers that block UDP.
    Http2,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawPeering {
    /// Address and port for other servers: UDP for QUIC, and TCP for HTTP/2.
    #[cfg_attr(test, schemars(extend("default" = LISTEN_DEFAULT.to_string())))]
    listen: Option<String>,
    /// `HOST:PORT` at which the other servers dial this one.
    #[cfg_attr(test, schemars(required))]
    address: Option<String>,
    /// The carrier by which this server dials the others. It accepts both.
    #[cfg_attr(test, schemars(extend("default" = "quic"), extend("enum" = ["quic", "http2", null])))]
    carrier: Option<String>,
    /// PEM file with the certificate that this server shows when it dials another server (`tombolo ca issue peer`).
    #[cfg_attr(test, schemars(required))]
    certificate_file: Option<PathBuf>,
    /// PEM file with its private key.
    #[cfg_attr(test, schemars(required))]
    key_file: Option<PathBuf>,
    /// PEM file with the CA certificates of such certificates (`peer-ca.crt`).
    #[cfg_attr(test, schemars(required))]
    #[serde(rename = "peerCAFile")]
    peer_ca_file: Option<PathBuf>,
    /// PEM file with the CA certificates of servers (`server-ca.crt`), by which this server verifies those that it dials.
    #[cfg_attr(test, schemars(required))]
    #[serde(rename = "serverCAFile")]
    server_ca_file: Option<PathBuf>,
}

/// Servers find each other in etcd, so the section needs `has_etcd`.
pub(super) fn peering(
    raw: Option<RawPeering>,
    has_etcd: bool,
    server_id: &str,
    trust_domain: &str,
    directory: &Path,
) -> Result<Option<PeeringConfig>, KeyError> {
    let Some(raw) = raw else { return Ok(None) };
    let RawPeering { listen, address, carrier, certificate_file, key_file, peer_ca_file, server_ca_file } =
        raw;
    if !has_etcd {
        let allowed = "directory.etcd too, because servers find each other in etcd, or no peering";
        return Err(KeyError::new(SECTION, "a section without directory.etcd", allowed));
    }
    let listen = listen.map_or(Ok(LISTEN_DEFAULT), |listen| socket_address("peering.listen", &listen))?;
    let allowed = "HOST:PORT, by which other servers reach peering.listen";
    let address = address.ok_or_else(|| KeyError::new(ADDRESS, NOTHING, allowed))?;
    if !is_host_and_port(&address) {
        return Err(KeyError::new(ADDRESS, address, allowed));
    }
    let certificate_file = file(CERTIFICATE, certificate_file, directory)?;
    let key_file = file(KEY, key_file, directory)?;
    let certificate = pem::valid_client_pair((CERTIFICATE, &certificate_file), (KEY, &key_file))?;
    check_identity(&certificate, &certificate_file, server_id, trust_domain)?;
    let peer_ca_file = file(CA, peer_ca_file, directory)?;
    let server_ca_file = file(SERVER_CA, server_ca_file, directory)?;
    Ok(Some(PeeringConfig {
        listen,
        carrier: self::carrier(carrier)?,
        address,
        certificate,
        roots: roots::roots(CA, &peer_ca_file)?,
        server_roots: roots::roots(SERVER_CA, &server_ca_file)?,
    }))
}

fn carrier(raw: Option<String>) -> Result<PeerCarrier, KeyError> {
    match raw.as_deref() {
        None => Ok(PeerCarrier::default()),
        Some("quic") => Ok(PeerCarrier::Quic),
        Some("http2") => Ok(PeerCarrier::Http2),
        Some(other) => Err(KeyError::new("peering.carrier", other, "quic or http2")),
    }
}

/// Checks that the certificate is of the role peer and names this server.
fn check_identity(
    pair: &CertifiedPair,
    path: &Path,
    server_id: &str,
    trust_domain: &str,
) -> Result<(), KeyError> {
    let refused = |found: &dyn std::fmt::Display| {
        let found = format!("{} ({found})", path.display());
        let allowed = format!(
            "the certificate spiffe://{trust_domain}/peer/{server_id} of this server: tombolo ca issue peer --id {server_id}"
        );
        KeyError::new(CERTIFICATE, found, allowed)
    };
    let leaf = pair.chain.first().ok_or_else(|| refused(&"it holds no certificate"))?;
    match trust::identity::peer(leaf, trust_domain) {
        Ok(id) if id.as_str() == server_id => Ok(()),
        Ok(id) => Err(refused(&format_args!("it names the server {id}, and serverId is {server_id}"))),
        Err(error) => Err(refused(&error)),
    }
}
