//! The connections to the API server, and who may use which.
//!
//! Whoever finds no place waits in one queue; connections are dialed for the queue, not for a request, so that a burst
//! shares what one dial brings, and a request that goes away takes nothing with it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use daemon::Scope;
use http::{Request, Response};
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::Instant;

use super::body::RequestBody;
use super::connection::{self, Link, Single, Streams, Unanswered, Use};
use super::credential::Snapshot;
use super::endpoints::Place;
use super::probing::Balance;
use super::{ApiServerError, Limits};
use crate::config::API_SERVERS_MAX;

mod state;

use state::{Idle, State};

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
    balance: Arc<Balance>,
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
    Single(Box<SingleSlot>),
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
    place: Place,
    single: Single,
    /// Counts it among those of its place.
    counted: Arc<()>,
}

type Waiter = oneshot::Sender<Result<Slot, ApiServerError>>;

impl Pool {
    pub(super) fn new(scope: Scope, limits: Limits, balance: Arc<Balance>) -> Self {
        let seats = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let moves = balance.subscribe();
        let pool = Arc::new(Inner { scope, limits, balance, seats, state: Mutex::default() });
        pool.scope.attend(close_idle(Arc::downgrade(&pool), limits));
        pool.scope.attend(follow(Arc::downgrade(&pool), moves));
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
            state.move_with(&self.0.balance);
            if let Some(slot) = state.free_slot(&Arc::downgrade(&self.0)) {
                if state.bare_place().is_some() {
                    drop(state);
                    self.0.dial_as_needed();
                }
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

    /// A connection for one upgrade. Goes on to another API server where the first cannot be reached.
    pub(super) async fn dedicated(&self, snapshot: &Snapshot) -> Result<Single, ApiServerError> {
        let Inner { balance, limits, scope, .. } = &*self.0;
        let mut last = ApiServerError::Full;
        for _ in 0..=API_SERVERS_MAX {
            let place = balance.places().first().copied().flatten();
            let seat = self.0.seat().ok_or(ApiServerError::Full)?;
            let (to, tls) = ((place, snapshot.target.at(place)), snapshot.tls.upgrade.clone());
            let towards = (&to, &balance.served);
            // Both arms are cancel-safe: a dropped dial closes its socket.
            let dialed = tokio::select! {
                dialed = connection::dial(towards, tls, Use::Upgrade, limits.connect, seat, scope) => dialed,
                () = balance.lost(place), if place.is_some() => Err(ApiServerError::Silent(limits.connect)),
            };
            match (dialed, place) {
                (Ok(Link::Single(single)), _) => return Ok(single),
                (Ok(Link::Multiplexed { .. }), _) => {
                    return Err(ApiServerError::Nonsense("it chose a protocol that was not offered"));
                }
                (Err(error), None) => return Err(error),
                (Err(error), Some(_)) => {
                    balance.failed(place, &error);
                    last = error;
                }
            }
        }
        Err(last)
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
        while let Some(place) = state.place_to_dial() {
            let Some(seat) = self.seat() else {
                if !state.is_dialing() {
                    let given_up = std::mem::take(&mut state.waiting);
                    drop(state);
                    tell_all(given_up, &ApiServerError::Full);
                }
                return;
            };
            state.dialing.push(place);
            let (pool, snapshot) = (self.clone(), snapshot.clone());
            self.scope.attend(async move {
                let (to, tls) = ((place, snapshot.target.at(place)), snapshot.tls.pooled.clone());
                let (towards, limit) = ((&to, &pool.balance.served), pool.limits.connect);
                let link = connection::dial(towards, tls, Use::Pooled, limit, seat, &pool.scope).await;
                pool.dialed(link, snapshot.epoch, place);
            });
        }
    }

    fn dialed(self: &Arc<Self>, link: Result<Link, ApiServerError>, epoch: u64, place: Place) {
        if let Err(error) = &link {
            self.balance.failed(place, error);
        }
        let mut state = self.lock();
        if let Some(dialing) = state.dialing.iter().position(|dialing| *dialing == place) {
            state.dialing.swap_remove(dialing);
        }
        state.move_with(&self.balance);
        match link {
            // Its credential is no longer ours.
            Ok(_) if !state.is_of(epoch) => {}
            // Others are asked by now.
            Ok(_) if state.known(place).is_none() => {}
            Ok(Link::Multiplexed { streams, granted }) => state.add_shared(place, streams, granted),
            Ok(Link::Single(single)) => {
                state.rooms = 1;
                let counted = state.known(place).map(|known| known.singles.clone()).unwrap_or_default();
                state.idle.push(Idle { place, single, since: Instant::now(), counted });
            }
            // Another API server may answer.
            Err(_) if state.known(place).is_none() => {}
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

    /// Other API servers may be asked than before.
    fn moved(self: &Arc<Self>) {
        let mut state = self.lock();
        state.move_with(&self.balance);
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
    fn give_back(self: &Arc<Self>, idle: Idle, epoch: u64) {
        let mut state = self.lock();
        if !state.is_of(epoch) || state.known(idle.place).is_none() || idle.single.is_closed() {
            return;
        }
        state.idle.push(idle);
        state.serve(&Arc::downgrade(self));
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
        let Some(pool) = self.pool.upgrade() else {
            return;
        };
        let epoch = self.epoch;
        let mut idle = self.into_idle();
        if idle.single.is_ready() {
            pool.give_back(idle, epoch);
            return;
        }
        // hyper may still be about to take note of the end.
        let scope = pool.scope.clone();
        scope.attend(async move {
            if idle.single.ready().await {
                pool.give_back(idle, epoch);
            }
        });
    }

    fn into_idle(self) -> Idle {
        let Self { pool: _, epoch: _, place, single, counted } = self;
        Idle { place, single, since: Instant::now(), counted }
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

/// Turns to other API servers whenever that is due, as long as the pool lives.
async fn follow(pool: Weak<Inner>, mut moves: watch::Receiver<()>) {
    // Something may have changed before anybody looked.
    moves.mark_changed();
    while moves.changed().await.is_ok() {
        let Some(pool) = pool.upgrade() else {
            return;
        };
        pool.moved();
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
