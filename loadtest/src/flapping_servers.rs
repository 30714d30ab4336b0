//! Servers that accept an agent and soon close its tunnel, so that one agent process reconnects again and
//! again.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ::tests::rig::Rig;
use ::tests::rogue_server::{host, material, spawner};
use proto::CloseCode;
use proto::greeting::ServerInfo;
use proto::spiffe::AgentId;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::sleep;
use transport::{Endpoint, EndpointError, EndpointKeys, Incoming, ServerNumber, Tunnel};

use linksim::rng::SeededRng;

/// Longest life of a tunnel before it is closed, in milliseconds.
const TUNNEL_LIFE_MAX_MS: u64 = 200;

/// Several flapping servers, each at a port of its own.
#[derive(Debug)]
pub struct FlappingServers {
    addresses: Vec<SocketAddr>,
    tasks: Vec<AbortHandle>,
    state: Arc<FlapState>,
}

/// One server. It takes every client for the same agent.
struct FlappingServer {
    host: ServerInfo,
    agent: AgentId,
    state: Arc<FlapState>,
}

/// The present behaviour of all servers.
#[derive(Debug, Default)]
struct FlapState {
    /// Tells whether tunnels are closed; otherwise they stay open.
    flaps: AtomicBool,
    /// Notified whenever `flaps` has changed.
    changed: Notify,
    closed: AtomicU64,
}

impl FlappingServers {
    /// Starts the servers with the rig's certificates, for the agent of one cluster. Tunnels stay open until
    /// [`Self::flap`].
    ///
    /// # Errors
    /// A port cannot be bound.
    ///
    /// # Panics
    /// The rig has no certificates.
    pub fn start(rig: &Rig, cluster: &str, count: u32, seed: u64) -> Result<Self, EndpointError> {
        let state = Arc::new(FlapState::default());
        let (mut addresses, mut tasks) = (Vec::new(), Vec::new());
        for number in 0..count {
            let keys = EndpointKeys::generate().expect("the system has chance");
            let (free, server) = (SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ServerNumber(number as u16));
            let endpoint = Endpoint::serve(free, material(rig), &keys, server, spawner())?;
            addresses.push(endpoint.address().expect("a bound socket has an address"));
            let agent = AgentId::parse(&format!("spiffe://tombolo/cluster/{cluster}/agent/any"), "tombolo");
            let agent = agent.expect("a cluster's name");
            let rng = SeededRng::new(seed.wrapping_add(u64::from(number)));
            let host = host(&format!("flapper-{number}"), &keys);
            let server = Arc::new(FlappingServer { host, agent, state: Arc::clone(&state) });
            tasks.push(tokio::spawn(accept_all(endpoint, server, rng)).abort_handle());
        }
        Ok(Self { addresses, tasks, state })
    }

    /// The addresses of the servers.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Switches whether tunnels are closed from now on.
    pub fn flap(&self, flaps: bool) {
        self.state.flaps.store(flaps, Ordering::Relaxed);
        self.state.changed.notify_waiters();
    }

    /// The number of tunnels that were closed.
    pub fn closed(&self) -> u64 {
        self.state.closed.load(Ordering::Relaxed)
    }
}

impl Drop for FlappingServers {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

async fn accept_all(endpoint: Endpoint, server: Arc<FlappingServer>, mut rng: SeededRng) {
    while let Some(incoming) = endpoint.accept().await {
        let life = Duration::from_millis(rng.below(TUNNEL_LIFE_MAX_MS));
        let code = [CloseCode::Stopping, CloseCode::Lost, CloseCode::Drained][rng.below(3) as usize];
        tokio::spawn(serve(incoming, Arc::clone(&server), life, code));
    }
}

async fn serve(incoming: Incoming, server: Arc<FlappingServer>, life: Duration, code: CloseCode) {
    // An agent whose handshake fails dials again.
    let Ok(accepted) = incoming.handshake().await else { return };
    let greeted = accepted.greet(&server.agent, &server.host, |_| Ok(())).await;
    let Ok((tunnel, driver, _)) = greeted else { return };
    tokio::select! {
        _ = driver.run(|_| {}) => {}
        () = flap(&tunnel, &server.state, life, code) => {}
    }
}

/// Closes a tunnel when its life is over and flapping is on.
async fn flap(tunnel: &Tunnel, state: &FlapState, life: Duration, code: CloseCode) {
    sleep(life).await;
    loop {
        let changed = state.changed.notified();
        if state.flaps.load(Ordering::Relaxed) {
            break;
        }
        changed.await;
    }
    state.closed.fetch_add(1, Ordering::Relaxed);
    tunnel.close(code);
}
