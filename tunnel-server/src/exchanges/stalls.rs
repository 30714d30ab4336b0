//! Answers that nobody takes: which exchanges wait for their callers, and which of them are ended.
//!
//! What one stalled exchange holds is bounded: a stream's window here, what hyper keeps beside it, and a window at the
//! agent. How many there are is bounded here. An exchange enters itself when it begins and notes, without a lock, when
//! the tunnel has handed something over and when more is asked of it. One attendant looks at all of them, and only while
//! somebody waits.

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
use transport::{STREAM_WINDOW_BYTES, TunnelStream, Verdict};

use super::record::Record;
use crate::metrics;
use budget::{Budget, Waiting};

/// What callers who do not read may hold of one tunnel's bytes, and of all tunnels'. Each of them is taken for a whole
/// stream's window, whatever it holds.
const TUNNEL_STALLED_BYTES_MAX: usize = 32 * 1024 * 1024;
const STALLED_BYTES_MAX: usize = 512 * 1024 * 1024;

/// The same in exchanges.
const BUDGET: Budget = Budget {
    per_tunnel: TUNNEL_STALLED_BYTES_MAX / STREAM_WINDOW_BYTES as usize,
    in_all: STALLED_BYTES_MAX / STREAM_WINDOW_BYTES as usize,
};

/// How often the exchanges are looked at while somebody waits for a caller.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Stands where a time could, and says that no caller is waited for.
const NOBODY: u64 = 0;

/// All exchanges whose callers may be waited for. Clones are the same. No longer than the gateway's own limit of
/// exchanges lets it become.
#[derive(Clone)]
pub(crate) struct Stalls(Arc<Table>);

struct Table {
    /// Times are counted from here.
    began: Instant,
    entries: Mutex<HashMap<u64, Arc<Entry>>>,
    next_number: AtomicU64,
    /// Whether the attendant will look again by itself.
    is_watched: AtomicBool,
    wanted: Notify,
}

/// Which exchange a line of the log is about; nothing here names a person.
pub(crate) struct About {
    /// Its tunnel's number in the registry.
    pub(crate) tunnel: u64,
    pub(crate) cluster: ClusterId,
    pub(crate) verb: &'static str,
    pub(crate) audit_id: String,
    pub(crate) record: Record,
}

struct Entry {
    about: About,
    verdict: Verdict,
    /// Whether the tunnel has brought anything yet.
    has_begun: AtomicBool,
    /// Since when the caller is waited for, in milliseconds of the table; [`NOBODY`] while the tunnel is.
    since: AtomicU64,
    ended: Notify,
    table: Arc<Table>,
}

/// How an exchange's caller takes what comes. Clones are about the same exchange.
#[derive(Clone)]
pub(crate) struct Taking(Arc<Entry>);

/// A stream of an exchange that notes whether what it brings is asked for.
pub(crate) struct Observed {
    stream: TunnelStream,
    taking: Taking,
    _entered: Entered,
}

/// Proof that an exchange stands in the table, until it is dropped.
struct Entered {
    table: Arc<Table>,
    number: u64,
}

impl Stalls {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Table {
            began: Instant::now(),
            entries: Mutex::default(),
            next_number: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
            wanted: Notify::new(),
        }))
    }

    /// Enters an exchange with the stream that carries it.
    pub(crate) fn observe(&self, stream: TunnelStream, about: About) -> Observed {
        let table = Arc::clone(&self.0);
        let number = table.next_number.fetch_add(1, Ordering::Relaxed);
        let entry = Arc::new(Entry {
            about,
            verdict: stream.verdict(),
            has_begun: AtomicBool::new(false),
            since: AtomicU64::new(NOBODY),
            ended: Notify::new(),
            table: Arc::clone(&table),
        });
        table.entries().insert(number, Arc::clone(&entry));
        Observed { stream, taking: Taking(entry), _entered: Entered { table, number } }
    }

    /// Ends what is past the budget, as long as the server runs.
    pub(crate) async fn watch(self) {
        loop {
            self.0.wanted.notified().await;
            loop {
                sleep(LOOK_EVERY).await;
                // Before the look: whoever begins to wait behind it says so.
                self.0.is_watched.store(false, Ordering::SeqCst);
                if !self.look() {
                    break;
                }
            }
        }
    }

    /// Ends all exchanges that run now, for this reason.
    pub(crate) fn end_all(&self, why: EndReason) {
        for entry in self.0.entries().values() {
            entry.about.record.ends(why);
            entry.ended.notify_one();
        }
    }

    /// Ends what is past the budget now, and says whether anybody waits.
    fn look(&self) -> bool {
        let now = self.0.now();
        let mut anybody = false;
        let mut waiting = Vec::new();
        for (number, entry) in self.0.entries().iter() {
            let since = entry.since.load(Ordering::SeqCst);
            anybody |= since != NOBODY;
            let waited = Duration::from_millis(now.saturating_sub(since));
            if since != NOBODY && waited >= budget::HASTE {
                waiting.push(Waiting { exchange: *number, tunnel: entry.about.tunnel, waited });
            }
        }
        let stalled = waiting.iter().filter(|one| one.is_stalled()).count();
        let excess = budget::excess(waiting, BUDGET);
        metrics::slow_readers(stalled - excess.iter().filter(|one| one.is_stalled()).count());
        for excess in excess {
            if let Some(entry) = self.0.entries().remove(&excess.exchange) {
                entry.end(excess.waited);
            }
        }
        anybody
    }
}

impl Table {
    /// Never [`NOBODY`].
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<u64, Arc<Entry>>> {
        // A panic under this lock left whole entries behind.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// The tunnel has brought something: until more is asked for, the caller is waited for.
    fn brought(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
        self.since.store(self.table.now(), Ordering::SeqCst);
        if !self.table.is_watched.load(Ordering::SeqCst)
            && !self.table.is_watched.swap(true, Ordering::SeqCst)
        {
            self.table.wanted.notify_one();
        }
    }

    fn end(&self, waited: Duration) {
        let About { cluster, verb, audit_id, .. } = &self.about;
        metrics::slow_reader_terminated();
        info!(%cluster, verb, audit_id, ?waited, "ended an exchange whose caller does not read its answer");
        self.about.record.ends(EndReason::Limit);
        self.verdict.set(AbortCode::CallerStalled);
        self.ended.notify_one();
    }
}

impl Taking {
    /// Whether one byte of the answer has come.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.has_begun.load(Ordering::Relaxed)
    }

    /// Everything that the tunnel brought was taken off it: the tunnel is waited for, as long as it likes, or nobody is.
    pub(crate) fn nothing_left(&self) {
        self.0.since.store(NOBODY, Ordering::Relaxed);
    }

    /// The caller has taken some of what the tunnel brought earlier.
    pub(crate) fn progressed(&self) {
        let since = self.0.since.load(Ordering::Relaxed);
        if since != NOBODY {
            // Another value means that the stream has spoken meanwhile, which knows better.
            let now = self.0.table.now();
            let _ = self.0.since.compare_exchange(since, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Resolves when the exchange is to be ended: its stream is to be dropped, which aborts it with the right code.
    /// Cancel-safe.
    pub(crate) async fn ended(&self) {
        let record = &self.0.about.record;
        // Both arms are cancel-safe: what was said stays said.
        tokio::select! {
            () = self.0.ended.notified() => {}
            why = record.ended() => record.ends_by(why),
        }
    }
}

impl Observed {
    pub(crate) fn verdict(&self) -> Verdict {
        self.stream.verdict()
    }

    pub(crate) fn taking(&self) -> Taking {
        self.taking.clone()
    }

    /// The stream, no longer observed.
    pub(crate) fn into_inner(self) -> TunnelStream {
        self.stream
    }
}

impl AsyncRead for Observed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, into);
        // Behind an end, or an error, nothing stands that anybody could leave lying.
        if into.filled().len() > before {
            self.taking.0.brought();
        } else {
            self.taking.nothing_left();
        }
        read
    }
}

impl AsyncWrite for Observed {
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

impl Drop for Entered {
    fn drop(&mut self) {
        self.table.entries().remove(&self.number);
    }
}
