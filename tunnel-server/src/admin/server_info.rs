//! Facts about the server that the API reports, as it was configured and bound.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::listener::tls::CertificateWithRoots;

/// Facts about the server that the API reports.
#[derive(Debug, Clone)]
pub struct ServerInfo {
    /// Its name among its like.
    pub server_id: String,
    /// The trust domain of its identities.
    pub trust_domain: String,
    /// The TCP address for callers.
    pub gateway: SocketAddr,
    /// The UDP address for agents.
    pub tunnel: SocketAddr,
    /// The TCP address of the probes.
    pub probes: SocketAddr,
    /// The data for enrolling agents, if this server enrolls any.
    pub enrollment: Option<EnrollmentInfo>,
}

/// The data that an agent needs before it has a certificate.
#[derive(Debug, Clone)]
pub struct EnrollmentInfo {
    /// The address of the enrollment listener, `HOST:PORT`.
    pub address: String,
    /// The configured addresses at which agents reach the servers' tunnel listeners; may be empty.
    pub servers: Vec<String>,
    /// The certificate of the listener with its roots, by whose pins agents verify it.
    pub shown: Arc<CertificateWithRoots>,
}

impl EnrollmentInfo {
    /// The configured addresses, or else this port at the host of the enrollment listener.
    pub(super) fn servers_or_default(&self, tunnel_port: u16) -> Vec<String> {
        match self.address.rsplit_once(':') {
            Some((host, _)) if self.servers.is_empty() => vec![format!("{host}:{tunnel_port}")],
            Some(_) | None => self.servers.clone(),
        }
    }
}
