//! The routes to one API server: direct, by the gateway's path, and by the cluster's own host name.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::caller::{SOON, read_to_end, send_all};
use crate::dial::dial_name;
use crate::kube::kubectl::Kubectl;
use crate::pki::Issued;

mod http1;

/// Headers that differ between two answers. All other headers belong to the object and must agree.
/// `Last-Modified` is the time when the API server assembled a document of OpenAPI, which it does again with
/// the same bytes while it starts.
const VARYING: [&str; 4] = ["audit-id", "date", "expires", "last-modified"];

/// Headers that the gateway adds to every answer for browsers. The tests of browsers check them.
const FOR_BROWSERS: [&str; 2] = ["content-security-policy", "x-content-type-options"];

/// The keys of JSON whose values differ between two writes of the same object.
const MASKED: [&str; 6] =
    ["uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "lastTransitionTime", "time"];

/// The flow-control window of a client in bytes. It is large enough not to limit what is measured.
const WINDOW_BYTES: u32 = 4 * 1024 * 1024;

/// A way to the API server, for one caller.
#[derive(Debug, Clone)]
pub struct Route {
    /// `direct`, `path` or `host name`.
    pub name: &'static str,
    /// The address that is dialed.
    pub address: SocketAddr,
    /// The server name of the handshake and, with the port, the value of `:authority`.
    pub host: String,
    /// The prefix in front of the API server's own paths.
    pub prefix: String,
    /// The CA that the client trusts.
    pub ca_pem: String,
    /// The client certificate of the caller.
    pub identity: Issued,
    /// A kubectl that uses this route.
    pub kubectl: Kubectl,
}

/// A connection of HTTP/2 along a way. Clones are the same.
#[derive(Debug, Clone)]
pub struct RouteClient {
    /// The name of the route.
    pub name: &'static str,
    sender: SendRequest<Bytes>,
    base: String,
    _driver: Arc<Driver>,
}

#[derive(Debug)]
struct Driver(JoinHandle<()>);

/// A request that is sent along each route.
#[derive(Debug, Clone)]
pub struct TestRequest {
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
}

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub struct TestResponse {
    /// The HTTP status of the answer.
    pub status: u16,
    /// The headers of the answer.
    pub headers: HeaderMap,
    /// The body of the answer.
    pub body: Bytes,
}

impl Route {
    /// Connects by HTTP/2 along this route.
    pub async fn connect(&self) -> RouteClient {
        let stream = dial_name(self.address, &self.host, &self.ca_pem, &["h2"], Some(&self.identity)).await;
        let stream = stream.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(WINDOW_BYTES).initial_connection_window_size(WINDOW_BYTES);
        let (sender, connection) = builder.handshake(stream).await.expect("HTTP/2 is spoken");
        let driver = Driver(tokio::spawn(async move { drop(connection.await) }));
        let base = format!("https://{}:{}{}", self.host, self.address.port(), self.prefix);
        RouteClient { name: self.name, sender, base, _driver: Arc::new(driver) }
    }
}

impl RouteClient {
    /// Sends a request, and reads its complete answer.
    ///
    /// # Panics
    /// If the stream or the connection breaks.
    pub async fn ask(&self, ask: &TestRequest) -> TestResponse {
        let (answer, body) = self.begin(ask).await;
        let (bytes, end) = read_to_end(body).await;
        end.unwrap_or_else(|error| panic!("{} {ask:?}: {error} after {} bytes", self.name, bytes.len()));
        TestResponse { body: bytes.into(), ..answer }
    }

    /// Sends a request, and reads the head of its answer.
    ///
    /// # Panics
    /// If the stream or the connection breaks.
    pub async fn begin(&self, ask: &TestRequest) -> (TestResponse, RecvStream) {
        let mut request = Request::builder().method(ask.method).uri(format!("{}{}", self.base, ask.path));
        for (name, value) in &ask.headers {
            request = request.header(*name, value);
        }
        let request = request.body(()).expect("a test sends what can be sent");
        let mut sender = self.sender.clone().ready().await.expect("the connection is open");
        let (answer, stream) =
            sender.send_request(request, ask.body.is_empty()).expect("the connection is open");
        let body = ask.body.clone();
        // Both at once: an answer may come before the body is sent, and end the sending.
        let (_, answer) = tokio::join!(send_body(stream, body), timeout(SOON, answer));
        let answer = answer.expect("an answer in time");
        let answer = answer.unwrap_or_else(|error| panic!("{} {ask:?}: {error}", self.name));
        let (parts, body) = answer.into_parts();
        let answer =
            TestResponse { status: parts.status.as_u16(), headers: parts.headers, body: Bytes::new() };
        (answer, body)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl TestRequest {
    /// A GET of a path.
    pub fn get(path: impl Into<String>) -> Self {
        Self::of("GET", path)
    }

    /// A request without a body.
    pub fn of(method: &'static str, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), headers: Vec::new(), body: Bytes::new() }
    }

    /// A request with a body.
    pub fn with(
        method: &'static str,
        path: impl Into<String>,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> Self {
        Self { body: body.into(), ..Self::of(method, path).header("content-type", content_type) }
    }

    /// The same with another header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The same with this `Accept`.
    #[must_use]
    pub fn accept(self, value: &str) -> Self {
        self.header("accept", value)
    }
}

impl TestResponse {
    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The headers in order, without those that differ between two answers to the same request, and what is
    /// for browsers.
    pub fn lasting_headers(&self) -> Vec<(String, String)> {
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let mut headers: Vec<_> =
            self.headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
        headers.retain(|(name, _)| !VARYING.iter().chain(&FOR_BROWSERS).any(|other| other == name));
        headers.sort();
        headers
    }
}

/// Text in which what differs between two writes of the same object is masked: its uid, its version, its
/// times, and in a `Table` its age, which is the last cell.
pub fn masked(text: &[u8]) -> String {
    let mut masked = String::from_utf8_lossy(text).into_owned();
    for key in MASKED {
        for opening in [format!("\"{key}\":\""), format!("\"{key}\": \"")] {
            masked = masked_after(&masked, &opening, '"', |_| "…".to_owned());
        }
    }
    // A precondition that did not hold.
    masked = masked_after(&masked, "in record (", ')', |_| "…".to_owned());
    masked_after(&masked, "\"cells\":[", ']', |cells| {
        let rest = cells.rsplit_once(',').map_or("", |(rest, _age)| rest);
        format!("{rest},…")
    })
}

fn masked_after(text: &str, opening: &str, closing: char, mask: impl Fn(&str) -> String) -> String {
    let mut pieces = text.split(opening);
    let mut masked = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (value, rest) = piece.split_at(piece.find(closing).unwrap_or(piece.len()));
        masked.push_str(opening);
        masked.push_str(&mask(value));
        masked.push_str(rest);
    }
    masked
}

async fn send_body(mut stream: SendStream<Bytes>, body: Bytes) {
    if !body.is_empty() {
        // Fails where the answer came first and the rest is not wanted.
        let _ = send_all(&mut stream, body, true).await;
    }
}
