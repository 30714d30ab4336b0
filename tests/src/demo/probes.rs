//! The server's probes, requested over plain HTTP as by a browser.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::DemoError;
use crate::process::Process;

/// The limit for the server to become ready.
const READY_MAX: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_millis(20);
/// The limit for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Waits until the server's probes report that it is ready.
pub(super) async fn ready(server: &mut Process, address: SocketAddr) -> Result<(), DemoError> {
    let deadline = Instant::now() + READY_MAX;
    while !get(address, "/readyz").await.is_ok_and(|answer| status(&answer) == Some("200")) {
        if server.ended().is_some() || Instant::now() >= deadline {
            return Err(DemoError::NotReady);
        }
        sleep(ASK_EVERY).await;
    }
    Ok(())
}

/// The complete answer, head and body.
pub(super) async fn get(address: SocketAddr, path: &str) -> Result<String, DemoError> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        // HTTP/1.0: the answer ends with the connection, and is not cut into chunks.
        let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    match timeout(ANSWER_MAX, exchange).await {
        Ok(answer) => answer.map_err(DemoError::Probes),
        Err(late) => Err(DemoError::Probes(late.into())),
    }
}

fn status(answer: &str) -> Option<&str> {
    answer.split(' ').nth(1)
}
