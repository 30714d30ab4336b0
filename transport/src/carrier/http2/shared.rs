//! The state that one HTTP/2 connection shares with its streams and its driver: its end, its pings,
//! unacknowledged streams.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use proto::CloseCode;
use proto::session::{HEARTBEAT_ACTIVE, ProtocolViolation};
use tokio::sync::{Notify, watch};

use super::outcome::{SendOutcome, StreamDelivery};
use super::settings::ROUND_TRIP_INITIAL;
use crate::error::TunnelEnded;
use crate::probe::Answer;

/// The shared state of one HTTP/2 connection.
pub(super) struct SharedConnection {
    status: watch::Sender<Status>,
    close_request: Mutex<Option<CloseReason>>,
    close_requested: Notify,
    /// `None` once the connection is over and no acknowledgement will come.
    finishing: Mutex<Option<FinishingStreams>>,
    round_trip_micros: AtomicU64,
    pings: Mutex<PingState>,
    ping_requested: Notify,
    answered: Notify,
}

/// The streams whose writers have finished.
#[derive(Default)]
struct FinishingStreams {
    /// Those that wait until the peer has received the last byte.
    waiting: HashMap<u32, Arc<SendOutcome>>,
    /// Number of ends that the peer has not acknowledged. Some streams were dropped before their end was sent,
    /// and their number stays.
    unacknowledged: u64,
}

/// The state of heartbeats and pings, and the peer's last answer.
#[derive(Default)]
struct PingState {
    /// The time at which a heartbeat was last written.
    last_heartbeat_at: Option<Instant>,
    /// The oldest ping that awaits its answer.
    unanswered_since: Option<Instant>,
    answer: Option<Answer>,
}

/// The status of a connection: whether and how it has ended.
#[derive(Default)]
struct Status {
    end: Option<End>,
    /// The peer was notified of the end, or could not be.
    is_close_sent: bool,
}

#[derive(Clone)]
struct End {
    outcome: TunnelEnded,
    /// The reason that the peer gave when it closed.
    peer_close_reason: Option<CloseReason>,
}

/// The code and the message with which a side closes a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CloseReason {
    pub(crate) code: CloseCode,
    pub(crate) message: String,
}

impl SharedConnection {
    pub(super) fn new() -> Self {
        Self {
            status: watch::Sender::new(Status::default()),
            close_request: Mutex::new(None),
            close_requested: Notify::new(),
            finishing: Mutex::new(Some(FinishingStreams::default())),
            round_trip_micros: AtomicU64::new(micros(ROUND_TRIP_INITIAL)),
            pings: Mutex::default(),
            ping_requested: Notify::new(),
            answered: Notify::new(),
        }
    }

    /// The end of the connection, once it has ended.
    pub(super) fn end(&self) -> Option<TunnelEnded> {
        self.status.borrow().end.as_ref().map(|end| end.outcome.clone())
    }

    /// The reason that the peer gave, if it closed the connection.
    pub(super) fn peer_close_reason(&self) -> Option<CloseReason> {
        self.status.borrow().end.as_ref().and_then(|end| end.peer_close_reason.clone())
    }

    /// Resolves when the connection has ended.
    pub(super) async fn ended(&self) -> TunnelEnded {
        let mut status = self.status.subscribe();
        let ended = status.wait_for(|status| status.end.is_some()).await;
        // The sender belongs to `self`, so it cannot be dropped.
        let end = ended.ok().and_then(|status| status.end.as_ref().map(|end| end.outcome.clone()));
        end.unwrap_or(TunnelEnded::Lost)
    }

    /// Resolves when the connection has ended and the peer was notified, as far as that was possible.
    pub(super) async fn close_sent(&self) {
        let _ = self.status.subscribe().wait_for(|status| status.is_close_sent).await;
    }

    /// Closes the connection from this side. This side's streams end at once; the peer is notified as soon as
    /// possible.
    pub(super) fn close(&self, code: CloseCode, message: &str) {
        let outcome = TunnelEnded::Carrier("closed by this side".to_owned());
        if self.set_end(outcome, None) {
            *lock(&self.close_request) = Some(CloseReason { code, message: message.to_owned() });
            self.close_requested.notify_one();
        }
    }

    /// Resolves with the reason to send to the peer, once this side has closed. Cancel-safe.
    pub(super) async fn close_requested(&self) -> CloseReason {
        loop {
            if let Some(reason) = lock(&self.close_request).take() {
                return reason;
            }
            self.close_requested.notified().await;
        }
    }

    /// Notes that the peer has closed the connection.
    pub(super) fn peer_closed(&self, reason: CloseReason) {
        self.set_end(TunnelEnded::closed(reason.code), Some(reason));
    }

    /// Notes that the peer has broken the protocol. Streams end at once; the peer is notified if possible.
    pub(super) fn violated(&self, violation: &ProtocolViolation) -> TunnelEnded {
        let outcome = TunnelEnded::from(violation.clone());
        self.set_end(outcome.clone(), None);
        outcome
    }

    /// Ends the connection for good: no byte moves any more, and unacknowledged streams are lost.
    pub(super) fn finish(&self, outcome: TunnelEnded) {
        self.set_end(outcome, None);
        let waiting = lock(&self.finishing).take();
        self.status.send_modify(|status| status.is_close_sent = true);
        let waiting = waiting.into_iter().flat_map(|finishing| finishing.waiting);
        waiting.for_each(|(_, outcome)| outcome.set(StreamDelivery::Lost));
    }

    /// Sets the end of the connection, unless it has one. Returns whether this was the first.
    fn set_end(&self, outcome: TunnelEnded, peer_close_reason: Option<CloseReason>) -> bool {
        self.status.send_if_modified(|status| {
            let is_first = status.end.is_none();
            if is_first {
                status.end = Some(End { outcome, peer_close_reason });
            }
            is_first
        })
    }

    /// Sets `outcome` when the peer has received the stream's last byte, or when that can no longer happen.
    pub(super) fn await_acknowledgement(&self, stream: u32, outcome: &Arc<SendOutcome>) {
        match lock(&self.finishing).as_mut() {
            Some(finishing) => {
                finishing.unacknowledged += 1;
                finishing.waiting.insert(stream, Arc::clone(outcome));
            }
            None => outcome.set(StreamDelivery::Lost),
        }
    }

    /// Notes that the peer has received the last byte of a stream. An unknown stream was dropped meanwhile.
    ///
    /// # Errors
    /// The peer has acknowledged more ends than it can have received. Each end is acknowledged once, so the
    /// number of acknowledgements needs no other limit.
    pub(super) fn acknowledged(&self, stream: u32) -> Result<(), ProtocolViolation> {
        let outcome = match lock(&self.finishing).as_mut() {
            Some(finishing) => {
                let left = finishing.unacknowledged.checked_sub(1);
                finishing.unacknowledged = left.ok_or(ProtocolViolation::FalseAcknowledgement)?;
                finishing.waiting.remove(&stream)
            }
            None => None,
        };
        if let Some(outcome) = outcome {
            outcome.set(StreamDelivery::Acknowledged);
        }
        Ok(())
    }

    /// Forgets a stream whose acknowledgement nobody waits for any more.
    pub(super) fn forget(&self, stream: u32) {
        if let Some(finishing) = lock(&self.finishing).as_mut() {
            finishing.waiting.remove(&stream);
        }
    }

    pub(super) fn round_trip(&self) -> Duration {
        Duration::from_micros(self.round_trip_micros.load(Ordering::Relaxed))
    }

    /// Requests a ping, unless one is unanswered. Returns whether a heartbeat is to be written, too: TCP
    /// retransmits lost bytes, and further heartbeats on a dark path would arrive all at once when it is
    /// back.
    pub(super) fn ping(&self, now: Instant) -> bool {
        let mut pings = lock(&self.pings);
        let is_due = pings.last_heartbeat_at.is_none_or(|last| now >= last + HEARTBEAT_ACTIVE);
        if pings.unanswered_since.is_none() {
            pings.unanswered_since = Some(now);
            self.ping_requested.notify_one();
        } else if !is_due {
            return false;
        }
        pings.last_heartbeat_at = Some(now);
        true
    }

    /// Resolves when a ping is to be sent. Cancel-safe.
    pub(super) async fn ping_requested(&self) {
        self.ping_requested.notified().await;
    }

    /// Notes that the peer has answered the ping. The round trip is smoothed as in RFC 6298, section 2.
    pub(super) fn ping_answered(&self, now: Instant) {
        let mut pings = lock(&self.pings);
        let Some(since) = pings.unanswered_since.take() else {
            return;
        };
        let (before, round_trip) = (self.round_trip(), now.saturating_duration_since(since));
        let smoothed = if before == ROUND_TRIP_INITIAL { round_trip } else { (before * 7 + round_trip) / 8 };
        self.round_trip_micros.store(micros(smoothed), Ordering::Relaxed);
        pings.answer = Some(Answer { at: now, round_trip });
        self.answered.notify_one();
    }

    /// Resolves when there is an answer to take. Cancel-safe.
    pub(super) async fn answered(&self) {
        self.answered.notified().await;
    }

    /// The answer to a ping, once.
    pub(super) fn take_answer(&self) -> Option<Answer> {
        lock(&self.pings).answer.take()
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under the lock leaves a valid state behind: it changes by single assignments.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
