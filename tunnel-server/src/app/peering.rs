//! Prepares the sessions with the other servers.

use std::sync::Arc;

use audit::Log;
use daemon::{BindError, Failure, Scope};
use proto::greeting::ServerInfo;
use proto::peering::PeerInfo;
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
use crate::registry::Registry;

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
}

impl<'a> OwnProcess<'a> {
    pub(super) fn new(
        host: &'a ServerInfo,
        trust_domain: &'a str,
        certificate: Arc<SharedCertificate>,
        (keys, number): (&'a EndpointKeys, ServerNumber),
    ) -> Self {
        Self { host, trust_domain, certificate, keys, number }
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
    let OwnProcess { host, trust_domain, certificate: shown, keys, number } = own;
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
    let info = PeerInfo {
        server_id: host.server_id.clone(),
        boot: host.boot,
        epoch: 0,
        software: host.software.clone(),
    };
    let own = OwnPeer {
        info,
        trust_domain: trust_domain.to_owned(),
        certificate: certificates::follow(ReloadedFile::PeerCertificate, "peer", certificate, scope)?,
        server_roots: follower.dialed_servers(&server_roots),
        keys: keys.clone(),
        carrier,
    };
    Ok(Peering::new((endpoint, tcp), own, shared, spawn))
}
