//! An attacker on the path: it sees, loses, alters, repeats and forges datagrams, and has no keys.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use crate::rng::Rng;

/// Datagrams of one direction that may be repeated later.
const KEPT_MAX: usize = 512;

/// The largest UDP datagram, in bytes.
const DATAGRAM_BYTES_MAX: usize = 65_535;

/// A relay between a server and an agent, or another server, that dials it. It tampers with nothing until asked.
#[must_use = "the path ends when this is dropped"]
pub struct Relay {
    address: SocketAddr,
    inner: Arc<RelayState>,
    _tasks: JoinSet<()>,
}

struct RelayState {
    /// Each new address of an agent leads to the next one.
    servers: Vec<SocketAddr>,
    tampers: AtomicBool,
    is_cut: AtomicBool,
    /// Counts the tampered datagrams by kind, from the agent to the server.
    done: [AtomicU64; 3],
    /// The datagrams of agents, the oldest first.
    seen: Mutex<Vec<Vec<u8>>>,
}

/// The kinds of tampering with datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tampering {
    /// One bit of the datagram was flipped.
    Corrupted,
    /// An old one was sent once more.
    Replayed,
    /// One of nobody's was sent.
    Forged,
}

impl Relay {
    /// A relay in front of `server`.
    ///
    /// # Errors
    /// No socket.
    pub async fn before(server: SocketAddr) -> io::Result<Self> {
        Self::before_all(vec![server]).await
    }

    /// A relay in front of several servers, as a balancer that chooses by addresses and ports: each new address of an agent leads
    /// to the next server.
    ///
    /// # Errors
    /// No socket.
    pub async fn before_all(servers: Vec<SocketAddr>) -> io::Result<Self> {
        let socket = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?);
        let (address, mut tasks) = (socket.local_addr()?, JoinSet::new());
        let inner = RelayState {
            servers,
            tampers: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            done: Default::default(),
            seen: Mutex::new(Vec::new()),
        };
        let inner = Arc::new(inner);
        tasks.spawn(Arc::clone(&inner).to_server(socket));
        Ok(Self { address, inner, _tasks: tasks })
    }

    /// The address that agents dial in place of the server's.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on it does what it can.
    pub fn tamper(&self) {
        self.inner.tampers.store(true, Ordering::Relaxed);
    }

    /// Loses all datagrams from now on, or none.
    pub fn cut(&self, is_cut: bool) {
        self.inner.is_cut.store(is_cut, Ordering::Relaxed);
    }

    /// Number of datagrams that were tampered with in this way.
    pub fn done(&self, tampering: Tampering) -> u64 {
        self.inner.done[tampering as usize].load(Ordering::Relaxed)
    }

    /// The datagrams that agents have sent so far.
    pub fn seen(&self) -> Vec<Vec<u8>> {
        self.inner.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl RelayState {
    /// Passes on what agents send, each from a socket of its own, and what comes back to it.
    async fn to_server(self: Arc<Self>, socket: Arc<UdpSocket>) {
        let mut sockets: HashMap<SocketAddr, (Arc<UdpSocket>, SocketAddr)> = HashMap::new();
        let (mut back, mut path) = (JoinSet::new(), Path::new(1));
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        while let Ok((bytes, from)) = socket.recv_from(&mut buffer).await {
            let (to_server, server) = match sockets.get(&from) {
                Some((to_server, server)) => (Arc::clone(to_server), *server),
                None => {
                    let Ok(to_server) = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.map(Arc::new) else {
                        return;
                    };
                    let server = self.servers[sockets.len() % self.servers.len()];
                    sockets.insert(from, (Arc::clone(&to_server), server));
                    back.spawn(Arc::clone(&self).to_agent(Arc::clone(&to_server), Arc::clone(&socket), from));
                    (to_server, server)
                }
            };
            self.keep(&buffer[..bytes]);
            for datagram in path.through(&self, &buffer[..bytes]) {
                // What is lost is lost.
                let _ = to_server.send_to(&datagram, server).await;
            }
        }
    }

    async fn to_agent(self: Arc<Self>, to_server: Arc<UdpSocket>, socket: Arc<UdpSocket>, agent: SocketAddr) {
        let (mut buffer, mut path) = (vec![0; DATAGRAM_BYTES_MAX], Path::new(2));
        loop {
            // An error tells of an earlier datagram.
            let Ok((bytes, _)) = to_server.recv_from(&mut buffer).await else { continue };
            for datagram in path.through(&self, &buffer[..bytes]) {
                let _ = socket.send_to(&datagram, agent).await;
            }
        }
    }

    fn keep(&self, datagram: &[u8]) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() < KEPT_MAX {
            seen.push(datagram.to_vec());
        }
    }
}

/// The datagrams of one direction.
struct Path {
    rng: Rng,
    old: Vec<Vec<u8>>,
    /// The last long header: version and names.
    long: Vec<u8>,
}

impl Path {
    fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), old: Vec::new(), long: Vec::new() }
    }

    /// The datagrams that leave the relay when this one enters.
    fn through(&mut self, inner: &RelayState, datagram: &[u8]) -> Vec<Vec<u8>> {
        if inner.is_cut.load(Ordering::Relaxed) {
            return Vec::new();
        }
        if datagram[0] & 0x80 != 0 {
            self.long = datagram[1..datagram.len().min(47)].to_vec();
        }
        let mut out = vec![datagram.to_vec()];
        if !inner.tampers.load(Ordering::Relaxed) {
            return out;
        }
        let did = |tampering: Tampering| inner.done[tampering as usize].fetch_add(1, Ordering::Relaxed);
        if self.rng.below(10) == 0 {
            let bit = self.rng.below(8 * datagram.len() as u64);
            out[0][usize::try_from(bit / 8).expect("a place")] ^= 1 << (bit % 8);
            did(Tampering::Corrupted);
        }
        if self.rng.below(10) == 0 && !self.old.is_empty() {
            let place = self.rng.below(self.old.len() as u64);
            out.push(self.old[usize::try_from(place).expect("a place")].clone());
            did(Tampering::Replayed);
        }
        if self.rng.below(10) == 0 {
            out.push(self.forged(datagram));
            did(Tampering::Forged);
        }
        if self.old.len() < KEPT_MAX {
            self.old.push(datagram.to_vec());
        }
        out
    }

    /// A forged packet: Version Negotiation, Retry, Initial, Handshake, or an imitation of a CONNECTION_CLOSE
    /// or a stateless reset, with the connection's IDs as far as they can be seen.
    fn forged(&mut self, datagram: &[u8]) -> Vec<u8> {
        let noise =
            |rng: &mut Rng, bytes| (0..bytes).map(|_| rng.next_u64().to_le_bytes()[0]).collect::<Vec<u8>>();
        let names = self.long.get(4..).unwrap_or_default().to_vec();
        match self.rng.below(5) {
            0 => [&[0x80, 0, 0, 0, 0], names.as_slice(), &[0, 0, 0, 2]].concat(),
            kind @ 1..=3 => {
                let first = [0xf0, 0xc3, 0xe3][usize::try_from(kind - 1).expect("a place")];
                let mut packet = [&[first, 0, 0, 0, 1], names.as_slice()].concat();
                packet.extend(noise(&mut self.rng, 1200));
                packet
            }
            _ => {
                let head = datagram.len().min(21);
                let mut packet = datagram[..head].to_vec();
                packet.extend(noise(&mut self.rng, 40));
                packet
            }
        }
    }
}
