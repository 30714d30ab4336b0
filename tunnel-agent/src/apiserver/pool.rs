//! The connections to the API server, and who may use which.
//!
//! Whoever finds no place waits in one queue; connections are dialed for the queue, not for a request, so that a burst
//! shares what one dial brings, and a request that goes away takes nothing with it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use daemon::Scope;
use http::{Request, Response};
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

use super::body::RequestBody;
use super::connection::{self, Link, STREAMS_MAX, Single, Streams, Unanswered, Use};
use super::credential::Snapshot;
use super::{ApiServerError, Limits};

/// Most connections at a time, those for upgrades included.
pub const CONNECTIONS_MAX: usize = 1024;

/// Most requests that wait for a place.
pub const WAITING_MAX: usize = 4096;

/// How often within the idle time connections are looked at.
const LOOKS_PER_IDLE: u32 = 4;

/// The pool. Clones are the same.
#[derive(Clone)]
pub(super) struct Pool(Arc<Inner>);

struct Inner {
    scope: Scope,
    limits: Limits,
    seats: Arc<Semaphore>,
    state: Mutex<State>,
}

/// What the pool holds now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolFigures {
    /// Connections that are open or being dialed, those for upgrades included.
    pub connections: usize,
    /// Exchanges on HTTP/2 connections.
    pub streams: usize,
    /// Requests that wait for a place.
    pub waiting: usize,
}

/// A place for one exchange. Dropped, it is free again, or its connection closed if only one exchange fits on it.
#[derive(Debug)]
pub(super) enum Slot {
    Stream(StreamSlot),
    Single(SingleSlot),
}

#[derive(Debug)]
pub(super) struct StreamSlot {
    pool: Weak<Inner>,
    connection: u64,
    streams: Streams,
}

#[derive(Debug)]
pub(super) struct SingleSlot {
    pool: Weak<Inner>,
    epoch: u64,
    single: Single,
}

type Waiter = oneshot::Sender<Result<Slot, ApiServerError>>;

struct State {
    /// Whose connections these are; `None` before the first request.
    snapshot: Option<Arc<Snapshot>>,
    shared: Vec<Shared>,
    idle: Vec<Idle>,
    waiting: VecDeque<Waiter>,
    dialing: usize,
    /// How many exchanges the last connection has room for.
    places: usize,
    next_connection: u64,
}

/// An HTTP/2 connection.
struct Shared {
    number: u64,
    streams: Streams,
    granted: Arc<AtomicUsize>,
    in_use: usize,
    idle_since: Instant,
}

/// An HTTP/1.1 connection between two exchanges.
struct Idle {
    single: Single,
    since: Instant,
}

impl Pool {
    pub(super) fn new(scope: Scope, limits: Limits) -> Self {
        let seats = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let pool = Arc::new(Inner { scope, limits, seats, state: Mutex::default() });
        pool.scope.attend(close_idle(Arc::downgrade(&pool), limits));
        Self(pool)
    }

    /// What it holds now.
    pub(super) fn figures(&self) -> PoolFigures {
        let state = self.0.lock();
        PoolFigures {
            connections: CONNECTIONS_MAX - self.0.seats.available_permits(),
            streams: state.shared.iter().map(|shared| shared.in_use).sum(),
            waiting: state.waiting.iter().filter(|waiter| !waiter.is_closed()).count(),
        }
    }

    /// A place on a connection made with `snapshot` or a newer one.
    pub(super) async fn acquire(&self, snapshot: &Arc<Snapshot>) -> Result<Slot, ApiServerError> {
        let place = {
            let mut state = self.0.lock();
            state.adopt(snapshot);
            if let Some(slot) = state.free_slot(&Arc::downgrade(&self.0)) {
                return Ok(slot);
            }
            state.waiting.retain(|waiter| !waiter.is_closed());
            if state.waiting.len() >= WAITING_MAX {
                return Err(ApiServerError::Full);
            }
            let (waiter, place) = oneshot::channel();
            state.waiting.push_back(waiter);
            place
        };
        self.0.dial_as_needed();
        place.await.unwrap_or(Err(ApiServerError::CutShort))
    }

    /// A connection for one upgrade.
    pub(super) async fn dedicated(&self, snapshot: &Snapshot) -> Result<Single, ApiServerError> {
        let seat = self.0.seat().ok_or(ApiServerError::Full)?;
        let Limits { connect, .. } = self.0.limits;
        let tls = snapshot.tls.upgrade.clone();
        match connection::dial(&snapshot.target, tls, Use::Upgrade, connect, seat, &self.0.scope).await? {
            Link::Single(single) => Ok(single),
            Link::Multiplexed { .. } => {
                Err(ApiServerError::Nonsense("it chose a protocol that was not offered"))
            }
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place among all connections, if one is left.
    fn seat(&self) -> Option<OwnedSemaphorePermit> {
        self.seats.clone().try_acquire_owned().ok()
    }

    /// Dials until every waiter will have a place; without any hope for one, tells all of them.
    fn dial_as_needed(self: &Arc<Self>) {
        let mut state = self.lock();
        let Some(snapshot) = state.snapshot.clone() else {
            return;
        };
        while state.dialing < state.dials_wanted() {
            let Some(seat) = self.seat() else {
                if state.dialing == 0 {
                    let given_up = std::mem::take(&mut state.waiting);
                    drop(state);
                    tell_all(given_up, &ApiServerError::Full);
                }
                return;
            };
            state.dialing += 1;
            let (pool, snapshot) = (self.clone(), snapshot.clone());
            self.scope.attend(async move {
                let (target, tls) = (&snapshot.target, snapshot.tls.pooled.clone());
                let limit = pool.limits.connect;
                let link = connection::dial(target, tls, Use::Pooled, limit, seat, &pool.scope).await;
                pool.dialed(link, snapshot.epoch);
            });
        }
    }

    fn dialed(self: &Arc<Self>, link: Result<Link, ApiServerError>, epoch: u64) {
        let mut state = self.lock();
        state.dialing -= 1;
        match link {
            // Its credential is no longer ours.
            Ok(_) if !state.is_of(epoch) => {}
            Ok(Link::Multiplexed { streams, granted }) => state.add_shared(streams, granted),
            Ok(Link::Single(single)) => {
                state.places = 1;
                state.idle.push(Idle { single, since: Instant::now() });
            }
            Err(error) => {
                // Whoever waits would hear the same from the next dial, only later.
                let disappointed = std::mem::take(&mut state.waiting);
                drop(state);
                tell_all(disappointed, &error);
                return;
            }
        }
        state.serve(&Arc::downgrade(self));
        drop(state);
        self.dial_as_needed();
    }

    fn release(self: &Arc<Self>, connection: u64) {
        let mut state = self.lock();
        let Some(shared) = state.shared.iter_mut().find(|shared| shared.number == connection) else {
            return;
        };
        shared.in_use -= 1;
        shared.idle_since = Instant::now();
        state.serve(&Arc::downgrade(self));
    }

    /// Keeps an HTTP/1.1 connection whose exchange is over.
    fn give_back(self: &Arc<Self>, single: Single, epoch: u64) {
        let mut state = self.lock();
        if !state.is_of(epoch) || single.is_closed() {
            return;
        }
        state.idle.push(Idle { single, since: Instant::now() });
        state.serve(&Arc::downgrade(self));
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            snapshot: None,
            shared: Vec::new(),
            idle: Vec::new(),
            waiting: VecDeque::new(),
            dialing: 0,
            places: STREAMS_MAX,
            next_connection: 0,
        }
    }
}

impl State {
    /// Turns to a newer credential: what was connected with an older one is not used again, and closes when its
    /// exchanges are over.
    fn adopt(&mut self, snapshot: &Arc<Snapshot>) {
        match &self.snapshot {
            Some(known) if known.epoch >= snapshot.epoch => return,
            Some(_) | None => {}
        }
        self.snapshot = Some(snapshot.clone());
        self.shared.clear();
        self.idle.clear();
    }

    fn is_of(&self, epoch: u64) -> bool {
        self.snapshot.as_ref().is_some_and(|snapshot| snapshot.epoch == epoch)
    }

    /// The fullest connection that is not full, so that the emptiest become idle.
    fn free_slot(&mut self, pool: &Weak<Inner>) -> Option<Slot> {
        self.shared.retain(|shared| !shared.streams.is_closed());
        let fullest =
            self.shared.iter_mut().filter(|shared| shared.in_use < shared.room()).max_by_key(|s| s.in_use);
        if let Some(shared) = fullest {
            shared.in_use += 1;
            let (connection, streams) = (shared.number, shared.streams.clone());
            return Some(Slot::Stream(StreamSlot { pool: pool.clone(), connection, streams }));
        }
        self.idle.retain(|idle| !idle.single.is_closed());
        let latest = self.idle.iter().rposition(|idle| idle.single.is_ready())?;
        let Idle { single, .. } = self.idle.remove(latest);
        let epoch = self.snapshot.as_ref().map_or(0, |snapshot| snapshot.epoch);
        Some(Slot::Single(SingleSlot { pool: pool.clone(), epoch, single }))
    }

    fn add_shared(&mut self, streams: Streams, granted: Arc<AtomicUsize>) {
        self.next_connection += 1;
        let number = self.next_connection;
        let shared = Shared { number, streams, granted, in_use: 0, idle_since: Instant::now() };
        self.places = shared.room().max(1);
        self.shared.push(shared);
    }

    /// Gives free places to those who wait, first come, first served.
    fn serve(&mut self, pool: &Weak<Inner>) {
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
            self.take_back(slot);
        }
    }

    /// Frees a slot while the state is locked, where its `Drop` would lock again.
    fn take_back(&mut self, slot: Slot) {
        match slot {
            Slot::Stream(mut slot) => {
                slot.pool = Weak::new();
                let shared = self.shared.iter_mut().find(|shared| shared.number == slot.connection);
                if let Some(shared) = shared {
                    shared.in_use -= 1;
                }
            }
            Slot::Single(slot) => self.idle.push(Idle { single: slot.single, since: Instant::now() }),
        }
    }

    fn dials_wanted(&self) -> usize {
        self.waiting.len().div_ceil(self.places)
    }
}

impl Shared {
    fn room(&self) -> usize {
        self.granted.load(Ordering::Relaxed).min(STREAMS_MAX)
    }
}

impl Slot {
    pub(super) fn is_multiplexed(&self) -> bool {
        match self {
            Self::Stream(_) => true,
            Self::Single(_) => false,
        }
    }

    pub(super) async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, Unanswered> {
        match self {
            Self::Stream(slot) => slot.streams.try_send_request(request).await,
            Self::Single(slot) => slot.single.send(request).await,
        }
    }

    /// The exchange is over, request and answer whole.
    pub(super) fn finish(self) {
        match self {
            Self::Stream(slot) => drop(slot),
            Self::Single(slot) => slot.finish(),
        }
    }

    /// The connection is good for nothing any more.
    pub(super) fn discard(self) {
        match self {
            Self::Stream(slot) => {
                if let Some(pool) = slot.pool.upgrade() {
                    pool.lock().shared.retain(|shared| shared.number != slot.connection);
                }
            }
            Self::Single(slot) => drop(slot),
        }
    }
}

impl SingleSlot {
    fn finish(self) {
        let Self { pool, epoch, mut single } = self;
        let Some(pool) = pool.upgrade() else {
            return;
        };
        if single.is_ready() {
            pool.give_back(single, epoch);
            return;
        }
        // hyper may still be about to take note of the end.
        let scope = pool.scope.clone();
        scope.attend(async move {
            if single.ready().await {
                pool.give_back(single, epoch);
            }
        });
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.release(self.connection);
        }
    }
}

fn tell_all(waiting: VecDeque<Waiter>, error: &ApiServerError) {
    for waiter in waiting {
        // Who is gone needs no answer.
        let _ = waiter.send(Err(error.clone()));
    }
}

/// Closes connections that nobody used for the idle time, as long as the pool lives.
async fn close_idle(pool: Weak<Inner>, limits: Limits) {
    loop {
        tokio::time::sleep(limits.idle / LOOKS_PER_IDLE).await;
        let Some(pool) = pool.upgrade() else {
            return;
        };
        let mut state = pool.lock();
        state.shared.retain(|shared| shared.in_use > 0 || shared.idle_since.elapsed() < limits.idle);
        state.idle.retain(|idle| idle.since.elapsed() < limits.idle);
    }
}
