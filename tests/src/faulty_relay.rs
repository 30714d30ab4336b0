//! A relay between a client and a server that loses the server's answers on request.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Most bytes that are passed at once.
const PIECE_BYTES: usize = 64 * 1024;

/// A TCP relay to one address that can lose what the other side answers. A datagram is lost by `evil_quic::Relay`.
#[derive(Debug)]
#[must_use = "the relay ends when this is dropped"]
pub struct TcpRelay {
    address: SocketAddr,
    loses_answers: Arc<AtomicBool>,
    lost_bytes: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
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
