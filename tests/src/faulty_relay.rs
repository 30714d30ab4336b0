//! Relays between two programs that misbehave on request: datagrams that are lost, and answers that never arrive.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;

/// Largest datagram, and most bytes that are passed at once.
const PIECE_BYTES: usize = 64 * 1024;

/// A UDP relay to one address. Every datagram is lost while it is cut.
#[derive(Debug)]
#[must_use = "the relay ends when this is dropped"]
pub struct UdpRelay {
    address: SocketAddr,
    is_cut: Arc<AtomicBool>,
    _tasks: JoinSet<()>,
}

/// A TCP relay to one address that can lose what the other side answers.
#[derive(Debug)]
#[must_use = "the relay ends when this is dropped"]
pub struct TcpRelay {
    address: SocketAddr,
    loses_answers: Arc<AtomicBool>,
    lost_bytes: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl UdpRelay {
    /// Starts a relay to `target` on loopback.
    ///
    /// # Errors
    /// No socket can be bound.
    pub async fn start(target: SocketAddr) -> io::Result<Self> {
        let socket = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?);
        let (address, is_cut) = (socket.local_addr()?, Arc::new(AtomicBool::new(false)));
        let mut tasks = JoinSet::new();
        tasks.spawn(relay_datagrams(socket, target, Arc::clone(&is_cut)));
        Ok(Self { address, is_cut, _tasks: tasks })
    }

    /// The address at which the relay takes datagrams.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Loses all datagrams from now on, or none.
    pub fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }
}

impl TcpRelay {
    /// Starts a relay to `target` on loopback.
    ///
    /// # Errors
    /// No socket can be bound.
    pub async fn start(target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (loses_answers, lost_bytes) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(relay_connections(listener, target, Arc::clone(&loses_answers), Arc::clone(&lost_bytes)));
        Ok(Self { address, loses_answers, lost_bytes, _tasks: tasks })
    }

    /// The address at which the relay takes connections.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Loses all answers from now on, or none. A connection that has lost one ends at the next answer that would pass.
    pub fn lose_answers(&self, loses: bool) {
        self.loses_answers.store(loses, Ordering::Relaxed);
    }

    /// The bytes of answers that were lost so far.
    pub fn lost_bytes(&self) -> u64 {
        self.lost_bytes.load(Ordering::Relaxed)
    }
}

async fn relay_datagrams(socket: Arc<UdpSocket>, target: SocketAddr, is_cut: Arc<AtomicBool>) {
    let mut clients: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
    let (mut answers, mut datagram) = (JoinSet::new(), vec![0; PIECE_BYTES]);
    while let Ok((length, client)) = socket.recv_from(&mut datagram).await {
        if is_cut.load(Ordering::Relaxed) {
            continue;
        }
        let out = match clients.get(&client) {
            Some(out) => Arc::clone(out),
            None => {
                let Ok(out) = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await else { return };
                if out.connect(target).await.is_err() {
                    return;
                }
                let out = Arc::new(out);
                clients.insert(client, Arc::clone(&out));
                answers.spawn(return_datagrams(
                    Arc::clone(&out),
                    Arc::clone(&socket),
                    client,
                    Arc::clone(&is_cut),
                ));
                out
            }
        };
        // The target may be gone for now, which its client notices by itself.
        let _ = out.send(&datagram[..length]).await;
    }
}

async fn return_datagrams(
    out: Arc<UdpSocket>,
    socket: Arc<UdpSocket>,
    client: SocketAddr,
    is_cut: Arc<AtomicBool>,
) {
    let mut datagram = vec![0; PIECE_BYTES];
    loop {
        // An error is the target's refusal of an earlier datagram.
        let Ok(length) = out.recv(&mut datagram).await else { continue };
        if !is_cut.load(Ordering::Relaxed) {
            let _ = socket.send_to(&datagram[..length], client).await;
        }
    }
}

async fn relay_connections(
    listener: TcpListener,
    target: SocketAddr,
    loses_answers: Arc<AtomicBool>,
    lost_bytes: Arc<AtomicU64>,
) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let Ok(server) = TcpStream::connect(target).await else { continue };
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        let (loses, lost) = (Arc::clone(&loses_answers), Arc::clone(&lost_bytes));
        connections.spawn(async move {
            // Both arms are cancel-safe: the connection is over when either ends.
            tokio::select! {
                () = pass(from_client, to_server) => {}
                () = pass_answers(from_server, to_client, &loses, &lost) => {}
            }
        });
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let _ = tokio::io::copy(&mut from, &mut to).await;
}

/// Passes answers. TLS cannot go on behind bytes that are missing, so the connection ends then.
async fn pass_answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, loses: &AtomicBool, lost: &AtomicU64) {
    let (mut piece, mut has_lost) = (vec![0; PIECE_BYTES], false);
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        if loses.load(Ordering::Relaxed) {
            has_lost = true;
            lost.fetch_add(length as u64, Ordering::Relaxed);
        } else if has_lost || to.write_all(&piece[..length]).await.is_err() {
            return;
        }
    }
}
