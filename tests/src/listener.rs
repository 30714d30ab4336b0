//! Targets that serve all connections in one way, and keep what they have received.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use crate::caller::SOON;

/// The marker of a connection that broke.
pub const BROKE: &[u8] = b"broke";

/// The number of bytes that [`speak`] sends.
pub const GREETING_BYTES: usize = 200_000;

/// Counts connections, and serves them.
#[derive(Debug)]
pub struct Listener {
    /// The address on which it listens.
    pub address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    receiver: Mutex<UnboundedReceiver<Vec<u8>>>,
}

impl Listener {
    /// Starts one that serves each connection so, and keeps what that leaves. It ends with the test's
    /// runtime.
    pub async fn start<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Vec<u8>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let (sender, receiver) = unbounded_channel();
        let counter = Arc::clone(&accepted);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::SeqCst);
                let (served, sender) = (serve(stream), sender.clone());
                tokio::spawn(async move { sender.send(served.await) });
            }
        });
        Self { address, accepted, receiver: Mutex::new(receiver) }
    }

    /// Number of connections that it accepted.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Waits for the next connection to end, and returns what its server function left.
    ///
    /// # Panics
    /// If none ends in time.
    pub async fn received(&self) -> Vec<u8> {
        timeout(SOON, self.receiver.lock().await.recv()).await.unwrap().unwrap()
    }
}

/// Echoes all bytes, and ends when the input does.
pub async fn echo(mut stream: TcpStream) -> Vec<u8> {
    let (mut read, mut write) = stream.split();
    let _ = tokio::io::copy(&mut read, &mut write).await;
    let _ = write.shutdown().await;
    Vec::new()
}

/// Reads all bytes, and then writes their number.
pub async fn count(mut stream: TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    if stream.read_to_end(&mut all).await.is_ok() {
        let _ = stream.write_all(all.len().to_string().as_bytes()).await;
        let _ = stream.shutdown().await;
    }
    Vec::new()
}

/// Uploads repeatedly from no bytes to nearly `bytes_max`, and closes each at once: all of each arrives, and
/// the answer after it comes back. `connect` makes connections to a target that [`count`]s.
///
/// # Panics
/// If one does not arrive.
pub async fn uploads_arrive_complete<S: AsyncRead + AsyncWrite + Unpin>(
    rounds: usize,
    bytes_max: usize,
    mut connect: impl AsyncFnMut() -> S,
) {
    for round in 0..rounds {
        let bytes = (round * round * 37) % bytes_max;
        let mut stream = timeout(SOON, connect()).await.expect("a connection");
        let uploaded = async {
            stream.write_all(&vec![7; bytes]).await?;
            stream.shutdown().await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            io::Result::Ok(answer)
        };
        let answer = timeout(SOON, uploaded).await.unwrap_or_else(|_| panic!("round {round} hangs"));
        let answer = answer.unwrap_or_else(|error| panic!("round {round}, {bytes} bytes: {error}"));
        assert_eq!(answer, bytes.to_string(), "round {round}");
    }
}

/// Sends [`GREETING_BYTES`], ends its direction, and reads the rest.
pub async fn speak(mut stream: TcpStream) -> Vec<u8> {
    stream.write_all(&vec![b'g'; GREETING_BYTES]).await.unwrap();
    stream.shutdown().await.unwrap();
    read_all(stream).await
}

/// Reads all bytes, or returns [`BROKE`].
pub async fn read_all(mut stream: TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.map_or_else(|_| BROKE.to_vec(), |_| all)
}

/// Sends a part of its bytes and resets the connection.
pub async fn break_off(mut stream: TcpStream) -> Vec<u8> {
    let _ = stream.read(&mut [0]).await;
    let _ = stream.write_all(b"half").await;
    stream.set_zero_linger().unwrap();
    Vec::new()
}
