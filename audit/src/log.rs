//! The public handle of the audit log, by which requests are written.

use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::timeout;
use tracing::warn;

use crate::event::{Completion, Event};
use crate::keys::{ChainKey, SigningKey};
use crate::recovery;
use crate::settings::{OpenError, Settings};
use crate::shared::{Entry, EntryKind, Figures, Receipt, Shared};
use crate::unauthenticated::FailureCause;
use crate::writer::{Recovered, Writer};

/// The number of lines that may wait for the disk's reserve.
pub const RESERVED_MAX: usize = 256;

/// Longest wait for a line to be written. After it the log counts as failing, whatever the cause.
pub const INTENT_MAX: Duration = Duration::from_secs(5);

/// Longest wait for the last lines when the log is closed.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// A handle of the audit log. Clones share the log. [`Log::off`] accepts everything and writes nothing.
#[derive(Clone)]
pub struct Log(Option<Arc<Shared>>);

/// Keeps the writer thread running. Dropping it writes all queued lines and a last checkpoint.
#[must_use = "the log is closed when this is dropped"]
pub struct WriterGuard {
    shared: Arc<Shared>,
    ended: mpsc::Receiver<()>,
}

/// The reason why a line was not written. Its request must not be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuditError {
    /// The log cannot be written.
    #[error("the audit log cannot be written: {0}")]
    Failing(String),
    /// The log is closed, because this server stops.
    #[error("the audit log is closed, because this server stops")]
    Closed,
    /// [`RESERVED_MAX`] lines wait for the reserve already.
    #[error("{RESERVED_MAX} lines of the audit log wait that must be written before others")]
    Full,
}

impl Log {
    /// A log that writes nothing.
    #[must_use]
    pub fn off() -> Self {
        Self(None)
    }

    /// Opens the log: verifies existing files, completes exchanges that the last run left open, and starts the writer.
    ///
    /// Blocks, because it reads all files once.
    ///
    /// # Errors
    /// [`OpenError`]: no line can be written, so no request should be served.
    pub fn open(
        settings: &Settings,
        chain: &ChainKey,
        signing: &SigningKey,
    ) -> Result<(Self, WriterGuard), OpenError> {
        Self::start(settings, chain, recovery::recover(settings, chain, signing)?)
    }

    fn start(
        settings: &Settings,
        chain: &ChainKey,
        recovered: Recovered,
    ) -> Result<(Self, WriterGuard), OpenError> {
        let shared = Arc::new(Shared::new());
        let log = Self(Some(Arc::clone(&shared)));
        let failed = |act| {
            let path = settings.directory.clone();
            move |source| OpenError::Io { act, path, source }
        };
        let writer =
            Writer::begin(settings, chain, recovered, Arc::clone(&shared)).map_err(failed("write to"))?;
        let (ending, ended) = mpsc::channel();
        let written = move || {
            writer.run();
            // A process that is ending has no receiver any more.
            let _ = ending.send(());
        };
        thread::Builder::new()
            .name("audit".to_owned())
            .spawn(written)
            .map_err(failed("start a thread for"))?;
        Ok((log, WriterGuard { shared, ended }))
    }

    /// Writes an intent: that a request is about to be served. Returns once it is written. Cancel-safe: after cancellation
    /// either nothing is written, or the completion too.
    ///
    /// # Errors
    /// [`AuditError`]: the request must not be served.
    pub async fn intent(&self, event: Event) -> Result<Receipt, AuditError> {
        if self.0.is_none() {
            return Ok(Receipt::unwritten(event));
        }
        self.enqueue(Arc::new(event), None, EntryKind::Intent).await
    }

    /// Writes a single line for a request that needs no intent, such as a refused one. Returns once it is written.
    ///
    /// # Errors
    /// [`AuditError`]: the line was not written.
    pub async fn write(&self, event: Event, completion: Completion) -> Result<(), AuditError> {
        if self.0.is_none() {
            return Ok(());
        }
        self.enqueue(Arc::new(event), Some(completion), EntryKind::Single).await
    }

    /// Queues a line that must be written even to a full disk: a revocation, or a change of readiness. Does not wait.
    ///
    /// # Errors
    /// [`AuditError::Full`] or [`AuditError::Closed`]. The caller may act nevertheless.
    pub fn write_reserved(&self, event: Event, completion: Completion) -> Result<(), AuditError> {
        let Some(shared) = &self.0 else { return Ok(()) };
        if shared.counts.reserved.fetch_add(1, Relaxed) >= RESERVED_MAX {
            shared.counts.reserved.fetch_sub(1, Relaxed);
            return Err(AuditError::Full);
        }
        let entry = Entry { event: Arc::new(event), completion: Some(completion), kind: EntryKind::Reserved };
        if shared.queue.push(entry) { Ok(()) } else { Err(AuditError::Closed) }
    }

    /// Counts a request without an authenticated user. Does not wait, and occupies no slot of the queue.
    pub fn unauthenticated(&self, source: IpAddr, cause: FailureCause) {
        if let Some(shared) = &self.0 {
            shared.unauthenticated(|counts| counts.count(source, cause));
            shared.counts.unauthenticated.fetch_add(1, Relaxed);
        }
    }

    /// Resolves once the log has not been writable for `limit` without a break. Cancel-safe.
    pub async fn failed_for(&self, limit: Duration) {
        match &self.0 {
            Some(shared) => shared.health.failed_for(limit).await,
            None => std::future::pending().await,
        }
    }

    /// Resolves once the log is failing, or works, depending on `failing`. Cancel-safe.
    pub async fn becomes(&self, failing: bool) {
        match &self.0 {
            Some(shared) => shared.health.becomes(failing).await,
            None if failing => std::future::pending().await,
            None => {}
        }
    }

    /// The error for which the log cannot be written now, if it cannot.
    #[must_use]
    pub fn failing(&self) -> Option<String> {
        self.0.as_ref()?.health.failing()
    }

    /// The current counters; `None` for a log that writes nothing.
    #[must_use]
    pub fn figures(&self) -> Option<Figures> {
        let shared = self.0.as_ref()?;
        Some(shared.counts.now(shared.queue.len(), shared.health.failing().is_some()))
    }

    async fn enqueue<T>(
        &self,
        event: Arc<Event>,
        completion: Option<Completion>,
        kind: impl FnOnce(oneshot::Sender<T>, OwnedSemaphorePermit) -> EntryKind,
    ) -> Result<T, AuditError> {
        let shared = self.0.as_ref().ok_or(AuditError::Closed)?;
        let refused = |shared: &Shared| {
            shared.counts.refused.fetch_add(1, Relaxed);
            shared.health.failing().map_or(AuditError::Closed, AuditError::Failing)
        };
        if shared.health.failing().is_some() {
            return Err(refused(shared));
        }
        let accepted = async {
            let slot = Arc::clone(&shared.slots).acquire_owned().await.ok()?;
            let (answer, written) = oneshot::channel();
            let is_queued = shared.queue.push(Entry { event, completion, kind: kind(answer, slot) });
            if is_queued { written.await.ok() } else { None }
        };
        match timeout(INTENT_MAX, accepted).await {
            Ok(Some(written)) => Ok(written),
            Ok(None) => Err(refused(shared)),
            Err(_) => {
                let why = format!("no line was written within {} s", INTENT_MAX.as_secs());
                if shared.health.mark_failing(&why) {
                    shared.counts.failures.fetch_add(1, Relaxed);
                }
                Err(refused(shared))
            }
        }
    }
}

impl Drop for WriterGuard {
    fn drop(&mut self) {
        self.shared.queue.close();
        if self.ended.recv_timeout(CLOSE_MAX).is_err() {
            warn!("the audit log was not closed in time: its last lines may have no checkpoint");
        }
    }
}

#[cfg(test)]
mod tests;
