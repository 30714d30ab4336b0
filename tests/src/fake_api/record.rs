//! Records of what arrived at the fake, and waiting for it.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::watch;

/// Bytes kept of what one connection sent; more is counted, not kept.
const CONNECTION_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes kept of one request's body; more is counted, not kept.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The versions of HTTP that the fake speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1, one request at a time on a connection.
    Http1,
    /// HTTP/2, with many streams on a connection.
    Http2,
}

/// The record of one connection.
#[derive(Debug, Clone)]
pub struct RecordedConnection {
    /// The number of the connection, from 0.
    pub id: u64,
    /// The address of the client.
    pub from: SocketAddr,
    /// The time when it was accepted.
    pub accepted: Instant,
    /// The version that ALPN agreed on, once TLS is set up.
    pub version: Option<HttpVersion>,
    /// True if the client showed a certificate that the authority has signed.
    pub shows_certificate: bool,
    /// Every decrypted byte that arrived, in order and uninterpreted; the first 4 MiB.
    pub bytes: Vec<u8>,
    /// Number of decrypted bytes that arrived.
    pub received_bytes: u64,
    /// Number of decrypted bytes that were accepted for sending.
    pub sent_bytes: u64,
    /// The time when it ended, by either side.
    pub ended: Option<Instant>,
}

/// The record of one request.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// The number of the request, from 0.
    pub id: u64,
    /// The number of its connection.
    pub connection: u64,
    /// The version it came in.
    pub version: HttpVersion,
    /// The method of the request.
    pub method: String,
    /// The target as it was written: path and query (HTTP/2: `:path`).
    pub target: String,
    /// The pseudo-header `:authority` of HTTP/2.
    pub authority: Option<String>,
    /// The headers in order. HTTP/1.1: names and duplicates exactly as they were sent.
    pub headers: Vec<(String, String)>,
    /// The bytes of the body so far.
    pub body_bytes: u64,
    /// The first 64 MiB of the body.
    pub body: Vec<u8>,
    /// The time when the head had arrived.
    pub arrived: Instant,
    /// The time when the body had arrived completely.
    pub body_ended: Option<Instant>,
    /// The time when the answer had been written completely.
    pub answered: Option<Instant>,
    /// The client's disconnect before that, if it happened.
    pub hangup: Option<Hangup>,
}

/// The disconnect of a client before its answer was complete.
#[derive(Debug, Clone)]
pub struct Hangup {
    /// The time when it was noticed.
    pub at: Instant,
    /// The cause: an end of the stream, a reset, or a failed write.
    pub how: String,
}

/// The number of a request that is not recorded.
const UNRECORDED: u64 = u64::MAX;

/// The media types that an agent takes when it asks for something on its own, and no caller does.
const ACCEPTED_BY_AGENTS: &str = "application/json, application/jwk-set+json";

/// The awaited event did not happen in time.
#[derive(Debug, thiserror::Error)]
#[error("{what} within {limit:?}; these have arrived: {seen:?}")]
pub struct WaitError {
    what: &'static str,
    limit: Duration,
    seen: Vec<String>,
}

/// The records of all connections and requests.
#[derive(Debug, Default)]
pub(super) struct Records {
    pages: Mutex<RecordedState>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct RecordedState {
    connections: Vec<RecordedConnection>,
    requests: Vec<RecordedRequest>,
    streams_open_max: usize,
}

/// A request's head, before it has a number.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) version: HttpVersion,
    pub(super) method: String,
    pub(super) target: String,
    pub(super) authority: Option<String>,
    pub(super) headers: Vec<(String, String)>,
}

impl HttpVersion {
    pub(super) fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

impl RecordedRequest {
    /// The values of a header, with any case of its name.
    pub fn header(&self, name: &str) -> Vec<&str> {
        let same = |(written, _): &&(String, String)| written.eq_ignore_ascii_case(name);
        self.headers.iter().filter(same).map(|(_, value)| value.as_str()).collect()
    }
}

impl Head {
    /// Returns true if an agent asks for the version of its API server, as it does beside all requests of callers.
    pub(super) fn is_version_for_agent(&self) -> bool {
        self.target == "/version" && self.header("accept") == Some(ACCEPTED_BY_AGENTS)
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(written, _)| written.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

impl Records {
    pub(super) fn accepted(&self, from: SocketAddr) -> u64 {
        self.change(|pages| {
            let id = pages.connections.len() as u64;
            let accepted = Instant::now();
            pages.connections.push(RecordedConnection {
                id,
                from,
                accepted,
                version: None,
                shows_certificate: false,
                bytes: Vec::new(),
                received_bytes: 0,
                sent_bytes: 0,
                ended: None,
            });
            id
        })
    }

    pub(super) fn agreed(&self, connection: u64, version: HttpVersion, shows_certificate: bool) {
        self.connection(connection, |found| {
            found.version = Some(version);
            found.shows_certificate = shows_certificate;
        });
    }

    pub(super) fn read(&self, connection: u64, bytes: &[u8]) {
        self.connection(connection, |found| {
            found.received_bytes += bytes.len() as u64;
            keep(&mut found.bytes, bytes, CONNECTION_BYTES_MAX);
        });
    }

    pub(super) fn wrote(&self, connection: u64, bytes: usize) {
        self.connection(connection, |found| found.sent_bytes += bytes as u64);
    }

    pub(super) fn ended(&self, connection: u64) {
        self.connection(connection, |found| found.ended = Some(Instant::now()));
    }

    pub(super) fn streams_open(&self, count: usize) {
        self.change(|pages| pages.streams_open_max = pages.streams_open_max.max(count));
    }

    /// Records a request, and returns its number. An agent's own question for the version is no request of a trial.
    pub(super) fn arrived(&self, connection: u64, head: &Head) -> u64 {
        if head.is_version_for_agent() {
            return UNRECORDED;
        }
        self.change(|pages| {
            let id = pages.requests.len() as u64;
            pages.requests.push(RecordedRequest {
                id,
                connection,
                version: head.version,
                method: head.method.clone(),
                target: head.target.clone(),
                authority: head.authority.clone(),
                headers: head.headers.clone(),
                body_bytes: 0,
                body: Vec::new(),
                arrived: Instant::now(),
                body_ended: None,
                answered: None,
                hangup: None,
            });
            id
        })
    }

    pub(super) fn body(&self, request: u64, bytes: &Bytes) {
        self.request(request, |found| {
            found.body_bytes += bytes.len() as u64;
            keep(&mut found.body, bytes, BODY_BYTES_MAX);
        });
    }

    pub(super) fn body_ended(&self, request: u64) {
        self.request(request, |found| found.body_ended = Some(Instant::now()));
    }

    pub(super) fn answered(&self, request: u64) {
        self.request(request, |found| found.answered = Some(Instant::now()));
    }

    pub(super) fn hung_up(&self, request: u64, how: String) {
        self.request(request, |found| found.hangup = Some(Hangup { at: Instant::now(), how }));
    }

    pub(super) fn body_of(&self, request: u64) -> Vec<u8> {
        self.pages().requests.get(index(request)).map_or_else(Vec::new, |found| found.body.clone())
    }

    pub(super) fn requests(&self) -> Vec<RecordedRequest> {
        self.pages().requests.clone()
    }

    pub(super) fn connections(&self) -> Vec<RecordedConnection> {
        self.pages().connections.clone()
    }

    pub(super) fn streams_open_max(&self) -> usize {
        self.pages().streams_open_max
    }

    pub(super) async fn wait<T>(
        &self,
        limit: Duration,
        what: &'static str,
        find: impl Fn(&[RecordedRequest]) -> Option<T>,
    ) -> Result<T, WaitError> {
        // Subscribed before the first look, so that no change falls in between.
        let mut changes = self.changed.subscribe();
        let found = tokio::time::timeout(limit, async {
            loop {
                changes.borrow_and_update();
                if let Some(found) = find(&self.pages().requests) {
                    return found;
                }
                // The sender lives in `self`, so there is always a next change to wait for.
                let _ = changes.changed().await;
            }
        })
        .await;
        found.map_err(|_| {
            let line = |one: &RecordedRequest| format!("{} {} {}", one.id, one.method, one.target);
            WaitError { what, limit, seen: self.pages().requests.iter().map(line).collect() }
        })
    }

    fn connection(&self, id: u64, change: impl FnOnce(&mut RecordedConnection)) {
        self.change(|pages| pages.connections.get_mut(index(id)).map(change));
    }

    fn request(&self, id: u64, change: impl FnOnce(&mut RecordedRequest)) {
        self.change(|pages| pages.requests.get_mut(index(id)).map(change));
    }

    fn change<T>(&self, change: impl FnOnce(&mut RecordedState) -> T) -> T {
        let result = change(&mut self.pages());
        self.changed.send_replace(());
        result
    }

    fn pages(&self) -> MutexGuard<'_, RecordedState> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn index(id: u64) -> usize {
    usize::try_from(id).expect("numbers are indexes")
}

fn keep(kept: &mut Vec<u8>, more: &[u8], most: usize) {
    let room = most.saturating_sub(kept.len()).min(more.len());
    kept.extend_from_slice(&more[..room]);
}
