//! The link of one agent: a UDP relay with a delay, a rate and a bounded queue, that can go dark.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

const DELAY: Duration = Duration::from_millis(20);
const QUEUE_MAX: Duration = Duration::from_millis(60);
/// The rate of the link: 2 Mbit/s.
const BYTES_PER_SECOND: f64 = 250_000.0;

#[derive(Clone)]
pub(crate) struct Link(Arc<State>);

struct State {
    /// The address that the agent dials.
    address: SocketAddr,
    dark_to_server: AtomicBool,
    dark_to_agent: AtomicBool,
    /// Longer packets to the server, and to the agent, are dropped.
    longest_to_server: AtomicUsize,
    longest_to_agent: AtomicUsize,
    swallowed_to_server: AtomicU64,
    swallowed_to_agent: AtomicU64,
    agent: Mutex<Option<SocketAddr>>,
    /// The agent's address when its NAT mapping became stale.
    stale: Mutex<Option<SocketAddr>>,
    outer: watch::Sender<Arc<UdpSocket>>,
}

/// Packets under way, for one direction.
#[derive(Default)]
struct Pipe {
    queue: VecDeque<(Instant, Vec<u8>)>,
    free_at: Option<Instant>,
}

impl Link {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let inner = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let link = Self(Arc::new(State {
            address: inner.local_addr().unwrap(),
            dark_to_server: AtomicBool::new(false),
            dark_to_agent: AtomicBool::new(false),
            longest_to_server: AtomicUsize::new(usize::MAX),
            longest_to_agent: AtomicUsize::new(usize::MAX),
            swallowed_to_server: AtomicU64::new(0),
            swallowed_to_agent: AtomicU64::new(0),
            agent: Mutex::new(None),
            stale: Mutex::new(None),
            outer: watch::Sender::new(outer(server).await),
        }));
        tokio::spawn(link.clone().carry_to_server(Arc::clone(&inner)));
        tokio::spawn(link.clone().carry_to_agent(inner));
        link
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address
    }

    pub(crate) fn darken(&self, to_server: bool, to_agent: bool) {
        self.0.dark_to_server.store(to_server, Ordering::Relaxed);
        self.0.dark_to_agent.store(to_agent, Ordering::Relaxed);
    }

    /// Drops packets with more bytes than these from now on, to the server and to the agent.
    pub(crate) fn narrow(&self, to_server: usize, to_agent: usize) {
        self.0.longest_to_server.store(to_server, Ordering::Relaxed);
        self.0.longest_to_agent.store(to_agent, Ordering::Relaxed);
    }

    /// Packets to the server, and to the agent, that came while their direction was dark.
    pub(crate) fn swallowed(&self) -> (u64, u64) {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        (count(&self.0.swallowed_to_server), count(&self.0.swallowed_to_agent))
    }

    /// The server sees another source port from now on.
    pub(crate) async fn remap(&self, server: SocketAddr) {
        self.0.outer.send_replace(outer(server).await);
    }

    /// The address at which the agent was seen last.
    pub(crate) fn agent(&self) -> Option<SocketAddr> {
        *self.0.agent.lock().unwrap()
    }

    /// Carries nothing from where the agent is now, nor to there: a mapping that leads nowhere, for as long
    /// as it is in use.
    pub(crate) fn forget(&self) {
        *self.0.stale.lock().unwrap() = self.agent();
    }

    fn is_stale(&self, agent: SocketAddr) -> bool {
        *self.0.stale.lock().unwrap() == Some(agent)
    }

    async fn carry_to_server(self, inner: Arc<UdpSocket>) {
        let (mut pipe, mut buffer) = (Pipe::default(), vec![0; 2048]);
        loop {
            tokio::select! {
                Ok((length, from)) = inner.recv_from(&mut buffer) => {
                    *self.0.agent.lock().unwrap() = Some(from);
                    if self.0.dark_to_server.load(Ordering::Relaxed) || self.is_stale(from) {
                        self.0.swallowed_to_server.fetch_add(1, Ordering::Relaxed);
                    } else if length <= self.0.longest_to_server.load(Ordering::Relaxed) {
                        pipe.take(&buffer[..length]);
                    }
                }
                packet = pipe.next() => {
                    let outer = Arc::clone(&self.0.outer.borrow());
                    let _ = outer.send(&packet).await;
                }
            }
        }
    }

    async fn carry_to_agent(self, inner: Arc<UdpSocket>) {
        let (mut pipe, mut buffer) = (Pipe::default(), vec![0; 2048]);
        let mut outers = self.0.outer.subscribe();
        loop {
            let outer = Arc::clone(&outers.borrow_and_update());
            tokio::select! {
                Ok(length) = outer.recv(&mut buffer) => {
                    if self.0.dark_to_agent.load(Ordering::Relaxed) {
                        self.0.swallowed_to_agent.fetch_add(1, Ordering::Relaxed);
                    } else if length <= self.0.longest_to_agent.load(Ordering::Relaxed) {
                        pipe.take(&buffer[..length]);
                    }
                }
                packet = pipe.next() => {
                    if let Some(agent) = self.agent().filter(|agent| !self.is_stale(*agent)) {
                        let _ = inner.send_to(&packet, agent).await;
                    }
                }
                Ok(()) = outers.changed() => {}
            }
        }
    }
}

async fn outer(server: SocketAddr) -> Arc<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(server).await.unwrap();
    Arc::new(socket)
}

impl Pipe {
    fn take(&mut self, packet: &[u8]) {
        let now = Instant::now();
        let free_at = self.free_at.map_or(now, |at| at.max(now));
        if free_at - now > QUEUE_MAX {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "a packet's length")]
        let leaves_at = free_at + Duration::from_secs_f64(packet.len() as f64 / BYTES_PER_SECOND);
        self.free_at = Some(leaves_at);
        self.queue.push_back((leaves_at + DELAY, packet.to_vec()));
    }

    /// The next packet when it is due. Cancel-safe.
    async fn next(&mut self) -> Vec<u8> {
        match self.queue.front() {
            Some((at, _)) => sleep_until(*at).await,
            None => std::future::pending().await,
        }
        self.queue.pop_front().map(|(_, packet)| packet).unwrap_or_default()
    }
}
