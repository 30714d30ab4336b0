//! Prepares the sessions with the other servers.

use std::sync::Arc;
use std::time::SystemTime;

use audit::Log;
use daemon::{BindError, Failure, Readiness, Scope};
use proto::greeting::ServerInfo;
use proto::peering::{FileDigest, PeerInfo};
use tokio::sync::watch;
use transport::tls::{ServerMaterial, SharedCertificate};
use transport::{Endpoint, EndpointError, EndpointKeys, ServerNumber, Spawn};

use super::certificates;
use super::trusted_roots::RootsFollower;
use crate::clocks::Clocks;
use crate::config::PeeringConfig;
use crate::limits::Limiter;
use crate::listener::{Listener, ListenerLimits, ListenerTls};
use crate::metrics::ReloadedFile;
use crate::peering::{OwnPeer, PEERS_MAX, Peering};
use crate::registry::{OwnServer, OwnServerParts, Registry};

/// The limits of the TCP port for other servers, each of which has a session or two.
const LIMITS: ListenerLimits =
    ListenerLimits { connections_max: 4 * PEERS_MAX, handshakes_max: PEERS_MAX, ..ListenerLimits::DEFAULT };

/// This process, as other servers see it.
pub(super) struct OwnProcess<'a> {
    pub(super) host: &'a ServerInfo,
    trust_domain: &'a str,
    /// The certificate that the server shows to those that dial it.
    certificate: Arc<SharedCertificate>,
    keys: &'a EndpointKeys,
    number: ServerNumber,
    /// Its state, of which it tells other servers.
    server: OwnServer,
}

impl<'a> OwnProcess<'a> {
    pub(super) fn new(
        host: &'a ServerInfo,
        trust_domain: &'a str,
        (certificate, server): (Arc<SharedCertificate>, OwnServer),
        (keys, number): (&'a EndpointKeys, ServerNumber),
    ) -> Self {
        Self { host, trust_domain, certificate, keys, number, server }
    }
}

/// Binds the port for other servers.
///
/// # Errors
/// [`Failure`] if the port or a file cannot be used.
pub(super) fn bind(
    PeeringConfig { listen, address: _, carrier, certificate, roots, server_roots }: PeeringConfig,
    own: OwnProcess<'_>,
    (follower, scope): (&RootsFollower, &Scope),
    shared: (Registry, Limiter, Clocks, Log),
    spawn: Arc<dyn Spawn>,
) -> Result<Peering, Failure> {
    let OwnProcess { host, trust_domain, certificate: shown, keys, number, server } = own;
    let material = ServerMaterial { certificate: shown, client_roots: follower.peers(&roots)? };
    let tls = transport::tls::peer_tcp_server_config(material.clone()).map_err(Failure::misconfigured)?;
    let endpoint = Endpoint::serve_peers(listen, material, keys, number, Arc::clone(&spawn));
    let endpoint = endpoint.map_err(|error| match error {
        EndpointError::Bind { address, source } => {
            Failure::from(BindError::new("peering.listen", address, source))
        }
        error @ EndpointError::Tls(_) => Failure::misconfigured(error),
    })?;
    let tls = ListenerTls { agents: Some(tls), ..ListenerTls::default() };
    let address = endpoint.address().map_err(Failure::could_not_go_on)?;
    let tcp = Listener::bind("peering.listen", address, tls, LIMITS)?;
    let own = OwnPeer {
        info: info(host),
        trust_domain: trust_domain.to_owned(),
        certificate: certificates::follow(ReloadedFile::PeerCertificate, "peer", certificate, scope)?,
        server_roots: follower.dialed_servers(&server_roots),
        keys: keys.clone(),
        carrier,
        server,
    };
    Ok(Peering::new((endpoint, tcp), own, shared, spawn))
}

/// This server with the sources of what it tells of itself.
pub(super) fn own_server(
    (host, trust_domain): (&ServerInfo, &str),
    peering: Option<&PeeringConfig>,
    (policy, trust_bundle): (watch::Receiver<FileDigest>, watch::Receiver<Arc<[u8]>>),
    (readiness, registry): (&Readiness, &Registry),
) -> OwnServer {
    OwnServer::new(OwnServerParts {
        info: info(host),
        trust_domain: trust_domain.to_owned(),
        started: SystemTime::now(),
        peering: peering.map(|peering| peering.address.clone()),
        policy,
        trust_bundle,
        readiness: readiness.clone(),
        registry: registry.clone(),
    })
}

/// This process, as it introduces itself to other servers.
fn info(host: &ServerInfo) -> PeerInfo {
    PeerInfo { server_id: host.server_id.clone(), boot: host.boot, epoch: 0, software: host.software.clone() }
}
