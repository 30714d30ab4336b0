//! The connections that a pool has now, and the choice of the next slot and of the next destination to dial.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use daemon::Scope;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

use crate::apiserver::balancer::Balancer;
use crate::apiserver::connection::{Http1Connection, Http2Sender, STREAMS_MAX};
use crate::apiserver::credential::Snapshot;
use crate::apiserver::endpoints::Destination;
use crate::apiserver::error::ApiServerError;
use crate::apiserver::limits::Timeouts;

/// The pool, as its tasks and slots share it.
pub(in crate::apiserver) struct SharedPool {
    pub(super) scope: Scope,
    pub(super) timeouts: Timeouts,
    pub(super) balancer: Arc<Balancer>,
    /// One permit for each connection that may be open.
    pub(super) permits: Arc<Semaphore>,
    pub(super) state: Mutex<PoolState>,
}

/// The right to one exchange on a connection. Dropped, it is free again, or its connection is closed if it
/// fits only one exchange.
#[derive(Debug)]
pub(in crate::apiserver) enum Slot {
    Http2(Http2Slot),
    Http1(Box<Http1Slot>),
}

/// A stream of an HTTP/2 connection.
#[derive(Debug)]
pub(in crate::apiserver) struct Http2Slot {
    pub(super) pool: Weak<SharedPool>,
    /// Number of the connection within the pool.
    pub(super) connection: u64,
    pub(super) sender: Http2Sender,
}

/// An HTTP/1.1 connection, which one exchange fills.
#[derive(Debug)]
pub(in crate::apiserver) struct Http1Slot {
    pub(super) pool: Weak<SharedPool>,
    pub(super) epoch: u64,
    pub(super) destination: Destination,
    pub(super) connection: Http1Connection,
    /// Counts the connection among those of its destination.
    pub(super) counted: Arc<()>,
}

/// A request that waits for a slot.
pub(super) type Waiter = oneshot::Sender<Result<Slot, ApiServerError>>;

/// The connections of the pool, and the requests that wait for one.
pub(super) struct PoolState {
    /// The credential of these connections. `None` before the first request.
    pub(super) snapshot: Option<Arc<Snapshot>>,
    pub(super) http2: Vec<Http2Connection>,
    pub(super) idle_http1: Vec<IdleHttp1>,
    pub(super) waiting: VecDeque<Waiter>,
    /// The destinations to which connections are being dialed.
    pub(super) dialing: Vec<Destination>,
    /// The destinations of requests, as the balancer last had them.
    destinations: Vec<DestinationState>,
    /// The balancer's version of these destinations.
    version: u64,
    /// Exchanges that fit on the connection that was opened last.
    pub(super) exchanges_per_connection: usize,
    connections_opened: u64,
    /// Counts slots that were given out.
    slots_given: u64,
}

/// One destination of requests, with its use.
pub(super) struct DestinationState {
    destination: Destination,
    /// The count of slots at its last use, by which the least recently used destination is found.
    last_used: u64,
    /// Cloned by each of its HTTP/1.1 connections, which counts them.
    pub(super) http1_connections: Arc<()>,
}

/// An HTTP/2 connection and its streams in use.
pub(super) struct Http2Connection {
    pub(super) number: u64,
    destination: Destination,
    sender: Http2Sender,
    granted: Arc<AtomicUsize>,
    pub(super) in_use: usize,
    pub(super) idle_since: Instant,
}

/// An HTTP/1.1 connection between two exchanges.
pub(super) struct IdleHttp1 {
    pub(super) destination: Destination,
    pub(super) connection: Http1Connection,
    pub(super) since: Instant,
    pub(super) counted: Arc<()>,
}

impl Default for PoolState {
    fn default() -> Self {
        Self {
            snapshot: None,
            http2: Vec::new(),
            idle_http1: Vec::new(),
            waiting: VecDeque::new(),
            dialing: Vec::new(),
            destinations: vec![DestinationState::new(None)],
            version: 0,
            exchanges_per_connection: STREAMS_MAX,
            connections_opened: 0,
            slots_given: 0,
        }
    }
}

impl PoolState {
    /// Takes over a newer credential. Connections that were made with an older one get no more exchanges, and
    /// close after the running ones.
    pub(super) fn adopt(&mut self, snapshot: &Arc<Snapshot>) {
        match &self.snapshot {
            Some(current) if current.epoch >= snapshot.epoch => return,
            Some(_) | None => {}
        }
        self.snapshot = Some(snapshot.clone());
        self.http2.clear();
        self.idle_http1.clear();
    }

    /// Returns true if this is the epoch of the credential in use.
    pub(super) fn is_current(&self, epoch: u64) -> bool {
        self.snapshot.as_ref().is_some_and(|snapshot| snapshot.epoch == epoch)
    }

    /// Takes over the balancer's destinations. Connections to others get no more exchanges, and close after
    /// the running ones. A destination that comes back is dialed anew.
    pub(super) fn follow(&mut self, balancer: &Balancer) {
        // The version first, so that a change in between is seen next time.
        let version = balancer.version();
        if self.version != version {
            self.set_destinations(&balancer.destinations());
            self.version = version;
        }
    }

    fn set_destinations(&mut self, destinations: &[Destination]) {
        self.destinations.retain(|state| destinations.contains(&state.destination));
        for destination in destinations {
            if self.destination(*destination).is_none() {
                self.destinations.push(DestinationState::new(*destination));
            }
        }
        self.http2.retain(|connection| destinations.contains(&connection.destination));
        self.idle_http1.retain(|idle| destinations.contains(&idle.destination));
    }

    /// The state of a destination, if requests may still go there.
    pub(super) fn destination(&self, destination: Destination) -> Option<&DestinationState> {
        self.destinations.iter().find(|state| state.destination == destination)
    }

    /// A slot at the API server with the fewest exchanges. Of its connections the fullest one with a free
    /// slot is used, so that the emptiest become idle.
    pub(super) fn free_slot(&mut self, pool: &Weak<SharedPool>) -> Option<Slot> {
        self.http2.retain(|connection| !connection.sender.is_closed());
        self.idle_http1.retain(|idle| !idle.connection.is_closed());
        let has_slot = |destination: Destination| {
            self.http2.iter().any(|connection| connection.destination == destination && connection.has_slot())
                || self
                    .idle_http1
                    .iter()
                    .any(|idle| idle.destination == destination && idle.connection.is_ready())
        };
        let free = self.destinations.iter().filter(|state| has_slot(state.destination));
        let destination = free.min_by_key(|state| (self.exchanges(state), state.last_used))?.destination;
        self.slots_given += 1;
        let last_used = self.slots_given;
        let used = self.destinations.iter_mut().filter(|state| state.destination == destination);
        used.for_each(|state| state.last_used = last_used);
        let connections = self.http2.iter_mut().filter(|connection| connection.destination == destination);
        let with_slot = connections.filter(|connection| connection.has_slot());
        if let Some(fullest) = with_slot.max_by_key(|connection| connection.in_use) {
            fullest.in_use += 1;
            let (connection, sender) = (fullest.number, fullest.sender.clone());
            return Some(Slot::Http2(Http2Slot { pool: pool.clone(), connection, sender }));
        }
        let is_free = |idle: &IdleHttp1| idle.destination == destination && idle.connection.is_ready();
        let latest = self.idle_http1.iter().rposition(is_free)?;
        let IdleHttp1 { destination, connection, since: _, counted } = self.idle_http1.remove(latest);
        let epoch = self.snapshot.as_ref().map_or(0, |snapshot| snapshot.epoch);
        Some(Slot::Http1(Box::new(Http1Slot { pool: pool.clone(), epoch, destination, connection, counted })))
    }

    /// The number of exchanges at one destination.
    fn exchanges(&self, state: &DestinationState) -> usize {
        let http2 = self.http2.iter().filter(|connection| connection.destination == state.destination);
        let streams: usize = http2.map(|connection| connection.in_use).sum();
        let idle = self.idle_http1.iter().filter(|idle| idle.destination == state.destination).count();
        // One reference is the destination's own.
        streams + Arc::strong_count(&state.http1_connections).saturating_sub(1 + idle)
    }

    /// Adds an HTTP/2 connection that was dialed.
    pub(super) fn add_http2(
        &mut self,
        destination: Destination,
        sender: Http2Sender,
        granted: Arc<AtomicUsize>,
    ) {
        self.connections_opened += 1;
        let (number, idle_since) = (self.connections_opened, Instant::now());
        let connection = Http2Connection { number, destination, sender, granted, in_use: 0, idle_since };
        self.exchanges_per_connection = connection.streams_max().max(1);
        self.http2.push(connection);
    }

    /// Gives free slots to the requests that wait, first come, first served.
    pub(super) fn serve_waiting(&mut self, pool: &Weak<SharedPool>) {
        let mut spare = None;
        while !self.waiting.is_empty() {
            let Some(slot) = spare.take().or_else(|| self.free_slot(pool)) else {
                return;
            };
            let Some(waiter) = self.waiting.pop_front() else {
                break;
            };
            spare = waiter.send(Ok(slot)).err().and_then(Result::ok);
        }
        if let Some(slot) = spare {
            self.free(slot);
        }
    }

    /// Frees a slot while the state is locked, because its `Drop` would lock it again.
    fn free(&mut self, slot: Slot) {
        match slot {
            Slot::Http2(mut slot) => {
                slot.pool = Weak::new();
                let connection =
                    self.http2.iter_mut().find(|connection| connection.number == slot.connection);
                if let Some(connection) = connection {
                    connection.in_use -= 1;
                }
            }
            Slot::Http1(slot) => self.idle_http1.push(slot.into_idle()),
        }
    }

    /// The destination to dial next, if a connection is needed: so that every waiting request will have a
    /// slot, and every API server a connection. It is the one with the fewest connections.
    pub(super) fn destination_to_dial(&self) -> Option<Destination> {
        let unconnected = self.unconnected_destination();
        let dials =
            self.dialing.iter().filter(|destination| self.destination(**destination).is_some()).count();
        if unconnected.is_none() && dials >= self.waiting.len().div_ceil(self.exchanges_per_connection) {
            return None;
        }
        let fewest = self.destinations.iter().min_by_key(|state| (self.connections(state), state.last_used));
        unconnected.or_else(|| fewest.map(|state| state.destination))
    }

    /// A destination without any connection, where there are several destinations.
    pub(super) fn unconnected_destination(&self) -> Option<Destination> {
        if self.destinations.len() < 2 {
            return None;
        }
        self.destinations.iter().find(|state| self.connections(state) == 0).map(|state| state.destination)
    }

    /// The number of connections to a destination, those that are being dialed included.
    fn connections(&self, state: &DestinationState) -> usize {
        let dialing = self.dialing.iter().filter(|destination| **destination == state.destination).count();
        let http2 =
            self.http2.iter().filter(|connection| connection.destination == state.destination).count();
        dialing + http2 + Arc::strong_count(&state.http1_connections) - 1
    }

    /// Returns true if a dial is under way whose connection a waiting request can use.
    pub(super) fn is_dialing(&self) -> bool {
        self.dialing.iter().any(|destination| self.destination(*destination).is_some())
    }
}

impl DestinationState {
    fn new(destination: Destination) -> Self {
        Self { destination, last_used: 0, http1_connections: Arc::default() }
    }
}

impl Http2Connection {
    fn streams_max(&self) -> usize {
        self.granted.load(Ordering::Relaxed).min(STREAMS_MAX)
    }

    fn has_slot(&self) -> bool {
        self.in_use < self.streams_max()
    }
}

impl Http1Slot {
    pub(super) fn into_idle(self) -> IdleHttp1 {
        let Self { pool: _, epoch: _, destination, connection, counted } = self;
        IdleHttp1 { destination, connection, since: Instant::now(), counted }
    }
}
