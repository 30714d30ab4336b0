//! Servers that greet an agent and soon close its tunnel, so that one process of it reconnects again and again.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ::tests::rig::Rig;
use ::tests::rogue::{host, material, spawner};
use proto::CloseCode;
use proto::greeting::Host;
use proto::spiffe::AgentId;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::sleep;
use transport::{Arriving, Endpoint, EndpointError, EndpointKeys, ServerNumber, Tunnel};

use linksim::dice::Dice;

/// The longest that a tunnel is held.
const HELD_MAX_MS: u64 = 200;

/// So many servers, each at a port of its own.
#[derive(Debug)]
pub struct FlappingServers {
    addresses: Vec<SocketAddr>,
    tasks: Vec<AbortHandle>,
    state: Arc<FlapState>,
}

/// One of them, and whom it takes every caller for.
struct FlappingServer {
    host: Host,
    agent: AgentId,
    state: Arc<FlapState>,
}

/// What they do now.
#[derive(Debug, Default)]
struct FlapState {
    /// Tells whether tunnels are closed; else they are held.
    flaps: AtomicBool,
    /// Told when that changes.
    changed: Notify,
    closed: AtomicU64,
}

impl FlappingServers {
    /// Starts them, with the rig's certificates, for the agent of one cluster. They hold what comes until they are told.
    ///
    /// # Errors
    /// Where a port cannot be had.
    ///
    /// # Panics
    /// Without the rig's certificates.
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
            let rng = Dice::new(seed.wrapping_add(u64::from(number)));
            let host = host(&format!("flapper-{number}"), &keys);
            let server = Arc::new(FlappingServer { host, agent, state: Arc::clone(&state) });
            tasks.push(tokio::spawn(open(endpoint, server, rng)).abort_handle());
        }
        Ok(Self { addresses, tasks, state })
    }

    /// Where they are.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Tells whether tunnels are closed from now on.
    pub fn flap(&self, flaps: bool) {
        self.state.flaps.store(flaps, Ordering::Relaxed);
        self.state.changed.notify_waiters();
    }

    /// How many tunnels they have closed.
    pub fn closed(&self) -> u64 {
        self.state.closed.load(Ordering::Relaxed)
    }
}

impl Drop for FlappingServers {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

async fn open(endpoint: Endpoint, server: Arc<FlappingServer>, mut rng: Dice) {
    while let Some(arriving) = endpoint.accept().await {
        let hold = Duration::from_millis(rng.below(HELD_MAX_MS));
        let code = [CloseCode::Stopping, CloseCode::Lost, CloseCode::Drained][rng.below(3) as usize];
        tokio::spawn(serve(arriving, Arc::clone(&server), hold, code));
    }
}

async fn serve(arriving: Arriving, server: Arc<FlappingServer>, hold: Duration, code: CloseCode) {
    // An agent that does not come as far dials again.
    let Ok(arrived) = arriving.shake_hands().await else { return };
    let greeted = arrived.greet(&server.agent, &server.host, |_| Ok(())).await;
    let Ok((tunnel, driver, _)) = greeted else { return };
    tokio::select! {
        _ = driver.run(|_| {}) => {}
        () = flap(&tunnel, &server.state, hold, code) => {}
    }
}

/// Closes a tunnel when its time has come and tunnels are to be closed.
async fn flap(tunnel: &Tunnel, state: &FlapState, hold: Duration, code: CloseCode) {
    sleep(hold).await;
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
