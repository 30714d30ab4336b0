//! The fake's behaviour towards connections and requests, and the table that selects it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::broadcast;

use super::gate::Gate;
use super::store::Store;
use crate::process::Invocation;

/// Events that a feed holds for a request that reads slowly; beyond these the request is cut off.
const EVENTS_QUEUED_MAX: usize = 1024;

/// The treatment of a connection before any request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListenerMode {
    /// It gets TLS and HTTP.
    #[default]
    Open,
    /// It is accepted and gets no byte.
    SilentBeforeTls,
    /// Accepted, and closed at once.
    Close,
}

/// The treatment of a request. `Upgrade`, `Exec`, `ExecProgram` and `Raw` need HTTP/1.1; on HTTP/2 they
/// reset the stream with `HTTP_1_1_REQUIRED`.
#[derive(Debug, Clone)]
pub enum Behaviour {
    /// The request is read to its end and answered.
    Answer(Answer),
    /// The same, the answer's body in pieces with a pause before each.
    Slow {
        /// The answer that follows the pause.
        answer: Answer,
        /// Bytes in a piece, at least 1.
        piece_bytes: usize,
        /// The pause between two pieces.
        pause: Duration,
    },
    /// The request is read and never answered.
    NeverAnswer,
    /// No byte after the request's head is read, and no answer is sent.
    Deaf,
    /// A 200 whose body ends before it should. HTTP/2: the declared length (if any), the bytes, then the
    /// whole connection is dropped.
    Truncate {
        /// The length that the head declares for the body.
        declared: Declared,
        /// The part of the body that is sent.
        sent: Bytes,
        /// The end of the connection after that.
        cut: Cut,
    },
    /// The request is answered completely, and right after the last byte the connection ends: HTTP/2's with
    /// all its streams.
    Last {
        /// The answer that is sent.
        answer: Answer,
        /// The end of the connection after that.
        cut: Cut,
    },
    /// A collection of objects that is read, written and watched.
    Store(Store),
    /// A 200 whose body repeats a piece for as long as the client reads.
    Endless(Bytes),
    /// A 200 that stays open and sends the events of its feed.
    Watch(WatchFeed),
    /// A right 101 after a pause, then some bytes first, then an echo of what arrives, each direction closed
    /// on its own.
    Upgrade {
        /// The pause before the 101.
        pause: Duration,
        /// The bytes that follow the 101 in the same write.
        first: Bytes,
    },
    /// The subresource `exec` of a pod in which `cat` runs, as `kubectl exec -i` speaks to it: over WebSocket
    /// (`v5.channel.k8s.io`) or SPDY (`v4.channel.k8s.io`).
    Exec,
    /// The same for another program, whose input and output are those of `kubectl exec -i`. Over SPDY alone, which
    /// an API server speaks to the kubelet of a node that declares no feature.
    ExecProgram(Invocation),
    /// Any bytes right after the request's head, and then the end.
    Raw {
        /// The bytes that are sent.
        bytes: Bytes,
        /// The end of the connection after that.
        cut: Cut,
    },
}

/// An answer that is sent completely.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status of the answer.
    pub status: u16,
    /// The headers of the answer, without `Content-Length`.
    pub headers: Vec<(String, String)>,
    /// The body of the answer.
    pub body: Bytes,
}

/// The length that a truncated answer's head declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Declared {
    /// `Content-Length` with this number of bytes.
    ContentLength(u64),
    /// Chunked on HTTP/1.1, and no length on HTTP/2.
    Chunked,
}

/// The form of a connection's end. Only `Half` sends TLS's `close_notify`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The connection ends with a FIN.
    Close,
    /// The connection ends with a RST.
    Reset,
    /// It does not: it stays open and silent.
    Hold,
    /// In the direction to the peer alone; what the peer sends is read to its end. HTTP/1.1 only; over HTTP/2
    /// as `Hold`.
    Half,
}

/// The sending side of [`Behaviour::Watch`]; clones feed the same requests.
#[derive(Debug, Clone)]
pub struct WatchFeed(broadcast::Sender<Event>);

#[derive(Debug, Clone)]
pub(super) enum Event {
    Bytes(Bytes),
    End,
}

/// Maps prefixes of paths to behaviours.
#[derive(Debug, Default)]
pub(super) struct BehaviourTable(Mutex<EventLines>);

#[derive(Debug, Default)]
struct EventLines {
    mode: ListenerMode,
    by_prefix: BTreeMap<String, Behaviour>,
    gates: BTreeMap<String, Gate>,
}

impl Behaviour {
    /// A 200 with a JSON body.
    pub fn json(body: impl Into<String>) -> Self {
        Self::Answer(Answer::json(200, body))
    }

    /// A redirect to another location.
    pub fn redirect(status: u16, location: &str) -> Self {
        let headers = vec![("Location".to_owned(), location.to_owned())];
        Self::Answer(Answer { status, headers, body: Bytes::new() })
    }

    /// A right 101 at once.
    pub fn upgrade() -> Self {
        Self::Upgrade { pause: Duration::ZERO, first: Bytes::new() }
    }

    /// A 101 to a protocol that nobody asked for.
    pub fn wrong_101_protocol() -> Self {
        Self::raw(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other/9\r\n\r\n",
            Cut::Hold,
        )
    }

    /// A 101 that names the protocol but lacks `Connection: Upgrade`.
    pub fn wrong_101_without_connection(protocol: &str) -> Self {
        Self::raw(format!("HTTP/1.1 101 Switching Protocols\r\nUpgrade: {protocol}\r\n\r\n"), Cut::Hold)
    }

    /// Bytes that are no HTTP.
    pub fn garbage() -> Self {
        Self::raw("\u{1}\u{2}this is not HTTP\r\n\r\n", Cut::Hold)
    }

    /// Any bytes, on HTTP/1.1 only.
    pub fn raw(bytes: impl Into<Bytes>, cut: Cut) -> Self {
        Self::Raw { bytes: bytes.into(), cut }
    }
}

impl Answer {
    /// An answer with a JSON body.
    pub fn json(status: u16, body: impl Into<String>) -> Self {
        let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        Self { status, headers, body: Bytes::from(body.into()) }
    }
}

impl WatchFeed {
    /// A feed that nobody reads yet: what is pushed before a request has arrived is lost.
    pub fn new() -> Self {
        Self(broadcast::channel(EVENTS_QUEUED_MAX).0)
    }

    /// Sends bytes, such as a line of JSON, to all open requests, and returns the number of these.
    pub fn push(&self, bytes: impl Into<Bytes>) -> usize {
        self.0.send(Event::Bytes(bytes.into())).unwrap_or(0)
    }

    /// Ends the bodies of all open requests cleanly, and returns the number of these.
    pub fn end(&self) -> usize {
        self.0.send(Event::End).unwrap_or(0)
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.0.subscribe()
    }
}

impl Default for WatchFeed {
    fn default() -> Self {
        Self::new()
    }
}

impl BehaviourTable {
    pub(super) fn set(&self, prefix: &str, behaviour: Behaviour) {
        self.lines().by_prefix.insert(prefix.to_owned(), behaviour);
    }

    pub(super) fn set_gate(&self, prefix: &str, gate: Gate) {
        self.lines().gates.insert(prefix.to_owned(), gate);
    }

    pub(super) fn set_listener_mode(&self, mode: ListenerMode) {
        self.lines().mode = mode;
    }

    pub(super) fn mode(&self) -> ListenerMode {
        self.lines().mode
    }

    pub(super) fn behaviour(&self, target: &str) -> Behaviour {
        let path = target.split('?').next().unwrap_or(target);
        let lines = self.lines();
        let found = lines.by_prefix.iter().filter(|(prefix, _)| path.starts_with(prefix.as_str()));
        found
            .max_by_key(|(prefix, _)| prefix.len())
            .map_or_else(|| not_found(path), |(_, behaviour)| behaviour.clone())
    }

    /// The gate at which the answer to a request waits.
    pub(super) fn gate(&self, target: &str) -> Option<Gate> {
        let lines = self.lines();
        let found = lines.gates.iter().filter(|(prefix, _)| target.starts_with(prefix.as_str()));
        found.max_by_key(|(prefix, _)| prefix.len()).map(|(_, gate)| gate.clone())
    }

    fn lines(&self) -> MutexGuard<'_, EventLines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_found(path: &str) -> Behaviour {
    let body = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound", "code": 404,
        "message": format!("the fake has nothing at {path}"),
    });
    Behaviour::Answer(Answer::json(404, body.to_string()))
}
