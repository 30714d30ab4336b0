//! The slow-reader limit: ends exchanges whose callers do not read their answers, once too many of them hold
//! memory.
//!
//! The memory of one slow reader is bounded by a stream's window here, hyper's buffer, and a window at the
//! agent. This module bounds their number. An exchange registers itself when it begins. Without a lock it
//! notes when the tunnel has delivered data and when the caller asks for more. One background task checks all
//! exchanges, and only while one of them waits for its caller.

mod budget;

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use audit::EndReason;
use proto::{AbortCode, ClusterId};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::info;
use transport::{AbortCodes, STREAM_WINDOW_BYTES, TunnelStream};

use super::audit::AuditEntry;
use crate::metrics;
use crate::registry::TunnelNumber;
use budget::{Budget, WaitingReader};

/// Most unread bytes of slow readers on one tunnel, and on all tunnels together. Each slow reader counts as a
/// full stream window, whatever it holds.
const TUNNEL_UNREAD_BYTES_MAX: usize = 32 * 1024 * 1024;
const UNREAD_BYTES_MAX: usize = 512 * 1024 * 1024;

/// The same limits as numbers of exchanges.
const BUDGET: Budget = Budget {
    per_tunnel: TUNNEL_UNREAD_BYTES_MAX / STREAM_WINDOW_BYTES as usize,
    in_all: UNREAD_BYTES_MAX / STREAM_WINDOW_BYTES as usize,
};

/// Interval between two checks while an exchange waits for its caller.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// The value of `since` while the exchange does not wait for its caller.
const NOT_WAITING: u64 = 0;

/// All exchanges that have a stream. Clones share one table. Its size is bounded by the gateway's limit of
/// exchanges.
#[derive(Clone)]
pub(crate) struct SlowReaders(Arc<SlowReaderTable>);

struct SlowReaderTable {
    /// The zero of all times in the table.
    began: Instant,
    entries: Mutex<HashMap<u64, Arc<ReaderEntry>>>,
    next_number: AtomicU64,
    /// True if the background task will check again without being woken.
    is_watched: AtomicBool,
    /// Wakes the background task when an exchange begins to wait.
    wake: Notify,
}

/// An exchange as the log names it. No field names a person.
pub(crate) struct ExchangeInfo {
    /// The tunnel that carries the exchange: slow readers have a budget for each.
    pub(crate) tunnel: TunnelNumber,
    pub(crate) cluster: ClusterId,
    pub(crate) verb: &'static str,
    pub(crate) audit_id: String,
    pub(crate) audit: AuditEntry,
}

struct ReaderEntry {
    info: ExchangeInfo,
    abort_codes: AbortCodes,
    /// True if a byte of the answer has arrived.
    has_begun: AtomicBool,
    /// The time since which the exchange waits for its caller, in milliseconds of the table, or
    /// [`NOT_WAITING`].
    since: AtomicU64,
    ended: Notify,
    table: Arc<SlowReaderTable>,
}

/// The progress of a caller that reads an answer. Clones belong to the same exchange.
#[derive(Clone)]
pub(crate) struct ReadProgress(Arc<ReaderEntry>);

/// The stream of an exchange, which notes when data arrives and when the caller asks for more.
pub(crate) struct ObservedStream {
    stream: TunnelStream,
    progress: ReadProgress,
    _guard: ReaderGuard,
}

/// Removes the exchange from the table when it is dropped.
struct ReaderGuard {
    table: Arc<SlowReaderTable>,
    number: u64,
}

impl SlowReaders {
    pub(crate) fn new() -> Self {
        Self(Arc::new(SlowReaderTable {
            began: Instant::now(),
            entries: Mutex::default(),
            next_number: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
            wake: Notify::new(),
        }))
    }

    /// Adds an exchange with the stream that carries it.
    pub(crate) fn observe(&self, stream: TunnelStream, info: ExchangeInfo) -> ObservedStream {
        let table = Arc::clone(&self.0);
        let number = table.next_number.fetch_add(1, Ordering::Relaxed);
        let entry = Arc::new(ReaderEntry {
            info,
            abort_codes: stream.abort_codes(),
            has_begun: AtomicBool::new(false),
            since: AtomicU64::new(NOT_WAITING),
            ended: Notify::new(),
            table: Arc::clone(&table),
        });
        table.entries().insert(number, Arc::clone(&entry));
        ObservedStream { stream, progress: ReadProgress(entry), _guard: ReaderGuard { table, number } }
    }

    /// Ends the slowest readers beyond the budget. Runs as long as the server does.
    pub(crate) async fn end_excess(self) {
        loop {
            self.0.wake.notified().await;
            loop {
                sleep(CHECK_EVERY).await;
                // Before the check: an exchange that begins to wait after it wakes this task.
                self.0.is_watched.store(false, Ordering::SeqCst);
                if !self.check() {
                    break;
                }
            }
        }
    }

    /// Ends all exchanges that have a stream, for the reason `why`.
    pub(crate) fn end_all(&self, why: EndReason) {
        for entry in self.0.entries().values() {
            entry.info.audit.set_end(why);
            entry.ended.notify_one();
        }
    }

    /// Ends the slowest readers beyond the budget. Returns whether any exchange waits for its caller.
    fn check(&self) -> bool {
        let now = self.0.now();
        let mut is_any_waiting = false;
        let mut waiting = Vec::new();
        for (number, entry) in self.0.entries().iter() {
            let since = entry.since.load(Ordering::SeqCst);
            is_any_waiting |= since != NOT_WAITING;
            let waited = Duration::from_millis(now.saturating_sub(since));
            if since != NOT_WAITING && waited >= budget::SLOW_AFTER_OVERLOADED {
                waiting.push(WaitingReader { exchange: *number, tunnel: entry.info.tunnel, waited });
            }
        }
        let slow = waiting.iter().filter(|one| one.is_slow()).count();
        let excess = budget::excess(waiting, BUDGET);
        metrics::slow_readers(slow - excess.iter().filter(|one| one.is_slow()).count());
        for excess in excess {
            if let Some(entry) = self.0.entries().remove(&excess.exchange) {
                entry.end(excess.waited);
            }
        }
        is_any_waiting
    }
}

impl SlowReaderTable {
    /// Milliseconds since the table began, never [`NOT_WAITING`].
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<u64, Arc<ReaderEntry>>> {
        // A panic under this lock leaves no entry half written.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReaderEntry {
    /// Notes that data has arrived: the exchange waits for its caller until the caller asks for more.
    fn data_arrived(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
        self.since.store(self.table.now(), Ordering::SeqCst);
        if !self.table.is_watched.load(Ordering::SeqCst)
            && !self.table.is_watched.swap(true, Ordering::SeqCst)
        {
            self.table.wake.notify_one();
        }
    }

    /// Ends the exchange because its caller has not read for `waited`.
    fn end(&self, waited: Duration) {
        let ExchangeInfo { cluster, verb, audit_id, .. } = &self.info;
        metrics::slow_reader_terminated();
        info!(%cluster, verb, audit_id, ?waited, "ended an exchange whose caller does not read its answer");
        self.info.audit.set_end(EndReason::Limit);
        self.abort_codes.set(AbortCode::SlowReader);
        self.ended.notify_one();
    }
}

impl ReadProgress {
    /// Returns true if a byte of the answer has arrived.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.has_begun.load(Ordering::Relaxed)
    }

    /// Notes that the caller has taken all data that has arrived. The exchange does not wait for its caller.
    pub(crate) fn caught_up(&self) {
        self.0.since.store(NOT_WAITING, Ordering::Relaxed);
    }

    /// Notes that the caller has taken some data, which restarts its time if the exchange waits for it.
    pub(crate) fn progressed(&self) {
        let since = self.0.since.load(Ordering::Relaxed);
        if since != NOT_WAITING {
            // A changed value was stored by the stream meanwhile, and is newer.
            let now = self.0.table.now();
            let _ = self.0.since.compare_exchange(since, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Ends the exchange, because its answer breaks HTTP.
    pub(crate) fn end(&self) {
        self.0.ended.notify_one();
    }

    /// Resolves when the exchange is to be ended. The stream is then to be dropped, which aborts it with the
    /// right code. Cancel-safe.
    pub(crate) async fn ended(&self) {
        let audit = &self.0.info.audit;
        // Both arms are cancel-safe: a notification stays, and so does a termination.
        tokio::select! {
            () = self.0.ended.notified() => {}
            why = audit.terminated() => audit.set_terminated(why),
        }
    }
}

impl ObservedStream {
    /// The number of the stream on its tunnel.
    pub(crate) fn number(&self) -> u64 {
        self.stream.number()
    }

    /// The stream's abort code, which stays readable after the stream is gone.
    pub(crate) fn abort_codes(&self) -> AbortCodes {
        self.stream.abort_codes()
    }

    /// The progress of the caller, for the body that passes the answer on.
    pub(crate) fn read_progress(&self) -> ReadProgress {
        self.progress.clone()
    }

    /// Returns the stream and removes the exchange from the table.
    pub(crate) fn into_inner(self) -> TunnelStream {
        self.stream
    }
}

impl AsyncRead for ObservedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, into);
        // After an end or an error there is nothing left that the caller could leave unread.
        if into.filled().len() > before {
            self.progress.0.data_arrived();
        } else {
            self.progress.caught_up();
        }
        read
    }
}

impl AsyncWrite for ObservedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Drop for ReaderGuard {
    fn drop(&mut self) {
        self.table.entries().remove(&self.number);
    }
}
