//! Keeps a tunnel to every server: finds their addresses, dials, greets, serves, and dials again.

mod addresses;
mod log_throttle;
mod control_plane;
mod dial;
mod tunnel_task;
mod supervisor;
mod resolver;
mod backoff;
mod readiness;
mod happy_eyeballs;
mod connected_servers;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use daemon::metrics::links::Links;
use daemon::{Readiness, Scope};
use proto::greeting::{BootNonce, VERSIONS};
use proto::spiffe::AgentId;
use proto::wire::Hello;
use transport::{Carrier, EndpointKeys};

use crate::config::{Proxies, ServerAddress};
use crate::servers::Servers;
use crate::streams::Streams;
pub use control_plane::ControlPlane;
use resolver::Resolver;
use readiness::DialerReadiness;
use connected_servers::ConnectedServers;

/// Dials all servers for as long as the agent lives.
pub struct Dialer {
    kit: Arc<Kit>,
    servers: Vec<ConfiguredServer>,
}

/// A configured server.
#[derive(Debug, Clone)]
pub struct ConfiguredServer {
    /// Where it listens.
    pub address: ServerAddress,
    /// The name that its certificate must bear.
    pub certificate_name: String,
}

/// What tunnels are made of.
pub struct Equipment {
    /// Who dials.
    pub agent: AgentId,
    /// Which process of it.
    pub boot: BootNonce,
    /// Keys that outlive the process.
    pub keys: EndpointKeys,
    /// Whom the agent takes for its servers, and shows its certificate.
    pub trusted: Servers,
    /// What may carry tunnels, the best first.
    pub carriers: Vec<Carrier>,
    /// Through which proxy servers are reached over TCP.
    pub proxies: Proxies,
    /// How long a tunnel is held whose link is dark, if not for as long as the server does.
    pub outage_limit: Option<Duration>,
    /// What serves the streams.
    pub streams: Streams,
    /// Where the cluster's control plane answers, and what it shows.
    pub control_plane: ControlPlane,
    /// Who has to know whether the agent is of use.
    pub readiness: Readiness,
    /// Where tunnels are counted.
    pub links: Links,
}

/// What everything here has in common.
struct Kit {
    agent: AgentId,
    boot: BootNonce,
    keys: EndpointKeys,
    trusted: Servers,
    carriers: Vec<Carrier>,
    proxies: Proxies,
    outage_limit: Option<Duration>,
    streams: Streams,
    control_plane: ControlPlane,
    links: Links,
    scope: Scope,
    roll: ConnectedServers,
    presence: DialerReadiness,
    /// Tunnels that this process has dialed.
    dialed: AtomicU64,
    /// Addresses that were ever kept; the next one's number, and its turn for a home.
    supervisors: AtomicU64,
}

impl Dialer {
    /// A dialer of these servers.
    #[must_use]
    pub fn new(servers: Vec<ConfiguredServer>, equipment: Equipment, scope: Scope) -> Self {
        let Equipment {
            agent,
            boot,
            keys,
            trusted,
            carriers,
            proxies,
            outage_limit,
            streams,
            control_plane,
            readiness,
            links,
        } = equipment;
        let kit = Kit {
            agent,
            boot,
            keys,
            trusted,
            carriers,
            proxies,
            outage_limit,
            streams,
            control_plane,
            links,
            scope,
            roll: ConnectedServers::default(),
            presence: DialerReadiness::new(readiness),
            dialed: AtomicU64::new(0),
            supervisors: AtomicU64::new(0),
        };
        Self { kit: Arc::new(kit), servers }
    }

    /// Begins to dial, and dials again, until the drain begins; tunnels that are open then are drained first.
    pub fn run(self) {
        for server in self.servers {
            let lookout = Resolver::new(Arc::clone(&self.kit), server);
            self.kit.scope.spawn(lookout.run());
        }
    }
}

impl Kit {
    /// The next tunnel's greeting.
    fn hello(&self) -> Hello {
        Hello {
            versions: VERSIONS.to_vec(),
            cluster: self.agent.cluster().to_string(),
            boot_nonce: self.boot.0.to_vec(),
            sequence: self.dialed.fetch_add(1, Ordering::Relaxed) + 1,
            software: concat!("tunnel-agent/", env!("CARGO_PKG_VERSION")).to_owned(),
            endpoints: Some(self.control_plane.now()),
            silence_max_ms: self
                .outage_limit
                .map_or(0, |limit| u32::try_from(limit.as_millis()).unwrap_or(u32::MAX)),
        }
    }
}

/// For jitter, where a generator that fails costs nothing but the jitter.
fn random() -> u64 {
    let mut bytes = [0; 8];
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// Drivers of a carrier serve the work and are none: a drain does not wait for them.
struct BackgroundSpawner(Scope);

impl transport::Spawn for BackgroundSpawner {
    fn spawn(&self, driver: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.0.attend(driver);
    }
}
