//! One request at a time over HTTP/1.1, byte by byte, for tests of bytes that no library would send or show.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::dial::dial;
use crate::pki::Issued;

/// The limit for every answer.
const ANSWER_MAX: Duration = Duration::from_secs(100);

/// An answer, read to the end of its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status of the answer.
    pub status: u16,
    /// The head of the answer, unchanged.
    pub head: String,
    /// The bytes after the head, chunk sizes included.
    pub body: String,
    /// True if the connection ended as TLS ends, with a close_notify.
    pub is_clean: bool,
}

impl Reply {
    /// The cause in the gateway's `Status`.
    ///
    /// # Panics
    /// If the body is no `Status`.
    pub fn cause(&self) -> String {
        let status: Value = serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"));
        status["details"]["causes"][0]["reason"].as_str().unwrap_or_default().to_owned()
    }
}

/// Asks `address` with exactly these bytes in the head, and `Connection: close` unless `headers` speak of it.
///
/// # Errors
/// Where the connection or its handshake fails, or the answer has no head.
pub async fn ask(
    address: SocketAddr,
    ca_pem: &str,
    identity: Option<&Issued>,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> io::Result<Reply> {
    let mut head = format!("{method} {path} HTTP/1.1\r\n");
    let has = |name: &str| headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
    if !has("host") {
        head.push_str(&format!("Host: {address}\r\n"));
    }
    if !has("connection") {
        head.push_str("Connection: close\r\n");
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    ask_raw(address, ca_pem, identity, head.as_bytes()).await
}

/// Sends these bytes and reads to the end.
///
/// # Errors
/// As [`ask`].
pub async fn ask_raw(
    address: SocketAddr,
    ca_pem: &str,
    identity: Option<&Issued>,
    bytes: &[u8],
) -> io::Result<Reply> {
    let exchange = async {
        let mut stream = dial(address, ca_pem, &["http/1.1"], identity).await?;
        stream.write_all(bytes).await?;
        // One task may ask so often at once that it has to pause here, with the bytes not yet sent.
        stream.flush().await?;
        let mut answer = Vec::new();
        let is_clean = stream.read_to_end(&mut answer).await.is_ok();
        parse(&answer, is_clean)
    };
    timeout(ANSWER_MAX, exchange).await?
}

/// Returns true if probes answer that their process is ready.
pub async fn is_ready(probes: SocketAddr) -> bool {
    matches!(plain(probes, "/readyz").await, Ok(answer) if answer.contains(" 200 "))
}

/// The parts of a process that are ready or not, as its probes tell them; empty while nobody answers.
pub async fn parts_ready(probes: SocketAddr) -> String {
    plain(probes, "/readyz?verbose").await.unwrap_or_default()
}

/// One request without TLS, to probes.
///
/// # Errors
/// Where nobody answers.
pub async fn plain(address: SocketAddr, path: &str) -> io::Result<String> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    };
    timeout(ANSWER_MAX, exchange).await?
}

fn parse(answer: &[u8], is_clean: bool) -> io::Result<Reply> {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("no answer, only {text:?}")));
    };
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, head.to_owned()))?;
    Ok(Reply { status, head: head.to_owned(), body: body.to_owned(), is_clean })
}
