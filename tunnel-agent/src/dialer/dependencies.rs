//! Everything that the dialer and its tunnels need from the rest of the agent, and the state that all of them
//! share.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use daemon::metrics::links::Links;
use daemon::{Readiness, Scope, StateDir};
use proto::Capabilities;
use proto::greeting::{BootNonce, VERSIONS};
use proto::spiffe::AgentId;
use proto::wire::Hello;
use transport::{Carrier, EndpointKeys};

use super::connected_servers::ConnectedServers;
use super::control_plane::ControlPlane;
use super::known_servers::KnownServers;
use super::readiness::DialerReadiness;
use crate::config::{Proxies, ServerAddress};
use crate::server_trust::ServerTrust;
use crate::streams::Streams;
use crate::streams::ledgers::TunnelLedgers;

/// A server to dial: one of the configuration, or one that the agent was told of.
#[derive(Debug, Clone)]
pub struct ConfiguredServer {
    /// The host and port at which it listens for agents.
    pub address: ServerAddress,
    /// The name that its certificate must bear, unless its ID is known.
    pub certificate_name: String,
    /// The ID that its certificate must have. `None` for a server of the configuration.
    pub id: Option<String>,
}

/// The parts of the agent that tunnels are built with. They are there before the agent has a certificate.
pub struct Dependencies {
    /// Names this process of the agent, in each greeting.
    pub boot: BootNonce,
    /// Keys of UDP endpoints, which outlive the process.
    pub keys: EndpointKeys,
    /// The carriers that may be used, the preferred one first.
    pub carriers: Vec<Carrier>,
    /// The proxy by which servers are reached over TCP, if one is configured.
    pub proxies: Proxies,
    /// Longest outage of a link before its tunnel is lost. The server's limit holds if this is `None`.
    pub outage_limit: Option<Duration>,
    /// Serves the streams of every tunnel.
    pub streams: Streams,
    /// The addresses of the cluster's control plane, and the certificates that are shown there.
    pub control_plane: ControlPlane,
    /// Reports whether any server is reached.
    pub readiness: Readiness,
    /// The metrics of all tunnels.
    pub links: Links,
    /// Tunnels to different servers that are kept if a server tells of others, 1 to 8.
    pub tunnels: usize,
    /// The directory for the list of servers.
    pub state: StateDir,
}

/// The state that all tasks of the dialer share.
pub(super) struct SharedDialer {
    pub(super) agent: AgentId,
    pub(super) trust: ServerTrust,
    pub(super) dependencies: Dependencies,
    pub(super) scope: Scope,
    pub(super) connected: ConnectedServers,
    /// The servers that the agent was told of.
    pub(super) known: KnownServers,
    pub(super) readiness: DialerReadiness,
    /// The streams that were begun on each tunnel.
    pub(super) ledgers: TunnelLedgers,
    /// Tunnels that this process has dialed so far.
    dialed: AtomicU64,
    /// Supervisors that were started so far.
    supervisors: AtomicU64,
}

/// Spawns the drivers of a carrier as background tasks. Drivers serve work and are none, so a drain does not
/// wait for them.
pub(super) struct BackgroundSpawner(Scope);

impl SharedDialer {
    pub(super) fn new(
        agent: AgentId,
        trust: ServerTrust,
        known: KnownServers,
        dependencies: Dependencies,
        scope: Scope,
    ) -> Self {
        Self {
            agent,
            trust,
            scope,
            connected: ConnectedServers::default(),
            known,
            readiness: DialerReadiness::new(dependencies.readiness.clone()),
            dependencies,
            ledgers: TunnelLedgers::default(),
            dialed: AtomicU64::new(0),
            supervisors: AtomicU64::new(0),
        }
    }

    /// The greeting of the next tunnel.
    pub(super) fn hello(&self) -> Hello {
        let Dependencies { boot, control_plane, outage_limit, .. } = &self.dependencies;
        Hello {
            versions: VERSIONS.to_vec(),
            cluster: self.agent.cluster().to_string(),
            boot_nonce: boot.0.to_vec(),
            sequence: self.dialed.fetch_add(1, Ordering::Relaxed) + 1,
            software: concat!("tunnel-agent/", env!("CARGO_PKG_VERSION")).to_owned(),
            endpoints: Some(control_plane.current()),
            silence_max_ms: outage_limit
                .map_or(0, |limit| u32::try_from(limit.as_millis()).unwrap_or(u32::MAX)),
            capabilities: Capabilities::OWN.words(),
        }
    }

    /// The number of the next supervisor, which no other one has. It also chooses the supervisor's home.
    pub(super) fn next_supervisor(&self) -> u64 {
        self.supervisors.fetch_add(1, Ordering::Relaxed)
    }

    /// A spawner for the drivers of one carrier.
    pub(super) fn background(&self) -> BackgroundSpawner {
        BackgroundSpawner(self.scope.clone())
    }
}

impl transport::Spawn for BackgroundSpawner {
    fn spawn(&self, driver: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.0.spawn_background(driver);
    }
}
