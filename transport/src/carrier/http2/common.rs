//! What the parts of one HTTP/2 connection share: how it ended, and who waits for what.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use proto::CloseCode;
use proto::session::HEARTBEAT_ACTIVE;
use tokio::sync::{Notify, watch};

use super::settings::ROUND_TRIP_AT_FIRST;
use super::stream::Sending;
use crate::error::TunnelEnded;
use crate::probe::Answer;

pub(super) struct Common {
    life: watch::Sender<Life>,
    parting: Mutex<Option<Parting>>,
    parting_asked: Notify,
    /// Streams whose writers have finished and wait for the peer to have taken the last byte; `None` once the connection
    /// is over and nobody will hear of it.
    finishing: Mutex<Option<HashMap<u32, Arc<Sending>>>>,
    round_trip_micros: AtomicU64,
    pinging: Mutex<Pinging>,
    ping_asked: Notify,
    answered: Notify,
}

/// The heartbeats, and how the peer answers.
#[derive(Default)]
struct Pinging {
    /// When one was last written.
    spoke_at: Option<Instant>,
    /// The oldest ping that awaits its answer.
    unanswered_since: Option<Instant>,
    answer: Option<Answer>,
}

/// How far a connection has come.
#[derive(Default)]
struct Life {
    end: Option<End>,
    /// The other side was told, or could not be.
    is_over: bool,
}

#[derive(Clone)]
struct End {
    how: TunnelEnded,
    /// What the peer said when it closed.
    said: Option<Parting>,
}

/// A last word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parting {
    pub(crate) code: CloseCode,
    pub(crate) reason: String,
}

impl Common {
    pub(super) fn new() -> Self {
        Self {
            life: watch::Sender::new(Life::default()),
            parting: Mutex::new(None),
            parting_asked: Notify::new(),
            finishing: Mutex::new(Some(HashMap::new())),
            round_trip_micros: AtomicU64::new(micros(ROUND_TRIP_AT_FIRST)),
            pinging: Mutex::default(),
            ping_asked: Notify::new(),
            answered: Notify::new(),
        }
    }

    /// How the connection ended, if it has.
    pub(super) fn end(&self) -> Option<TunnelEnded> {
        self.life.borrow().end.as_ref().map(|end| end.how.clone())
    }

    /// What the peer said when it closed.
    pub(super) fn said(&self) -> Option<Parting> {
        self.life.borrow().end.as_ref().and_then(|end| end.said.clone())
    }

    /// Resolves when the connection has ended.
    pub(super) async fn ended(&self) -> TunnelEnded {
        let mut life = self.life.subscribe();
        let ended = life.wait_for(|life| life.end.is_some()).await;
        // The sender is ours, so it cannot be gone.
        let end = ended.ok().and_then(|life| life.end.as_ref().map(|end| end.how.clone()));
        end.unwrap_or(TunnelEnded::Lost)
    }

    /// Resolves when the connection is gone, and the other side was told as far as it could be.
    pub(super) async fn over(&self) {
        let _ = self.life.subscribe().wait_for(|life| life.is_over).await;
    }

    /// Closes from this side: at once for everybody here, and as soon as may be for the peer.
    pub(super) fn close(&self, code: CloseCode, reason: &str) {
        let how = TunnelEnded::Carrier("closed by this side".to_owned());
        if self.note_end(how, None) {
            *lock(&self.parting) = Some(Parting { code, reason: reason.to_owned() });
            self.parting_asked.notify_one();
        }
    }

    /// Resolves with what the peer is to be told, once this side has closed. Cancel-safe.
    pub(super) async fn parting(&self) -> Parting {
        loop {
            if let Some(parting) = lock(&self.parting).take() {
                return parting;
            }
            self.parting_asked.notified().await;
        }
    }

    /// The peer closed.
    pub(super) fn closed(&self, said: Parting) {
        self.note_end(TunnelEnded::closed(said.code), Some(said));
    }

    /// Nothing moves any more.
    pub(super) fn finish(&self, how: TunnelEnded) {
        self.note_end(how, None);
        let waiting = lock(&self.finishing).take();
        self.life.send_modify(|life| life.is_over = true);
        waiting.into_iter().flatten().for_each(|(_, sending)| sending.lose());
    }

    /// Notes how it ended, unless that is known; says whether it was not.
    fn note_end(&self, how: TunnelEnded, said: Option<Parting>) -> bool {
        self.life.send_if_modified(|life| {
            let is_first = life.end.is_none();
            if is_first {
                life.end = Some(End { how, said });
            }
            is_first
        })
    }

    /// Has `sending` told when the peer has taken its last byte.
    pub(super) fn await_taking(&self, stream: u32, sending: &Arc<Sending>) {
        match lock(&self.finishing).as_mut() {
            Some(finishing) => drop(finishing.insert(stream, Arc::clone(sending))),
            None => sending.lose(),
        }
    }

    /// The peer has taken the last byte of a stream. One that nobody waits for was dropped meanwhile.
    pub(super) fn taken(&self, stream: u32) {
        let sending = self.forget(stream);
        sending.into_iter().for_each(|sending| sending.take());
    }

    /// Nobody waits for the end of this stream any more.
    pub(super) fn forget(&self, stream: u32) -> Option<Arc<Sending>> {
        lock(&self.finishing).as_mut().and_then(|finishing| finishing.remove(&stream))
    }

    pub(super) fn round_trip(&self) -> Duration {
        Duration::from_micros(self.round_trip_micros.load(Ordering::Relaxed))
    }

    /// Asks the peer for an answer, unless it owes one. Says whether a heartbeat is worth writing, too: TCP repeats what is
    /// lost, and whatever else were written on a dark path would come all at once when it is back.
    pub(super) fn ping(&self, now: Instant) -> bool {
        let mut pinging = lock(&self.pinging);
        let is_due = pinging.spoke_at.is_none_or(|spoke_at| now >= spoke_at + HEARTBEAT_ACTIVE);
        if pinging.unanswered_since.is_none() {
            pinging.unanswered_since = Some(now);
            self.ping_asked.notify_one();
        } else if !is_due {
            return false;
        }
        pinging.spoke_at = Some(now);
        true
    }

    /// Resolves when a ping is to be sent. Cancel-safe.
    pub(super) async fn ping_asked(&self) {
        self.ping_asked.notified().await;
    }

    /// The peer has answered the ping. The round trip is smoothed as RFC 6298 does, section 2.
    pub(super) fn ponged(&self, now: Instant) {
        let mut pinging = lock(&self.pinging);
        let Some(since) = pinging.unanswered_since.take() else {
            return;
        };
        let (before, round_trip) = (self.round_trip(), now.saturating_duration_since(since));
        let smoothed = if before == ROUND_TRIP_AT_FIRST { round_trip } else { (before * 7 + round_trip) / 8 };
        self.round_trip_micros.store(micros(smoothed), Ordering::Relaxed);
        pinging.answer = Some(Answer { at: now, round_trip });
        self.answered.notify_one();
    }

    /// Resolves when there is an answer to take. Cancel-safe.
    pub(super) async fn answered(&self) {
        self.answered.notified().await;
    }

    /// The answer to a ping, once.
    pub(super) fn take_answer(&self) -> Option<Answer> {
        lock(&self.pinging).answer.take()
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whatever panicked under it left single assignments behind.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
