//! The pool of connections to the API server: gives each exchange a slot, and dials when slots are missing.
//!
//! Requests without a slot wait in one queue. Connections are dialed for the queue and not for a request, so
//! that a burst shares the slots of one dial, and a request that is cancelled takes no connection with it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use daemon::Scope;
use http::{Request, Response};
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::Instant;

use super::balancer::Balancer;
use super::connection::{self, Connection, Http1Connection, Purpose, SendError};
use super::credential::Snapshot;
use super::endpoints::Destination;
use super::error::ApiServerError;
use super::limits::{CONNECTIONS_MAX, Timeouts, WAITING_MAX};
use super::request_body::RequestBody;
use crate::config::API_SERVERS_MAX;

mod state;

pub(super) use state::Slot;
use state::{Http1Slot, Http2Slot, IdleHttp1, PoolState, SharedPool, Waiter};

/// Checks for idle connections within one idle time.
const CHECKS_PER_IDLE: u32 = 4;

/// The pool of connections. Clones share it.
#[derive(Clone)]
pub(super) struct Pool(Arc<SharedPool>);

/// The numbers of connections, streams and waiting requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolFigures {
    /// Connections that are open or being dialed, those for upgrades included.
    pub connections: usize,
    /// Exchanges that run on HTTP/2 connections.
    pub streams: usize,
    /// Requests that wait for a slot.
    pub waiting: usize,
}

impl Pool {
    pub(super) fn new(scope: Scope, timeouts: Timeouts, balancer: Arc<Balancer>) -> Self {
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let changes = balancer.subscribe();
        let pool = Arc::new(SharedPool { scope, timeouts, balancer, permits, state: Mutex::default() });
        pool.scope.spawn_background(close_idle(Arc::downgrade(&pool), timeouts));
        pool.scope.spawn_background(follow_balancer(Arc::downgrade(&pool), changes));
        Self(pool)
    }

    /// The numbers of connections, streams and waiting requests now.
    pub(super) fn figures(&self) -> PoolFigures {
        let state = self.0.lock();
        PoolFigures {
            connections: CONNECTIONS_MAX - self.0.permits.available_permits(),
            streams: state.http2.iter().map(|connection| connection.in_use).sum(),
            waiting: state.waiting.iter().filter(|waiter| !waiter.is_closed()).count(),
        }
    }

    /// A slot on a connection that was made with `snapshot` or a newer credential, now or after a wait.
    pub(super) async fn acquire(&self, snapshot: &Arc<Snapshot>) -> Result<Slot, ApiServerError> {
        let slot = {
            let mut state = self.0.lock();
            state.adopt(snapshot);
            state.follow(&self.0.balancer);
            if let Some(slot) = state.free_slot(&Arc::downgrade(&self.0)) {
                if state.unconnected_destination().is_some() {
                    drop(state);
                    self.0.dial_as_needed();
                }
                return Ok(slot);
            }
            state.waiting.retain(|waiter| !waiter.is_closed());
            if state.waiting.len() >= WAITING_MAX {
                return Err(ApiServerError::Full);
            }
            let (waiter, slot) = oneshot::channel();
            state.waiting.push_back(waiter);
            slot
        };
        self.0.dial_as_needed();
        slot.await.unwrap_or(Err(ApiServerError::CutShort))
    }

    /// A connection for one upgrade. Tries the next API server where one cannot be reached.
    pub(super) async fn dedicated(&self, snapshot: &Snapshot) -> Result<Http1Connection, ApiServerError> {
        let SharedPool { balancer, timeouts, scope, .. } = &*self.0;
        let mut last = ApiServerError::Full;
        for _ in 0..=API_SERVERS_MAX {
            let destination = balancer.destinations().first().copied().flatten();
            let permit = self.0.permit().ok_or(ApiServerError::Full)?;
            let (to, tls) = ((destination, snapshot.target.at(destination)), snapshot.tls.upgrade.clone());
            let (target, limit) = ((&to, &balancer.certificates), timeouts.connect);
            // Both arms are cancel-safe: a dropped dial closes its socket.
            let dialed = tokio::select! {
                dialed = connection::dial(target, tls, Purpose::Upgrade, limit, permit, scope) => dialed,
                () = balancer.lost(destination), if destination.is_some() => Err(ApiServerError::Silent(limit)),
            };
            match (dialed, destination) {
                (Ok(Connection::Http1(connection)), _) => return Ok(connection),
                (Ok(Connection::Http2 { .. }), _) => {
                    return Err(ApiServerError::ProtocolError("it chose a protocol that was not offered"));
                }
                (Err(error), None) => return Err(error),
                (Err(error), Some(_)) => {
                    balancer.failed(destination, &error);
                    last = error;
                }
            }
        }
        Err(last)
    }
}

impl SharedPool {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The permit for one more connection, if the limit allows it.
    fn permit(&self) -> Option<OwnedSemaphorePermit> {
        self.permits.clone().try_acquire_owned().ok()
    }

    /// Dials until every waiting request will have a slot. If no connection can be made, all of them fail.
    fn dial_as_needed(self: &Arc<Self>) {
        let mut state = self.lock();
        let Some(snapshot) = state.snapshot.clone() else {
            return;
        };
        while let Some(destination) = state.destination_to_dial() {
            let Some(permit) = self.permit() else {
                if !state.is_dialing() {
                    let waiting = std::mem::take(&mut state.waiting);
                    drop(state);
                    fail_all(waiting, &ApiServerError::Full);
                }
                return;
            };
            state.dialing.push(destination);
            let (pool, snapshot) = (self.clone(), snapshot.clone());
            self.scope.spawn_background(async move {
                let (to, tls) = ((destination, snapshot.target.at(destination)), snapshot.tls.pooled.clone());
                let (target, limit) = ((&to, &pool.balancer.certificates), pool.timeouts.connect);
                let dialed = connection::dial(target, tls, Purpose::Pooled, limit, permit, &pool.scope).await;
                pool.dialed(dialed, snapshot.epoch, destination);
            });
        }
    }

    fn dialed(
        self: &Arc<Self>,
        dialed: Result<Connection, ApiServerError>,
        epoch: u64,
        destination: Destination,
    ) {
        if let Err(error) = &dialed {
            self.balancer.failed(destination, error);
        }
        let mut state = self.lock();
        if let Some(index) = state.dialing.iter().position(|dialing| *dialing == destination) {
            state.dialing.swap_remove(index);
        }
        state.follow(&self.balancer);
        match dialed {
            // It was made with an older credential.
            Ok(_) if !state.is_current(epoch) => {}
            // Requests go to other API servers by now.
            Ok(_) if state.destination(destination).is_none() => {}
            Ok(Connection::Http2 { sender, granted }) => state.add_http2(destination, sender, granted),
            Ok(Connection::Http1(connection)) => {
                state.exchanges_per_connection = 1;
                let counted = state.destination(destination).map(|state| state.http1_connections.clone());
                let (since, counted) = (Instant::now(), counted.unwrap_or_default());
                state.idle_http1.push(IdleHttp1 { destination, connection, since, counted });
            }
            // Another API server may answer.
            Err(_) if state.destination(destination).is_none() => {}
            Err(error) => {
                // The next dial would fail in the same way, only later.
                let waiting = std::mem::take(&mut state.waiting);
                drop(state);
                fail_all(waiting, &error);
                return;
            }
        }
        state.serve_waiting(&Arc::downgrade(self));
        drop(state);
        self.dial_as_needed();
    }

    /// Requests may go to other API servers than before.
    fn destinations_changed(self: &Arc<Self>) {
        let mut state = self.lock();
        state.follow(&self.balancer);
        state.serve_waiting(&Arc::downgrade(self));
        drop(state);
        self.dial_as_needed();
    }

    /// A stream of an HTTP/2 connection has ended.
    fn release(self: &Arc<Self>, number: u64) {
        let mut state = self.lock();
        let Some(connection) = state.http2.iter_mut().find(|connection| connection.number == number) else {
            return;
        };
        connection.in_use -= 1;
        connection.idle_since = Instant::now();
        state.serve_waiting(&Arc::downgrade(self));
    }

    /// Keeps an HTTP/1.1 connection whose exchange is over.
    fn return_idle(self: &Arc<Self>, idle: IdleHttp1, epoch: u64) {
        let mut state = self.lock();
        let is_usable = state.is_current(epoch) && state.destination(idle.destination).is_some();
        if !is_usable || idle.connection.is_closed() {
            return;
        }
        state.idle_http1.push(idle);
        state.serve_waiting(&Arc::downgrade(self));
    }
}

impl Slot {
    pub(super) fn is_multiplexed(&self) -> bool {
        match self {
            Self::Http2(_) => true,
            Self::Http1(_) => false,
        }
    }

    pub(super) async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, SendError> {
        match self {
            Self::Http2(slot) => slot.sender.try_send_request(request).await,
            Self::Http1(slot) => slot.connection.send(request).await,
        }
    }

    /// The exchange is over, and request and answer are complete.
    pub(super) fn finish(self) {
        match self {
            Self::Http2(slot) => drop(slot),
            Self::Http1(slot) => slot.finish(),
        }
    }

    /// The connection cannot be used any more.
    pub(super) fn discard(self) {
        match self {
            Self::Http2(slot) => {
                if let Some(pool) = slot.pool.upgrade() {
                    pool.lock().http2.retain(|connection| connection.number != slot.connection);
                }
            }
            Self::Http1(slot) => drop(slot),
        }
    }
}

impl Http1Slot {
    fn finish(self) {
        let Some(pool) = self.pool.upgrade() else {
            return;
        };
        let epoch = self.epoch;
        let mut idle = self.into_idle();
        if idle.connection.is_ready() {
            pool.return_idle(idle, epoch);
            return;
        }
        // hyper may not have noticed the end yet.
        let scope = pool.scope.clone();
        scope.spawn_background(async move {
            if idle.connection.ready().await {
                pool.return_idle(idle, epoch);
            }
        });
    }
}

impl Drop for Http2Slot {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.release(self.connection);
        }
    }
}

fn fail_all(waiting: VecDeque<Waiter>, error: &ApiServerError) {
    for waiter in waiting {
        // A request that was cancelled needs no answer.
        let _ = waiter.send(Err(error.clone()));
    }
}

/// Takes over the balancer's destinations whenever they change, as long as the pool lives.
async fn follow_balancer(pool: Weak<SharedPool>, mut changes: watch::Receiver<()>) {
    // They may have changed before this task began.
    changes.mark_changed();
    while changes.changed().await.is_ok() {
        let Some(pool) = pool.upgrade() else {
            return;
        };
        pool.destinations_changed();
    }
}

/// Closes connections that were unused for the idle time, as long as the pool lives.
async fn close_idle(pool: Weak<SharedPool>, timeouts: Timeouts) {
    loop {
        tokio::time::sleep(timeouts.idle / CHECKS_PER_IDLE).await;
        let Some(pool) = pool.upgrade() else {
            return;
        };
        let mut state = pool.lock();
        state
            .http2
            .retain(|connection| connection.in_use > 0 || connection.idle_since.elapsed() < timeouts.idle);
        state.idle_http1.retain(|idle| idle.since.elapsed() < timeouts.idle);
    }
}
