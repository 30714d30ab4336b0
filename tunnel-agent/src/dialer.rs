//! Keeps a tunnel to each configured server: dials, greets, serves, and dials again.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use daemon::metrics::links::Links;
use daemon::{Readiness, Scope, chain};
use proto::Backoff;
use proto::greeting::{BootNonce, VERSIONS};
use proto::spiffe::AgentId;
use proto::wire::{Endpoints, Hello};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};
use transport::{
    DialError, DialTls, Dialed, Driver, Endpoint, EndpointKeys, Tunnel, TunnelEnded, TunnelEvent,
};

use crate::config::ServerAddress;
use crate::metrics;
use crate::streams::Streams;

/// Waits between dials. The cap is what a restarted server may cost an agent on top of a handshake.
const BACKOFF_BASE: Duration = Duration::from_millis(100);
const BACKOFF_CAP: Duration = Duration::from_secs(2);

/// Waits after a refusal that will not change by itself: a certificate, a version, a name.
const REFUSED_CAP: Duration = Duration::from_secs(60);

/// A tunnel that held so long was a good one: the next dial begins without a wait.
const HELD_MIN: Duration = Duration::from_secs(10);

/// The resolver has so long.
const RESOLVE_MAX: Duration = Duration::from_secs(5);

/// Dials one server for as long as the agent lives.
pub struct Dialer {
    server: ServerAddress,
    server_name: String,
    agent: AgentId,
    boot: BootNonce,
    keys: EndpointKeys,
    tls: DialTls,
    streams: Streams,
    endpoints: watch::Receiver<Vec<String>>,
    readiness: Readiness,
    links: Links,
    scope: Scope,
    sequence: u64,
    /// How the last tunnel ended; `None` before the first.
    ended: Option<&'static str>,
    backoff: Backoff,
    refused: Backoff,
}

/// Why a dial came to no tunnel.
#[derive(Debug, thiserror::Error)]
enum Vain {
    #[error("{host} cannot be resolved: check the name and this host's DNS")]
    Resolve {
        host: String,
        #[source]
        source: io::Error,
    },
    #[error("{0} has no address")]
    NoAddress(String),
    #[error("no UDP socket for the tunnel")]
    Socket(#[from] transport::EndpointError),
    #[error(transparent)]
    Dial(#[from] DialError),
}

/// What a dialer is made of.
pub struct Equipment {
    /// Who dials.
    pub agent: AgentId,
    /// Which process of it.
    pub boot: BootNonce,
    /// Keys that outlive the process.
    pub keys: EndpointKeys,
    /// The agent's certificate, and whom it trusts.
    pub tls: DialTls,
    /// What serves the streams.
    pub streams: Streams,
    /// Where the cluster's control plane answers.
    pub endpoints: watch::Receiver<Vec<String>>,
    /// Who has to know whether the agent is of use.
    pub readiness: Readiness,
    /// Where tunnels are counted.
    pub links: Links,
}

impl Dialer {
    /// A dialer of `server`, whose certificate must bear `server_name`.
    #[must_use]
    pub fn new(server: ServerAddress, server_name: String, equipment: Equipment, scope: Scope) -> Self {
        let Equipment { agent, boot, keys, tls, streams, endpoints, readiness, links } = equipment;
        Self {
            server,
            server_name,
            agent,
            boot,
            keys,
            tls,
            streams,
            endpoints,
            readiness,
            links,
            scope,
            sequence: 0,
            ended: None,
            backoff: Backoff::new(BACKOFF_BASE, BACKOFF_CAP),
            refused: Backoff::new(BACKOFF_BASE, REFUSED_CAP),
        }
    }

    /// Dials, and dials again, until the drain begins; a tunnel that is open then is drained first.
    pub async fn run(mut self) {
        let mut not_ready = Some(self.readiness.lost("tunnel"));
        // The server is there from the beginning, without a tunnel.
        drop(metrics::Connected::to(&self.server.to_string()));
        let scope = self.scope.clone();
        while !scope.is_draining() {
            // Both arms are cancel-safe: a dial that is dropped has begun nothing.
            let dialed = tokio::select! {
                dialed = self.dial() => dialed,
                () = scope.draining() => return,
            };
            let wait = match dialed {
                Ok((endpoint, dialed)) => {
                    drop(not_ready.take());
                    let held = self.serve(endpoint, dialed).await;
                    not_ready = Some(self.readiness.lost("tunnel"));
                    if held >= HELD_MIN {
                        self.backoff.reset();
                    }
                    self.backoff.next(random())
                }
                Err(vain) => self.wait_after(&vain),
            };
            // Both arms are cancel-safe: neither holds anything.
            tokio::select! {
                () = sleep(wait) => {}
                () = scope.draining() => {}
            }
        }
    }

    /// Resolves, and dials each address in turn until one answers.
    async fn dial(&mut self) -> Result<(Endpoint, Dialed), Vain> {
        let mut last = Vain::NoAddress(self.server.to_string());
        for address in resolve(&self.server).await? {
            // A socket of its own for each tunnel, so that a change of one concerns no other.
            let local = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let local: SocketAddr = local.parse().map_err(|_| Vain::NoAddress(local.to_owned()))?;
            let endpoint = Endpoint::dialing(local, &self.keys, Arc::new(Attendants(self.scope.clone())))?;
            self.sequence += 1;
            match endpoint.dial(address, &self.server_name, &self.tls, self.hello()).await {
                Ok(dialed) => return Ok((endpoint, dialed)),
                Err(error) => last = error.into(),
            }
        }
        Err(last)
    }

    fn hello(&self) -> Hello {
        Hello {
            versions: VERSIONS.to_vec(),
            cluster: self.agent.cluster().to_string(),
            boot_nonce: self.boot.0.to_vec(),
            sequence: self.sequence,
            software: concat!("tunnel-agent/", env!("CARGO_PKG_VERSION")).to_owned(),
            endpoints: Some(Endpoints { addresses: self.endpoints.borrow().clone() }),
        }
    }

    /// Serves a tunnel until it ends, and says how long it held.
    async fn serve(&mut self, endpoint: Endpoint, dialed: Dialed) -> Duration {
        let Dialed { tunnel, driver, welcome } = dialed;
        if let Some(ended) = self.ended.take() {
            metrics::reconnected(ended);
        }
        let name = self.server.to_string();
        let (counted, connected) = (tunnel.clone(), metrics::Connected::to(&name));
        let link = self.links.open(&name, move || metrics::figures(&counted));
        metrics::buffers(endpoint.buffers());
        let began = Instant::now();
        info!(server = %self.server, server_id = welcome.server_id, version = welcome.version, "tunnel opened");
        self.scope.attend(serve_streams(self.streams.clone(), tunnel.clone(), self.scope.clone()));
        let ended = self.drive(driver, &tunnel).await;
        drop((connected, link));
        self.ended = Some(metrics::tunnel_ended(&ended));
        info!(server = %self.server, lasted = ?began.elapsed(), reason = %chain(&ended), "tunnel closed");
        // Waits until the other side was told.
        endpoint.close(proto::CloseCode::Drained).await;
        began.elapsed()
    }

    /// Speaks for the tunnel, advertises changed endpoints, and drains it when the agent stops.
    async fn drive(&mut self, driver: Driver, tunnel: &Tunnel) -> TunnelEnded {
        let server = &self.server;
        let driving = driver.run(|event| match event {
            TunnelEvent::Health(health) => info!(%server, ?health, "tunnel's health changed"),
            TunnelEvent::PeerDrains => info!(%server, "the server is stopping"),
            // Only agents have endpoints.
            TunnelEvent::Endpoints(_) => {}
        });
        tokio::pin!(driving);
        let mut drains = false;
        loop {
            // All arms are cancel-safe: the driver is polled by reference, a change that came is kept, and a drain
            // that began stays begun.
            tokio::select! {
                ended = &mut driving => return ended,
                Ok(()) = self.endpoints.changed() => {
                    let endpoints = self.endpoints.borrow_and_update().clone();
                    tunnel.advertise(endpoints);
                }
                () = self.scope.draining(), if !drains => {
                    drains = true;
                    tunnel.begin_drain();
                }
            }
        }
    }

    fn wait_after(&mut self, vain: &Vain) -> Duration {
        match vain {
            Vain::Resolve { .. } => metrics::dial_in_vain("resolve"),
            Vain::NoAddress(_) => metrics::dial_in_vain("no_address"),
            Vain::Socket(_) => metrics::dial_in_vain("socket"),
            Vain::Dial(error) => metrics::dial_failed(error),
        }
        let wait = if is_final(vain) {
            self.refused.next(random())
        } else {
            self.refused.reset();
            self.backoff.next(random())
        };
        warn!(server = %self.server, error = %chain(vain), next = ?wait, "no tunnel");
        wait
    }
}

async fn serve_streams(streams: Streams, tunnel: Tunnel, scope: Scope) {
    // How the tunnel ended is said by its driver.
    let _ = streams.serve(tunnel, scope).await;
}

/// Whether the same dial would fail the same way until somebody changes something.
fn is_final(vain: &Vain) -> bool {
    match vain {
        Vain::Dial(
            DialError::Name(_)
            | DialError::Rejected(_)
            | DialError::Untrusted(_)
            | DialError::TurnedAway(_)
            | DialError::NotAWelcome,
        ) => true,
        Vain::Dial(DialError::Refused(refused)) => refused.reason() != proto::wire::refused::Reason::Draining,
        Vain::Resolve { .. }
        | Vain::NoAddress(_)
        | Vain::Socket(_)
        | Vain::Dial(
            DialError::NoAnswer
            | DialError::Handshake(_)
            | DialError::NotNow
            | DialError::TooSlow
            | DialError::Broke(_)
            | DialError::Local(_),
        ) => false,
    }
}

async fn resolve(server: &ServerAddress) -> Result<Vec<SocketAddr>, Vain> {
    let in_vain = |source| Vain::Resolve { host: server.host.clone(), source };
    match timeout(RESOLVE_MAX, tokio::net::lookup_host((server.host.as_str(), server.port))).await {
        Ok(Ok(addresses)) => Ok(addresses.collect()),
        Ok(Err(error)) => Err(in_vain(error)),
        Err(_) => Err(in_vain(io::ErrorKind::TimedOut.into())),
    }
}

/// For jitter, where a generator that fails costs nothing but the jitter.
fn random() -> u64 {
    let mut bytes = [0; 8];
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// Drivers of a carrier serve the work and are none: a drain does not wait for them.
struct Attendants(Scope);

impl transport::Spawn for Attendants {
    fn spawn(&self, driver: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.0.attend(driver);
    }
}
