//! The one who writes: takes what waits, in order, and tells who waits that it is written.

mod own;

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};

use tracing::{error, info};

use crate::chain::{Chain, Head};
use crate::checkpoint::{Checkpoint, Checkpoints};
use crate::desk::{Desk, Duty, Entry, Receipt};
use crate::event::{Line, Stage};
use crate::json;
use crate::keys::ChainKey;
use crate::settings::{SYNC_EVERY, Settings};
use crate::sink::{Room, Sink};
use crate::strangers::{Strangers, TELL_EVERY};
use own::Said;

/// A checkpoint is signed behind so many lines, or after so long where there was one.
pub const CHECKPOINT_LINES: u64 = 10_000;
/// The time.
pub const CHECKPOINT_EVERY: Duration = Duration::from_secs(10);

/// Lines that are written at once, and reach the disk at once.
const BATCH_MAX: usize = 64;

/// How often a log that failed is tried again.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// Where a log is when its writer begins.
pub(crate) struct Begun {
    pub(crate) sink: Box<dyn Sink>,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) head: Head,
    /// What is to be said before anything else: exchanges without an end, mostly.
    pub(crate) owed: Vec<Entry>,
    /// Bytes of a line that was not whole.
    pub(crate) cut_bytes: u64,
    /// Held as long as the log is written, so that nobody else does.
    pub(crate) lock: File,
}

/// Writes a log until it is closed.
pub(crate) struct Writer {
    desk: Arc<Desk>,
    server: String,
    mark: String,
    sink: Box<dyn Sink>,
    checkpoints: Checkpoints,
    chain: Chain,
    /// What could not be written and must be, the oldest first. No longer than there are open exchanges and places in the
    /// reserve.
    owed: Vec<Entry>,
    /// What was refused since the log failed.
    refused: u64,
    /// Up to which line there is a checkpoint.
    signed: u64,
    signed_at: Instant,
    synced_at: Instant,
    told_at: Instant,
    tried_at: Instant,
    _lock: File,
}

/// What could not be written, and why.
struct Unwritten {
    error: io::Error,
    entries: Vec<Entry>,
}

impl Writer {
    /// Says that the log is open, ends what has no end, and signs it.
    pub(crate) fn begin(
        settings: &Settings,
        key: &ChainKey,
        begun: Begun,
        desk: Arc<Desk>,
    ) -> io::Result<Self> {
        let Begun { sink, checkpoints, head, owed, cut_bytes, lock } = begun;
        let now = Instant::now();
        let mut writer = Self {
            desk,
            server: settings.server.clone(),
            mark: key.mark(),
            sink,
            checkpoints,
            chain: Chain::new(key, head),
            owed: Vec::new(),
            refused: 0,
            signed: 0,
            signed_at: now,
            synced_at: now,
            told_at: now,
            tried_at: now,
            _lock: lock,
        };
        if writer.sink.is_full() {
            writer.begin_file()?;
        }
        // A file says at its beginning what came before; a stream has none.
        let previous = writer.sink.extent().is_none().then_some(head.code);
        let opened = writer.said(Said::Opened { previous, cut_bytes });
        writer.write_all(std::iter::once(opened).chain(owed)).map_err(|unwritten| unwritten.error)?;
        writer.checkpoint("start")?;
        Ok(writer)
    }

    /// Writes until the log is closed and nothing waits.
    pub(crate) fn run(mut self) {
        let mut goes_on = true;
        while goes_on {
            let entries;
            (entries, goes_on) = self.desk.queue.take(BATCH_MAX, SYNC_EVERY);
            self.put(entries.into_iter().filter(|entry| entry.duty.is_wanted()).collect());
            self.tend();
        }
        let mut last = std::mem::take(&mut self.owed);
        last.extend(own::strangers(self.desk.strangers(Strangers::tell)));
        last.push(self.said(Said::Closed));
        let ended = self.write_all(last.into_iter()).map_err(|unwritten| unwritten.error);
        if let Err(error) = ended.and_then(|()| self.checkpoint("stop")).and_then(|()| self.sink.close()) {
            error!(%error, "the audit log could not be closed");
        }
    }

    pub(crate) fn put(&mut self, entries: Vec<Entry>) {
        if entries.is_empty() {
            return;
        }
        if self.desk.health.failing().is_some() {
            return self.set_aside(entries);
        }
        if let Err(unwritten) = self.write(entries, Room::Usual) {
            let Unwritten { error, mut entries } = unwritten;
            entries.extend(self.fails(&error));
            self.set_aside(entries);
        }
    }

    /// Refuses what may be refused, writes to the reserve what is for it, and keeps the rest.
    fn set_aside(&mut self, entries: Vec<Entry>) {
        let (reserved, others): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| matches!(entry.duty, Duty::Reserved));
        for entry in others {
            match entry.duty {
                // Dropped, it tells who waits.
                Duty::Intent(..) | Duty::Single(..) => self.refused += 1,
                Duty::Aside => {}
                Duty::Owed | Duty::Reserved => self.owed.push(entry),
            }
        }
        if !reserved.is_empty()
            && let Err(unwritten) = self.write(reserved, Room::Reserved)
        {
            self.owed.extend(unwritten.entries);
        }
    }

    /// What is to be done from time to time.
    fn tend(&mut self) {
        if self.desk.health.failing().is_some() {
            if self.tried_at.elapsed() >= RETRY_EVERY {
                self.try_again();
            }
            return;
        }
        if let Err(error) = self.keep_up() {
            let failed = self.fails(&error).into_iter().collect();
            self.set_aside(failed);
        }
    }

    fn keep_up(&mut self) -> io::Result<()> {
        if self.told_at.elapsed() >= TELL_EVERY {
            self.told_at = Instant::now();
            let told = own::strangers(self.desk.strangers(Strangers::tell));
            self.write_all(told).map_err(|unwritten| unwritten.error)?;
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

    /// The log has failed: nothing is taken from now on but what must be.
    fn fails(&mut self, error: &io::Error) -> Option<Entry> {
        self.tried_at = Instant::now();
        if !self.desk.health.fails(&error.to_string()) {
            return None;
        }
        error!(%error, "the audit log cannot be written: no request is served until it can");
        self.desk.counts.failures.fetch_add(1, Relaxed);
        self.desk.counts.reserved.fetch_add(1, Relaxed);
        Some(self.said(Said::Failed { why: error.to_string() }))
    }

    /// Tries to write what is owed; if that goes, the log works again.
    fn try_again(&mut self) {
        self.tried_at = Instant::now();
        let mut owed = std::mem::take(&mut self.owed);
        owed.push(self.said(Said::Healed { refused: self.refused }));
        let written = self.write_all(owed.into_iter());
        let kept = |entry: &Entry| matches!(entry.duty, Duty::Owed | Duty::Reserved);
        match written
            .and_then(|()| self.sink.sync().map_err(|error| Unwritten { error, entries: Vec::new() }))
        {
            Ok(()) => {
                let failed_for = self.desk.health.is_well();
                info!(?failed_for, refused = self.refused, "the audit log is written again");
                self.refused = 0;
            }
            Err(unwritten) => self.owed.extend(unwritten.entries.into_iter().filter(kept)),
        }
    }

    fn write_all(&mut self, entries: impl Iterator<Item = Entry>) -> Result<(), Unwritten> {
        let mut entries = entries.peekable();
        while entries.peek().is_some() {
            let batch = entries.by_ref().take(BATCH_MAX).collect();
            if let Err(mut unwritten) = self.write(batch, Room::Usual) {
                unwritten.entries.extend(entries);
                return Err(unwritten);
            }
        }
        Ok(())
    }

    /// Writes all of `entries`, or none.
    fn write(&mut self, entries: Vec<Entry>, room: Room) -> Result<(), Unwritten> {
        if room == Room::Usual
            && self.sink.is_full()
            && let Err(error) = self.begin_file()
        {
            return Err(Unwritten { error, entries });
        }
        match self.append(&entries, room) {
            Ok(first) => {
                for (sequence, entry) in (first..).zip(entries) {
                    self.tell(entry, sequence);
                }
                Ok(())
            }
            Err(error) => Err(Unwritten { error, entries }),
        }
    }

    /// Seals and appends all of `entries`, or none, and gives the number of the first.
    fn append(&mut self, entries: &[Entry], room: Room) -> io::Result<u64> {
        let (mut chain, mut lines, at) = (self.chain.clone(), Vec::new(), SystemTime::now());
        for Entry { event, completion, .. } in entries {
            let stage = if completion.is_some() { Stage::ResponseComplete } else { Stage::RequestReceived };
            let line = Line { event, stage, completion: completion.as_ref(), sequence: chain.next(), at };
            lines.extend(chain.seal(json::ascii(&line)?));
        }
        self.sink.append(&lines, chain.head(), room)?;
        let first = self.chain.next();
        self.chain = chain;
        self.desk.counts.lines.fetch_add(entries.len() as u64, Relaxed);
        self.desk.counts.bytes.fetch_add(lines.len() as u64, Relaxed);
        Ok(first)
    }

    fn tell(&self, entry: Entry, sequence: u64) {
        match entry.duty {
            // Where nobody waits any more, the receipt is dropped here, and so completes its intent.
            Duty::Intent(told, _place) => drop(told.send(Receipt::of(&self.desk, entry.event, sequence))),
            Duty::Single(told, _place) => drop(told.send(())),
            Duty::Reserved => drop(self.desk.counts.reserved.fetch_sub(1, Relaxed)),
            Duty::Owed | Duty::Aside => {}
        }
    }

    /// Begins the next file: the one before has a checkpoint at its end, and those past the limit go.
    fn begin_file(&mut self) -> io::Result<()> {
        if self.signed != self.chain.head().sequence {
            self.checkpoint("rotation")?;
        }
        let oldest = self.sink.oldest_kept();
        self.sink.begin_file(self.chain.next())?;
        let begun = self.said(Said::FileBegins { previous: self.chain.head().code });
        self.append(&[begun], Room::Usual)?;
        self.desk.counts.files.fetch_add(1, Relaxed);
        let kept = self.sink.oldest_kept();
        if kept != oldest {
            // Said before it is done, so that what is missing was never said to be there.
            self.checkpoint("retention")?;
            self.sink.retire()?;
            self.checkpoints.forget_before(kept)?;
        }
        Ok(())
    }

    /// Brings all lines to the disk, and signs that they are there.
    fn checkpoint(&mut self, why: &str) -> io::Result<()> {
        self.sink.sync()?;
        let head = self.chain.head();
        self.checkpoints.add(Checkpoint {
            number: 0,
            server: self.server.clone(),
            log: self.mark.clone(),
            time: String::new(),
            sequence: head.sequence,
            mac: head.code.to_text(),
            oldest: self.sink.oldest_kept(),
            file: self.sink.extent(),
            why: why.to_owned(),
        })?;
        self.desk.counts.checkpoints.fetch_add(1, Relaxed);
        (self.signed, self.signed_at, self.synced_at) = (head.sequence, Instant::now(), Instant::now());
        Ok(())
    }
}
