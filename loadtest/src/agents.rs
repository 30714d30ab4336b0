//! Agents without an API server, many in one process. Each makes the handshake of a real agent, and then only
//! keeps its tunnel.

use std::net::SocketAddr;
use std::sync::Arc;

use ::tests::rig::Rig;
use ::tests::rogue_server::spawner;
use daemon::{StateDir, StateError};
use futures::stream::{StreamExt, TryStreamExt, iter};
use proto::CloseCode;
use proto::greeting::{BootNonce, VERSIONS};
use proto::spiffe::{AgentId, TRUST_DOMAIN_DEFAULT};
use proto::wire::Hello;
use rustls::time_provider::DefaultTimeProvider;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::task::JoinHandle;
use transport::tls::ExpectedServers;
use transport::{DialError, Dialed, Endpoint, EndpointError, EndpointKeys, HANDSHAKE_MAX, Tunnel};
use tunnel_agent::server_trust::{ServerTrust, ServerTrustError};

use linksim::rng::SeededRng;

/// The name in the server's certificate in a rig.
const SERVER_NAME: &str = "127.0.0.1";

/// Certificates that are issued at once. Each is a process that needs mostly CPU time.
const ISSUED_AT_ONCE: usize = 4;

/// An agent that can dial any number of times.
pub struct Agent {
    cluster: String,
    servers: ServerTrust,
    keys: EndpointKeys,
    boot: [u8; 16],
    dialed: u64,
}

/// An open tunnel. A drop breaks off its connection without a close.
pub struct OpenTunnel {
    endpoint: Endpoint,
    tunnel: Tunnel,
    driver: JoinHandle<()>,
}

/// The error if an agent has no tunnel.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The certificate or key is no valid PEM.
    #[error("the certificate of {0} cannot be read")]
    Pem(String, #[source] rustls_pki_types::pem::Error),
    /// The state directory, which holds the trusted roots, cannot be opened.
    #[error("an agent has no state directory")]
    State(#[from] StateError),
    /// The TLS configuration of the agent is invalid.
    #[error("TLS of an agent cannot be set up")]
    ServerTrust(#[from] ServerTrustError),
    /// The agent got no socket. With many agents, the limit of open files is the likely cause.
    #[error("an agent has no UDP socket; is the limit of open files (ulimit -n) high enough?")]
    Socket(#[from] EndpointError),
    /// The dial or the tunnel handshake failed.
    #[error("{0} came to no tunnel")]
    Dial(String, #[source] DialError),
}

/// Issues certificates by `tombolo ca`, one for each of the clusters `PREFIX-0`, `PREFIX-1`, …
///
/// # Errors
/// Every variant of [`AgentError`].
pub async fn issue(rig: &Rig, prefix: &str, count: u32, seed: u64) -> Result<Vec<Agent>, AgentError> {
    let agents = (0..count).map(|number| {
        let boot = SeededRng::new(seed ^ u64::from(number));
        Agent::issue(rig, format!("{prefix}-{number}"), boot)
    });
    iter(agents).buffered(ISSUED_AT_ONCE).try_collect().await
}

impl Agent {
    async fn issue(rig: &Rig, cluster: String, mut rng: SeededRng) -> Result<Self, AgentError> {
        rig.tombolo(&["ca", "issue", "agent", "--dir", "pki", "--cluster", &cluster]).await;
        let file = |end: &str| rig.path().join(format!("pki/{cluster}-agent.{end}"));
        let pem = |error| AgentError::Pem(cluster.clone(), error);
        let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file("crt")).map_err(pem)?.collect();
        let own = (chain.map_err(pem)?, PrivateKeyDer::from_pem_file(file("key")).map_err(pem)?);
        let roots = vec![
            CertificateDer::from_pem_slice(rig.server_ca().as_bytes())
                .map_err(|error| AgentError::Pem("server-ca".to_owned(), error))?,
        ];
        let meant = ExpectedServers { trust_domain: TRUST_DOMAIN_DEFAULT.to_owned(), ids: Vec::new() };
        let state = StateDir::open(&rig.path().join(format!("{cluster}.state")))?;
        let servers = ServerTrust::new(own, &roots, meant, state, Arc::new(DefaultTimeProvider))?;
        let keys = EndpointKeys::generate().expect("the system has chance");
        let mut agent = Self { cluster, servers, keys, boot: [0; 16], dialed: 0 };
        agent.restart(&mut rng);
        Ok(agent)
    }

    /// The identity, boot nonce, keys and trusted servers for a `Dialer` of the real agent.
    pub fn parts(&self) -> (AgentId, BootNonce, EndpointKeys, ServerTrust) {
        let id = AgentId::parse(&format!("spiffe://tombolo/cluster/{}/agent/any", self.cluster), "tombolo");
        (id.expect("a cluster's name"), BootNonce(self.boot), self.keys.clone(), self.servers.clone())
    }

    /// Becomes another process of the same agent: its boot nonce changes.
    pub fn restart(&mut self, rng: &mut SeededRng) {
        self.boot[..8].copy_from_slice(&rng.next_u64().to_be_bytes());
        self.boot[8..].copy_from_slice(&rng.next_u64().to_be_bytes());
        self.dialed = 0;
    }

    /// Dials the server, makes the tunnel handshake, and keeps the tunnel open.
    ///
    /// # Errors
    /// Every variant of [`AgentError`].
    pub async fn connect(&mut self, server: SocketAddr) -> Result<OpenTunnel, AgentError> {
        self.dialed += 1;
        let endpoint = Endpoint::dialing(server, &self.keys, spawner())?;
        let hello = Hello {
            versions: VERSIONS.to_vec(),
            cluster: self.cluster.clone(),
            boot_nonce: self.boot.to_vec(),
            sequence: self.dialed,
            software: concat!("loadtest/", env!("CARGO_PKG_VERSION")).to_owned(),
            endpoints: None,
            // The longest silence that the server allows.
            silence_max_ms: 0,
            capabilities: Vec::new(),
        };
        let dialed = endpoint.dial(server, SERVER_NAME, &self.servers.tls(), hello, HANDSHAKE_MAX).await;
        let Dialed { tunnel, driver, .. } =
            dialed.map_err(|error| AgentError::Dial(self.cluster.clone(), error))?;
        let driver = tokio::spawn(async move { drop(driver.run(|_| {}).await) });
        Ok(OpenTunnel { endpoint, tunnel, driver })
    }
}

impl OpenTunnel {
    /// Closes the tunnel, and waits until the server has got the close.
    pub async fn leave(self) {
        self.tunnel.close(CloseCode::Stopping);
        self.endpoint.close(CloseCode::Stopping).await;
    }
}

impl Drop for OpenTunnel {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
