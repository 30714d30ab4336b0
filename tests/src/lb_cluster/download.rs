//! A large download through node-lb and an API server, as fast as a test permits.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{LB, LbCluster};
use crate::dial::dial;

/// The address of the program that sends, on the worker. API servers reach it as that of a node.
const SENDER: &str = "10.8.0.1";
const PORT: u16 = 8080;

/// The bytes that are sent at once.
const BLOCK_BYTES: usize = 64 * 1024;

/// Longest time for bytes that are permitted to arrive.
const BYTES_MAX: Duration = Duration::from_secs(120);

/// A download that goes on until all bytes are permitted.
#[derive(Debug)]
#[must_use = "nobody compares its bytes"]
pub struct Download {
    bytes: u64,
    permitted: watch::Sender<u64>,
    received: watch::Receiver<u64>,
    digest: JoinHandle<io::Result<Vec<u8>>>,
}

impl Download {
    /// Starts a download of so many bytes on the worker, of which none is permitted yet.
    ///
    /// # Panics
    /// If the sender cannot be reached.
    pub async fn start(cluster: &LbCluster, bytes: u64) -> Self {
        cluster.worker.ip(&format!("addr add {SENDER}/32 dev lo")).await.expect("an address");
        for (number, master) in (1..).zip(&cluster.masters) {
            let route = format!("route add {SENDER}/32 via 10.7.{number}.1");
            master.ip(&route).await.expect("a route can be added");
        }
        let node = format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{{\"name\":\"sender\"}},\"status\":{{\"addresses\":[{{\"type\":\
             \"InternalIP\",\"address\":\"{SENDER}\"}}]}}}}"
        );
        let file = cluster.edge.directory().join("sender.json");
        std::fs::write(&file, node).expect("a file");
        cluster.edge.admin().stdout(&["create", "-f", &file.display().to_string()]).await;
        let (permitted, permits) = watch::channel(0);
        let (receives, received) = watch::channel(0);
        let (ca_pem, administrator) = (cluster.edge.ca_pem().to_owned(), cluster.administrator());
        let started = async move {
            let listener = TcpListener::bind((SENDER, PORT)).await.expect("the address is there");
            tokio::spawn(send(listener, bytes));
            let receiving = tokio::spawn(async move {
                let address: SocketAddr = LB.parse().expect("an address");
                let stream = dial(address, &ca_pem, &["http/1.1"], Some(&administrator)).await?;
                receive(stream, bytes, permits, receives).await
            });
            // Not alone, because a future of a future is seldom meant.
            (receiving,)
        };
        let (digest,) = cluster.on_worker.run(started).await;
        Self { bytes, permitted, received, digest }
    }

    /// Permits bytes until this share of all, and waits until half of them have come.
    ///
    /// # Panics
    /// If they do not come.
    pub async fn permit(&mut self, part: u64, parts: u64) {
        let before = *self.permitted.borrow();
        let until = self.bytes * part / parts;
        self.permitted.send_replace(until);
        let half = self.received.wait_for(|received| *received >= before + (until - before) / 2);
        timeout(BYTES_MAX, half).await.expect("bytes come in time").expect("the download goes on");
    }

    /// Waits for the end, and says whether every byte has come.
    ///
    /// # Panics
    /// If the download was broken.
    pub async fn is_whole(self) -> bool {
        self.permitted.send_replace(self.bytes);
        let digest = timeout(BYTES_MAX, self.digest).await.expect("it ends in time").expect("no panic");
        let mut expected = Context::new(&SHA256);
        for number in 0..self.bytes / BLOCK_BYTES as u64 {
            expected.update(&block(number));
        }
        digest.expect("the download was not broken") == expected.finish().as_ref()
    }
}

/// Sends all blocks to each connection.
async fn send(listener: TcpListener, bytes: u64) -> io::Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let mut head = vec![0; 16 * 1024];
            let _ = stream.read(&mut head).await?;
            let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {bytes}\r\n\r\n");
            stream.write_all(head.as_bytes()).await?;
            for number in 0..bytes / BLOCK_BYTES as u64 {
                stream.write_all(&block(number)).await?;
            }
            io::Result::Ok(())
        });
    }
}

/// A block that differs from all others.
fn block(number: u64) -> Vec<u8> {
    let mut block: Vec<u8> = (0..BLOCK_BYTES).map(|at| (at % 251) as u8).collect();
    block[..8].copy_from_slice(&number.to_be_bytes());
    block
}

/// The digest of the body.
async fn receive(
    mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    bytes: u64,
    mut permits: watch::Receiver<u64>,
    receives: watch::Sender<u64>,
) -> io::Result<Vec<u8>> {
    let path = format!("/api/v1/nodes/http:sender:{PORT}/proxy/");
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: lb\r\n\r\n").as_bytes()).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    if !head.starts_with(b"HTTP/1.1 200") {
        return Err(io::Error::other(String::from_utf8_lossy(&head).into_owned()));
    }
    let (mut digest, mut received, mut buffer) = (Context::new(&SHA256), 0, vec![0; 256 * 1024]);
    while received < bytes {
        let permitted =
            *permits.wait_for(|permitted| *permitted > received).await.map_err(io::Error::other)?;
        let most = buffer.len().min(usize::try_from(permitted - received).unwrap_or(usize::MAX));
        let read = stream.read(&mut buffer[..most]).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        digest.update(&buffer[..read]);
        received += read as u64;
        receives.send_replace(received);
    }
    Ok(digest.finish().as_ref().to_vec())
}
