//! The state that a tunnel shares with its driver and its streams: session, open streams, byte counters,
//! round trips.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use proto::Session;
use proto::session::Protocol;
use tokio::sync::Notify;

use crate::link_stats::StreamBytes;
use crate::min_rtt::MinRtt;
use crate::peer_queue::PeerQueue;
use crate::priority::{LightCredit, Priority, SendBudget};
use crate::settings::{STREAMS_INITIAL, STREAMS_MAX, Side};

/// A tunnel's session, with the notification that wakes its driver, and the counters of its streams.
pub(crate) struct TunnelState {
    session: Mutex<Session>,
    streams_open: AtomicU32,
    /// Number of streams that this side has opened so far.
    streams_numbered: AtomicU64,
    /// Number of streams that the peer may have open now.
    granted: AtomicU32,
    session_changed: Notify,
    stream_bytes: StreamBytes,
    min_rtt: MinRtt,
    credit: LightCredit,
    /// Messages for another server; `None` on an agent's tunnel.
    peer_queue: Option<Box<PeerQueue>>,
}

impl TunnelState {
    pub(crate) fn new(session: Session, side: Side) -> Self {
        let granted = match side {
            // What a server grants never grows.
            Side::Server => STREAMS_MAX,
            Side::Agent => STREAMS_INITIAL,
        };
        let peer_queue = match session.protocol() {
            Protocol::Agent => None,
            Protocol::Peer => Some(Box::default()),
        };
        Self {
            session: Mutex::new(session),
            streams_open: AtomicU32::new(0),
            streams_numbered: AtomicU64::new(0),
            granted: AtomicU32::new(granted),
            session_changed: Notify::new(),
            stream_bytes: StreamBytes::default(),
            min_rtt: MinRtt::default(),
            credit: LightCredit::default(),
            peer_queue,
        }
    }

    /// The messages that wait for another server; `None` on an agent's tunnel.
    pub(crate) fn peer_queue(&self) -> Option<&PeerQueue> {
        self.peer_queue.as_deref()
    }

    /// Wakes the driver, because there is something to send or to end.
    pub(crate) fn wake_driver(&self) {
        self.session_changed.notify_one();
    }

    /// Locks the session: for a moment, and never over an await.
    pub(crate) fn session(&self) -> MutexGuard<'_, Session> {
        // A panic under the lock leaves a valid session behind: it changes by single assignments.
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates the session and wakes its driver, because there may be a frame to send.
    pub(crate) fn update_session(&self, update: impl FnOnce(&mut Session)) {
        update(&mut self.session());
        self.session_changed.notify_one();
    }

    /// Resolves when the session was updated.
    pub(crate) async fn session_changed(&self) {
        self.session_changed.notified().await;
    }

    pub(crate) fn streams_open(&self) -> u32 {
        self.streams_open.load(Ordering::Relaxed)
    }

    /// The number of the next stream that this side opens, from 1.
    pub(crate) fn next_stream(&self) -> u64 {
        self.streams_numbered.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The number of streams to grant from now on, if half of the granted ones are open. That is early enough
    /// that no stream waits for a round trip, unless more come at once than were granted.
    pub(crate) fn grant_more(&self) -> Option<u32> {
        let granted = self.granted.load(Ordering::Relaxed);
        if granted >= STREAMS_MAX || self.streams_open() < granted / 2 {
            return None;
        }
        let more = granted.saturating_mul(2).min(STREAMS_MAX);
        self.granted.store(more, Ordering::Relaxed);
        Some(more)
    }

    pub(crate) fn stream_bytes(&self) -> &StreamBytes {
        &self.stream_bytes
    }

    pub(crate) fn min_rtt(&self) -> &MinRtt {
        &self.min_rtt
    }
}

/// Counts one open stream. Dropped when the stream is over for this side: its end was read and its last byte
/// acknowledged, or it was aborted.
pub(crate) struct StreamGuard(Arc<TunnelState>);

impl StreamGuard {
    /// Counts a new stream of this side, unless the tunnel takes no new streams.
    pub(crate) fn open(state: &Arc<TunnelState>) -> Option<Self> {
        let mut session = state.session();
        if session.is_draining() {
            return None;
        }
        change(state, &mut session, true);
        drop(session);
        Some(Self(Arc::clone(state)))
    }

    /// Counts a stream that the peer opened, whatever the tunnel's state: it may have been under way when a
    /// drain began.
    pub(crate) fn accepted(state: &Arc<TunnelState>) -> Self {
        change(state, &mut state.session(), true);
        Self(Arc::clone(state))
    }
}

impl StreamGuard {
    /// The budget of a new stream, which has sent nothing.
    pub(crate) fn budget(&self) -> SendBudget {
        SendBudget::new(self.0.stream_bytes.sent_so_far())
    }

    /// The priority of the next `bytes` of a stream with this budget.
    pub(crate) fn priority(&self, budget: &mut SendBudget, bytes: usize) -> Priority {
        budget.priority(self.0.stream_bytes.sent_so_far(), bytes as u64, &self.0.credit)
    }

    pub(crate) fn sent(&self, budget: &mut SendBudget, bytes: usize, priority: Priority) {
        budget.sent(bytes as u64, priority, &self.0.credit);
        self.0.stream_bytes.sent(bytes);
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.0.stream_bytes.received(bytes);
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let mut session = self.0.session();
        change(&self.0, &mut session, false);
        if session.is_draining() {
            self.0.session_changed.notify_one();
        }
    }
}

/// Changes the count under the session's lock, so that both always agree. If that makes a heartbeat due,
/// because the tunnel was silent for a while, it goes along with the request.
fn change(state: &TunnelState, session: &mut Session, more: bool) {
    let open = if more {
        state.streams_open.fetch_add(1, Ordering::Relaxed) + 1
    } else {
        state.streams_open.fetch_sub(1, Ordering::Relaxed) - 1
    };
    session.streams_changed(Instant::now(), open);
    if session.has_frames() {
        state.session_changed.notify_one();
    }
}
