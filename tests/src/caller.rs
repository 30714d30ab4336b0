//! Callers of the gateway that speak byte by byte or stream by stream, and disconnect in any way.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{Request, Response};
use rustix::net::sockopt::set_socket_linger;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use crate::dial::{dial_name, shake};
use crate::pki::Issued;
use crate::rig::{Rig, TOKEN};

/// The limit for anything that a caller waits for. It is long because builds of other tests may run beside.
pub const SOON: Duration = Duration::from_secs(60);

/// HTTP/2's own, RFC 9113, section 6.9.2.
const DEFAULT_WINDOW_BYTES: u32 = 65_535;

/// The smallest receive buffer that still lets TLS shake hands quickly.
const NARROW_BYTES: u32 = 16 * 1024;

/// The gateway's own name, under which clusters are chosen by path.
pub const GATEWAY: &str = "gateway.test";

/// The protocol to which `exec` and `attach` are upgraded. These callers treat its content as bytes.
pub const UPGRADED_TO: &str = "SPDY/3.1";

/// The reading half of an upgraded connection.
pub type UpgradedReader = ReadHalf<TlsStream<TcpStream>>;
/// The other direction; either half keeps the connection.
pub type UpgradedWriter = WriteHalf<TlsStream<TcpStream>>;

/// The form of a caller's disconnect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disconnect {
    /// The socket is closed without a word of TLS. The kernel makes it a RST where bytes have arrived unread.
    Close,
    /// TLS's close_notify and a FIN, and the socket stays open.
    CloseNotify,
    /// A TCP connection that is reset.
    Reset,
}

/// A caller that speaks HTTP/1.1.
#[derive(Debug)]
pub struct Http1Caller {
    stream: TlsStream<TcpStream>,
    unread: Vec<u8>,
}

/// A caller that speaks HTTP/2 and shows the [`TOKEN`].
#[derive(Debug)]
pub struct Http2Caller {
    sender: SendRequest<Bytes>,
    driver: JoinHandle<()>,
    socket: OwnedFd,
    authorization: Option<String>,
}

/// The head of a request that the holder of [`TOKEN`] sends, with these further lines, each ending in CRLF.
pub fn head(method: &str, target: &str, lines: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: {GATEWAY}\r\nAuthorization: Bearer {TOKEN}\r\n{lines}\r\n")
}

/// The status that a CONNECT to a cluster's target gets with the [`TOKEN`].
pub async fn status_of_connect(rig: &Rig, cluster: &str, target: &str) -> u16 {
    let mut caller = Http1Caller::dial(rig).await;
    caller.write(head("CONNECT", target, &format!("Tombolo-Cluster: {cluster}\r\n"))).await;
    let answer = caller.read_head().await;
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
}

impl Http1Caller {
    /// Connects without a client certificate.
    pub async fn dial(rig: &Rig) -> Self {
        Self::dial_name(rig, GATEWAY, None).await
    }

    /// Connects to the gateway under a name of its own.
    pub async fn dial_name(rig: &Rig, name: &str, identity: Option<&Issued>) -> Self {
        let dialed = dial_name(rig.gateway(), name, &rig.server_ca(), &["http/1.1"], identity).await;
        Self { stream: dialed.expect("the gateway shakes hands"), unread: Vec::new() }
    }

    /// Connects with a very small receive buffer, so that unread bytes soon block the sender.
    pub async fn dial_narrow(rig: &Rig) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(NARROW_BYTES).expect("a socket's option");
        let socket = socket.connect(rig.gateway()).await.expect("the gateway listens");
        let shaken = shake(socket, GATEWAY, &rig.server_ca(), &["http/1.1"], None).await;
        Self { stream: shaken.expect("the gateway shakes hands"), unread: Vec::new() }
    }

    /// The connection itself, behind an upgrade or a CONNECT.
    ///
    /// # Panics
    /// If something was read of it that nobody has taken.
    pub fn into_stream(self) -> TlsStream<TcpStream> {
        assert!(self.unread.is_empty(), "{:?} was read", self.unread);
        self.stream
    }

    /// Reads as many bytes, unless the connection ends before. The error distinguishes a clean end from a
    /// cut.
    ///
    /// # Errors
    /// The end, however it came.
    pub async fn try_read_exactly(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.unread.len() < count {
            if self.more().await? == 0 {
                return Err(io::Error::new(io::ErrorKind::WriteZero, "a clean end"));
            }
        }
        let rest = self.unread.split_off(count);
        Ok(std::mem::replace(&mut self.unread, rest))
    }

    /// Reads complete lines until the text that was read contains this one.
    ///
    /// # Panics
    /// If the connection ends before.
    pub async fn read_until(&mut self, text: &str) -> String {
        let mut read = Vec::new();
        while !(read.ends_with(b"\n") && String::from_utf8_lossy(&read).contains(text)) {
            let next = self.try_read_exactly(1).await;
            read.extend(
                next.unwrap_or_else(|error| panic!("{error} behind {:?}", String::from_utf8_lossy(&read))),
            );
        }
        String::from_utf8_lossy(&read).into_owned()
    }

    /// Writes all of these bytes.
    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_write(bytes).await.expect("the gateway reads");
    }

    /// Writes all of it, as long as the gateway reads.
    ///
    /// # Errors
    /// The gateway has closed the connection.
    pub async fn try_write(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        let written = async {
            self.stream.write_all(bytes.as_ref()).await?;
            self.stream.flush().await
        };
        timeout(SOON, written).await.expect("the gateway reads in time")
    }

    /// Reads a head, and leaves what is behind it.
    pub async fn read_head(&mut self) -> String {
        self.try_read_head().await.expect("a head comes")
    }

    /// Reads a head, unless the connection is cut before; a clean end is never taken for one.
    pub async fn try_read_head(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                let rest = self.unread.split_off(end + 4);
                let head = std::mem::replace(&mut self.unread, rest);
                return Ok(String::from_utf8(head).expect("a head is text"));
            }
            let more = self.more().await?;
            assert!(more > 0, "an end instead of a head: {:?}", String::from_utf8_lossy(&self.unread));
        }
    }

    /// Reads a head, or `None` of a connection that ends without one.
    pub async fn try_read_head_or_end(&mut self) -> Option<String> {
        while !self.unread.windows(4).any(|four| four == b"\r\n\r\n") {
            self.more().await.ok().filter(|more| *more > 0)?;
        }
        self.try_read_head().await.ok()
    }

    /// Reads exactly this number of bytes.
    pub async fn read_exactly(&mut self, count: usize) -> Vec<u8> {
        while self.unread.len() < count {
            let more = self.more().await.expect("more comes");
            assert!(more > 0, "an end after {} bytes of {count}", self.unread.len());
        }
        let rest = self.unread.split_off(count);
        std::mem::replace(&mut self.unread, rest)
    }

    /// Reads to the end, and returns how it ended: an error unless TLS ended with a close_notify.
    pub async fn read_to_end(&mut self) -> (Vec<u8>, io::Result<()>) {
        let end = loop {
            match self.more().await {
                Ok(0) => break Ok(()),
                Ok(_) => {}
                Err(error) => break Err(error),
            }
        };
        (std::mem::take(&mut self.unread), end)
    }

    /// Waits without a limit until the gateway has closed the connection.
    pub async fn closed(&mut self) {
        // An error is an end, too.
        while matches!(self.stream.read_buf(&mut self.unread).await, Ok(1..)) {}
    }

    /// Ends the writing direction as TLS does, and goes on reading.
    pub async fn shut_down(&mut self) {
        // The gateway may have closed the connection.
        let _ = timeout(SOON, self.stream.shutdown()).await.expect("the gateway reads in time");
    }

    /// Leaves; what is returned keeps the socket open where that belongs to it.
    pub async fn leave(mut self, how: Disconnect) -> Option<Self> {
        match how {
            Disconnect::Close => None,
            Disconnect::CloseNotify => {
                self.shut_down().await;
                Some(self)
            }
            Disconnect::Reset => {
                set_socket_linger(self.stream.get_ref().0, Some(Duration::ZERO)).expect("the socket is open");
                None
            }
        }
    }

    async fn more(&mut self) -> io::Result<usize> {
        timeout(SOON, self.stream.read_buf(&mut self.unread)).await.expect("the gateway writes in time")
    }
}

impl Http2Caller {
    /// Connects as the holder of [`TOKEN`].
    pub async fn dial(rig: &Rig) -> Self {
        Self::dial_name(rig, GATEWAY, None).await.with_token()
    }

    /// Connects to the gateway of another server as the holder of [`TOKEN`].
    pub async fn dial_at(rig: &Rig, gateway: SocketAddr) -> Self {
        let stream = dial_name(gateway, GATEWAY, &rig.server_ca(), &["h2"], None).await;
        Self::over(stream, DEFAULT_WINDOW_BYTES, DEFAULT_WINDOW_BYTES).await.with_token()
    }

    /// Connects to the gateway under a name of its own, and sends no token by itself.
    pub async fn dial_name(rig: &Rig, name: &str, identity: Option<&Issued>) -> Self {
        Self::dial_windows(rig, name, identity, DEFAULT_WINDOW_BYTES, DEFAULT_WINDOW_BYTES).await
    }

    /// The same with windows of its own: what may come unread on a stream, and on all together.
    pub async fn dial_windows(
        rig: &Rig,
        name: &str,
        identity: Option<&Issued>,
        stream_bytes: u32,
        connection_bytes: u32,
    ) -> Self {
        let stream = dial_name(rig.gateway(), name, &rig.server_ca(), &["h2"], identity).await;
        Self::over(stream, stream_bytes, connection_bytes).await
    }

    async fn over(
        stream: io::Result<TlsStream<TcpStream>>,
        stream_bytes: u32,
        connection_bytes: u32,
    ) -> Self {
        let stream = stream.expect("the gateway shakes hands");
        let socket = stream.get_ref().0.as_fd().try_clone_to_owned().expect("a second descriptor");
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(stream_bytes).initial_connection_window_size(connection_bytes);
        let (sender, connection) = builder.handshake(stream).await.expect("the gateway speaks HTTP/2");
        let driver = tokio::spawn(async move { drop(connection.await) });
        Self { sender, driver, socket, authorization: None }
    }

    /// Lets it hold the [`TOKEN`].
    #[must_use]
    pub fn with_token(mut self) -> Self {
        self.authorization = Some(format!("Bearer {TOKEN}"));
        self
    }

    /// Sends a head for a path under [`GATEWAY`], and announces a body unless the request is `complete`.
    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        complete: bool,
    ) -> (ResponseFuture, SendStream<Bytes>) {
        let mut request = Request::builder().method(method).uri(format!("https://{GATEWAY}{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let request = request.body(()).expect("a test sends what can be sent");
        self.sender.send_request(request, complete).expect("the connection is open")
    }

    /// Sends a request without a body, and reads its complete answer.
    ///
    /// # Errors
    /// The stream or the connection broke.
    pub async fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Response<Bytes>, h2::Error> {
        let (answer, _) = self.send(method, path, headers, true);
        let (parts, body) = timeout(SOON, answer).await.expect("an answer in time")?.into_parts();
        let (body, end) = read_to_end(body).await;
        end.map(|()| Response::from_parts(parts, Bytes::from(body)))
    }

    /// Closes the connection, or resets it, without a GOAWAY of HTTP/2.
    pub async fn leave(self, how: Disconnect) {
        if how == Disconnect::Reset {
            set_socket_linger(&self.socket, Some(Duration::ZERO)).expect("the socket is open");
        }
        let Self { driver, socket, .. } = self;
        drop(socket);
        driver.abort();
        let _ = driver.await; // Aborted, which is what was asked; the socket is closed now.
    }
}

/// Reads a body of HTTP/2 to its end, and returns how it ended.
pub async fn read_to_end(mut body: RecvStream) -> (Vec<u8>, Result<(), h2::Error>) {
    let mut bytes = Vec::new();
    while let Some(data) = timeout(SOON, body.data()).await.expect("more in time") {
        match data {
            Ok(data) => {
                let _ = body.flow_control().release_capacity(data.len()); // Fails only on a stream that is gone.
                bytes.extend_from_slice(&data);
            }
            Err(error) => return (bytes, Err(error)),
        }
    }
    (bytes, Ok(()))
}

/// Sends bytes on a stream of HTTP/2 as its windows allow.
///
/// # Errors
/// The stream was reset.
pub async fn send_all(stream: &mut SendStream<Bytes>, mut bytes: Bytes, end: bool) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let room = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
        let Some(room) = room.transpose()? else { return Ok(()) };
        stream.send_data(bytes.split_to(room.min(bytes.len())), false)?;
    }
    if end { stream.send_data(Bytes::new(), true) } else { Ok(()) }
}

/// Asks for a path and is upgraded there, as `exec` and `attach` are. Returns both directions, and what came
/// behind the answer's head.
///
/// # Panics
/// If it is not upgraded.
pub async fn upgrade(rig: &Rig, path: &str) -> (UpgradedReader, UpgradedWriter, Vec<u8>) {
    let lines = format!("Connection: Upgrade\r\nUpgrade: {}\r\nContent-Length: 0\r\n", UPGRADED_TO);
    let agreed = async {
        let mut stream = dial_name(rig.gateway(), GATEWAY, &rig.server_ca(), &["http/1.1"], None).await?;
        stream.write_all(head("POST", path, &lines).as_bytes()).await?;
        let mut answer = Vec::new();
        let end = loop {
            if let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            stream.read_buf(&mut answer).await?;
        };
        assert!(answer.starts_with(b"HTTP/1.1 101 "), "{:?}", String::from_utf8_lossy(&answer));
        let first = answer.split_off(end);
        let (reader, writer) = tokio::io::split(stream);
        Ok::<_, io::Error>((reader, writer, first))
    };
    timeout(SOON, agreed).await.expect("an upgrade in time").expect("an upgrade")
}
