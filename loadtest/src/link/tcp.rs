//! A bulk transfer over the kernel's TCP, with a given congestion controller.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_tcp_congestion;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::LinkTurn;
use super::path::{Path, SENDER};

const CHUNK_BYTES: usize = 64 * 1024;

/// Runs one turn over a new connection.
pub async fn turn(
    path: &Path,
    controller: &'static str,
    warm_up: Duration,
    lasts: Duration,
) -> Result<LinkTurn, Box<dyn Error>> {
    let (listening, listens) = oneshot::channel();
    let serving = path.at_sender(move || serve(controller, listening))?;
    let Ok(address) = listens.await else {
        return Err(serving.await?.err().unwrap_or_else(|| io::Error::other("the sender ended")).into());
    };
    let goodput_mbit = path.at_receiver(move || measure(address, warm_up, lasts))?.await??;
    serving.await??;
    Ok(LinkTurn { goodput_mbit, p50_ms: None, p99_ms: None, answered: 0 })
}

/// Sends until the receiver closes the connection.
async fn serve(controller: &str, listening: oneshot::Sender<SocketAddr>) -> io::Result<()> {
    let listener = TcpListener::bind((SENDER, 0)).await?;
    set_tcp_congestion(&listener, controller)?;
    let _ = listening.send(listener.local_addr()?); // The receiver is gone if the run was given up.
    let (mut stream, _) = listener.accept().await?;
    let bytes = vec![0; CHUNK_BYTES];
    while stream.write_all(&bytes).await.is_ok() {}
    Ok(())
}

async fn measure(address: SocketAddr, warm_up: Duration, lasts: Duration) -> io::Result<f64> {
    let mut stream = TcpStream::connect(address).await?;
    let mut bytes = vec![0; CHUNK_BYTES];
    receive(&mut stream, &mut bytes, warm_up).await?;
    let began = Instant::now();
    let received = receive(&mut stream, &mut bytes, lasts).await?;
    Ok(received as f64 * 8.0 / 1e6 / began.elapsed().as_secs_f64())
}

/// Counts the bytes that arrive within this time.
async fn receive(stream: &mut TcpStream, bytes: &mut [u8], lasts: Duration) -> io::Result<u64> {
    let began = Instant::now();
    let mut received = 0;
    while let Some(left) = lasts.checked_sub(began.elapsed()) {
        match timeout(left, stream.read(bytes)).await {
            Ok(read) => received += read? as u64,
            Err(_) => break,
        }
    }
    Ok(received)
}
