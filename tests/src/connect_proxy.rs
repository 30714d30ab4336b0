//! An HTTP proxy that opens connections for clients with the right password, and resolves names of its own.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The proxy; every name is this machine's.
#[derive(Debug)]
#[must_use = "the proxy is gone when this is dropped"]
pub struct ConnectProxy {
    address: SocketAddr,
    let_in: Arc<Mutex<usize>>,
    accepting: JoinHandle<()>,
}

impl ConnectProxy {
    /// Starts one on the loopback that wants to hear `user` and `password`.
    ///
    /// # Errors
    /// If there is no port for it.
    pub async fn start(user: &str, password: &str) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (address, let_in) = (listener.local_addr()?, Arc::<Mutex<usize>>::default());
        let wanted = format!("Proxy-Authorization: Basic {}", STANDARD.encode(format!("{user}:{password}")));
        let counted = Arc::clone(&let_in);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (wanted, counted) = (wanted.clone(), Arc::clone(&counted));
                tokio::spawn(async move { serve(stream, &wanted, &counted).await });
            }
        });
        Ok(Self { address, let_in, accepting })
    }

    /// The address on which the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of connections that the proxy has opened.
    pub fn let_in(&self) -> usize {
        *self.let_in.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(stream: TcpStream, wanted: &str, let_in: &Mutex<usize>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let port = head.split(' ').nth(1).and_then(|target| target.rsplit_once(':')?.1.parse::<u16>().ok());
    let Some(port) = port.filter(|_| head.lines().any(|line| line == wanted)) else {
        return stream.write_all(b"HTTP/1.1 407 Who asks?\r\nContent-Length: 0\r\n\r\n").await;
    };
    let mut beyond = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    *let_in.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    stream.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await?;
    copy_bidirectional(&mut stream, &mut beyond).await.map(drop)
}
