//! The writer thread: writes queued lines in order, and answers those who wait for them.

mod log_events;

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};

use tracing::{error, info};

use crate::chain::{Chain, Head};
use crate::checkpoint::{Checkpoint, Checkpoints};
use crate::event::line::{Line, Stage};
use crate::json;
use crate::keys::ChainKey;
use crate::settings::{SYNC_EVERY, Settings};
use crate::shared::{Entry, EntryKind, Receipt, Shared};
use crate::sink::{Sink, Space};
use crate::unauthenticated::{REPORT_EVERY, UnauthenticatedCounts};
use log_events::LogEvent;

/// A checkpoint is signed after this many lines.
pub const CHECKPOINT_LINES: u64 = 10_000;
/// The longest time without a checkpoint while lines are written.
pub const CHECKPOINT_EVERY: Duration = Duration::from_secs(10);

/// Lines that are written in one batch, and synced together.
const BATCH_MAX: usize = 64;

/// The interval at which a failed log is tried again.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// The state of a log when its writer begins.
pub(crate) struct Recovered {
    pub(crate) sink: Box<dyn Sink>,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) head: Head,
    /// Entries to write first: mostly completions of exchanges that the last run left open.
    pub(crate) pending: Vec<Entry>,
    /// Bytes of an incomplete last line, which were removed.
    pub(crate) cut_bytes: u64,
    /// The lock of the directory, held as long as the log is written.
    pub(crate) lock: File,
}

/// Writes a log until it is closed.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    server: String,
    mark: String,
    sink: Box<dyn Sink>,
    checkpoints: Checkpoints,
    chain: Chain,
    /// Entries that must be written and could not be yet, the oldest first. Open exchanges and the slots of
    /// the reserve bound their number.
    pending: Vec<Entry>,
    /// Entries that were refused since the log began to fail.
    refused: u64,
    /// The last line that a checkpoint covers.
    signed: u64,
    signed_at: Instant,
    synced_at: Instant,
    reported_at: Instant,
    tried_at: Instant,
    _lock: File,
}

/// Entries that could not be written, with the error.
struct FailedWrite {
    error: io::Error,
    entries: Vec<Entry>,
}

impl Writer {
    /// Writes that the log is open, completes exchanges of the last run, and signs a checkpoint.
    pub(crate) fn begin(
        settings: &Settings,
        key: &ChainKey,
        recovered: Recovered,
        shared: Arc<Shared>,
    ) -> io::Result<Self> {
        let Recovered { sink, checkpoints, head, pending, cut_bytes, lock } = recovered;
        let now = Instant::now();
        let mut writer = Self {
            shared,
            server: settings.server.clone(),
            mark: key.mark(),
            sink,
            checkpoints,
            chain: Chain::new(key, head),
            pending: Vec::new(),
            refused: 0,
            signed: 0,
            signed_at: now,
            synced_at: now,
            reported_at: now,
            tried_at: now,
            _lock: lock,
        };
        if writer.sink.is_full() {
            writer.begin_file()?;
        }
        // A file names the previous MAC in its first line; a stream names it here.
        let previous = writer.sink.extent().is_none().then_some(head.mac);
        let opened = writer.log_event(LogEvent::Opened { previous, cut_bytes });
        writer.write_all(std::iter::once(opened).chain(pending)).map_err(|failed| failed.error)?;
        writer.checkpoint("start")?;
        Ok(writer)
    }

    /// Writes until the log is closed and the queue is empty.
    pub(crate) fn run(mut self) {
        let mut goes_on = true;
        while goes_on {
            let entries;
            (entries, goes_on) = self.shared.queue.take(BATCH_MAX, SYNC_EVERY);
            self.put(entries.into_iter().filter(|entry| entry.kind.is_wanted()).collect());
            self.maintain();
        }
        let mut last = std::mem::take(&mut self.pending);
        last.extend(log_events::unauthenticated(
            self.shared.unauthenticated(UnauthenticatedCounts::take_report),
        ));
        last.push(self.log_event(LogEvent::Closed));
        let ended = self.write_all(last.into_iter()).map_err(|failed| failed.error);
        if let Err(error) = ended.and_then(|()| self.checkpoint("stop")).and_then(|()| self.sink.close()) {
            error!(%error, "the audit log could not be closed");
        }
    }

    pub(crate) fn put(&mut self, entries: Vec<Entry>) {
        if entries.is_empty() {
            return;
        }
        if self.shared.health.failing().is_some() {
            return self.defer(entries);
        }
        if let Err(failed) = self.write(entries, Space::Normal) {
            let FailedWrite { error, mut entries } = failed;
            entries.extend(self.mark_failing(&error));
            self.defer(entries);
        }
    }

    /// Handles entries while the log fails: refuses those with a waiter, writes reserved ones to the reserve, and keeps
    /// completions for later.
    fn defer(&mut self, entries: Vec<Entry>) {
        let (reserved, others): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| matches!(entry.kind, EntryKind::Reserved));
        for entry in others {
            match entry.kind {
                // Dropping it answers the waiting sender.
                EntryKind::Intent(..) | EntryKind::Single(..) => self.refused += 1,
                EntryKind::BestEffort => {}
                EntryKind::Completion | EntryKind::Reserved => self.pending.push(entry),
            }
        }
        if !reserved.is_empty()
            && let Err(failed) = self.write(reserved, Space::Reserved)
        {
            self.pending.extend(failed.entries);
        }
    }

    /// Does the periodic work: retries, reports, checkpoints and syncs.
    fn maintain(&mut self) {
        if self.shared.health.failing().is_some() {
            if self.tried_at.elapsed() >= RETRY_EVERY {
                self.retry();
            }
            return;
        }
        if let Err(error) = self.run_periodic() {
            let failed = self.mark_failing(&error).into_iter().collect();
            self.defer(failed);
        }
    }

    fn run_periodic(&mut self) -> io::Result<()> {
        if self.reported_at.elapsed() >= REPORT_EVERY {
            self.reported_at = Instant::now();
            let report =
                log_events::unauthenticated(self.shared.unauthenticated(UnauthenticatedCounts::take_report));
            self.write_all(report).map_err(|failed| failed.error)?;
        }
        let new = self.chain.head().sequence - self.signed;
        if new >= CHECKPOINT_LINES {
            self.checkpoint("lines")?;
        } else if new > 0 && self.signed_at.elapsed() >= CHECKPOINT_EVERY {
            self.checkpoint("time")?;
        } else if new > 0 && self.synced_at.elapsed() >= SYNC_EVERY {
            self.sink.sync()?;
            self.synced_at = Instant::now();
        }
        Ok(())
    }

    /// Marks the log as failing: from now on only lines that must be written are kept.
    fn mark_failing(&mut self, error: &io::Error) -> Option<Entry> {
        self.tried_at = Instant::now();
        if !self.shared.health.mark_failing(&error.to_string()) {
            return None;
        }
        error!(%error, "the audit log cannot be written: no request is served until it can");
        self.shared.counts.failures.fetch_add(1, Relaxed);
        self.shared.counts.reserved.fetch_add(1, Relaxed);
        Some(self.log_event(LogEvent::Failed { why: error.to_string() }))
    }

    /// The entry of one of the log's own events.
    fn log_event(&self, event: LogEvent) -> Entry {
        event.into_entry(&self.mark, &self.server)
    }

    /// Tries to write the pending entries; on success the log works again.
    fn retry(&mut self) {
        self.tried_at = Instant::now();
        let mut pending = std::mem::take(&mut self.pending);
        pending.push(self.log_event(LogEvent::Healed { refused: self.refused }));
        let written = self.write_all(pending.into_iter());
        let kept = |entry: &Entry| matches!(entry.kind, EntryKind::Completion | EntryKind::Reserved);
        match written
            .and_then(|()| self.sink.sync().map_err(|error| FailedWrite { error, entries: Vec::new() }))
        {
            Ok(()) => {
                let failed_for = self.shared.health.mark_working();
                info!(?failed_for, refused = self.refused, "the audit log is written again");
                self.refused = 0;
            }
            Err(failed) => self.pending.extend(failed.entries.into_iter().filter(kept)),
        }
    }

    fn write_all(&mut self, entries: impl Iterator<Item = Entry>) -> Result<(), FailedWrite> {
        let mut entries = entries.peekable();
        while entries.peek().is_some() {
            let batch = entries.by_ref().take(BATCH_MAX).collect();
            if let Err(mut failed) = self.write(batch, Space::Normal) {
                failed.entries.extend(entries);
                return Err(failed);
            }
        }
        Ok(())
    }

    /// Writes all of `entries`, or none.
    fn write(&mut self, entries: Vec<Entry>, space: Space) -> Result<(), FailedWrite> {
        if space == Space::Normal
            && self.sink.is_full()
            && let Err(error) = self.begin_file()
        {
            return Err(FailedWrite { error, entries });
        }
        match self.append(&entries, space) {
            Ok(first) => {
                for (sequence, entry) in (first..).zip(entries) {
                    self.answer(entry, sequence);
                }
                Ok(())
            }
            Err(error) => Err(FailedWrite { error, entries }),
        }
    }

    /// Seals and appends all of `entries`, or none; returns the number of the first.
    fn append(&mut self, entries: &[Entry], space: Space) -> io::Result<u64> {
        let (mut chain, mut lines, at) = (self.chain.clone(), Vec::new(), SystemTime::now());
        for Entry { event, completion, .. } in entries {
            let stage = if completion.is_some() { Stage::ResponseComplete } else { Stage::RequestReceived };
            let line = Line { event, stage, completion: completion.as_ref(), sequence: chain.next(), at };
            lines.extend(chain.seal(json::ascii(&line)?));
        }
        self.sink.append(&lines, chain.head(), space)?;
        let first = self.chain.next();
        self.chain = chain;
        self.shared.counts.lines.fetch_add(entries.len() as u64, Relaxed);
        self.shared.counts.bytes.fetch_add(lines.len() as u64, Relaxed);
        Ok(first)
    }

    fn answer(&self, entry: Entry, sequence: u64) {
        match entry.kind {
            // If the sender stopped waiting, the receipt is dropped here, which completes its intent.
            EntryKind::Intent(answer, _slot) => {
                drop(answer.send(Receipt::new(&self.shared, entry.event, sequence)))
            }
            EntryKind::Single(answer, _slot) => drop(answer.send(())),
            EntryKind::Reserved => drop(self.shared.counts.reserved.fetch_sub(1, Relaxed)),
            EntryKind::Completion | EntryKind::BestEffort => {}
        }
    }

    /// Begins the next file: signs a checkpoint at the end of the last one, and removes files beyond the limit.
    fn begin_file(&mut self) -> io::Result<()> {
        if self.signed != self.chain.head().sequence {
            self.checkpoint("rotation")?;
        }
        let oldest = self.sink.oldest_kept();
        self.sink.begin_file(self.chain.next())?;
        let entry = self.log_event(LogEvent::FileBegins { previous: self.chain.head().mac });
        self.append(&[entry], Space::Normal)?;
        self.shared.counts.files.fetch_add(1, Relaxed);
        let kept = self.sink.oldest_kept();
        if kept != oldest {
            // Signed before the removal, so that no checkpoint claims a file that is gone.
            self.checkpoint("retention")?;
            self.sink.retire()?;
            self.checkpoints.forget_before(kept)?;
        }
        Ok(())
    }

    /// Syncs all lines to the disk, and signs a checkpoint for them.
    fn checkpoint(&mut self, why: &str) -> io::Result<()> {
        self.sink.sync()?;
        let head = self.chain.head();
        self.checkpoints.add(Checkpoint {
            number: 0,
            server: self.server.clone(),
            log: self.mark.clone(),
            time: String::new(),
            sequence: head.sequence,
            mac: head.mac.to_text(),
            oldest: self.sink.oldest_kept(),
            file: self.sink.extent(),
            why: why.to_owned(),
        })?;
        self.shared.counts.checkpoints.fetch_add(1, Relaxed);
        (self.signed, self.signed_at, self.synced_at) = (head.sequence, Instant::now(), Instant::now());
        Ok(())
    }
}
