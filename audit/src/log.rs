//! The log as its users see it.

use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::timeout;
use tracing::warn;

use crate::desk::{Desk, Duty, Entry, Figures, Receipt};
use crate::event::{Completion, Event};
use crate::keys::{ChainKey, SigningKey};
use crate::recovery;
use crate::settings::{OpenError, Settings};
use crate::strangers::Why;
use crate::writer::{Begun, Writer};

/// Of what uses the reserve, so many lines may wait.
pub const RESERVED_MAX: usize = 256;

/// Longest wait for a line to be written. Beyond it the log counts as failed, whatever holds it up.
pub const INTENT_MAX: Duration = Duration::from_secs(5);

/// Longest wait for what is still to be written when the log is closed.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// A log. Clones are the same; without a log behind it, all is accepted and nothing written.
#[derive(Clone)]
pub struct Log(Option<Arc<Desk>>);

/// The thread that writes. Dropped, it writes what waits, and a last checkpoint.
#[must_use = "the log is closed when this is dropped"]
pub struct Running {
    desk: Arc<Desk>,
    ended: mpsc::Receiver<()>,
}

/// Why something was not recorded, and so must not be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotRecorded {
    /// The log cannot be written.
    #[error("the audit log cannot be written: {0}")]
    Failing(String),
    /// The log is closed.
    #[error("the audit log is closed, because this server stops")]
    Closed,
    /// As many lines that must be written wait as may.
    #[error("{RESERVED_MAX} lines of the audit log wait that must be written before others")]
    Full,
}

impl Log {
    /// A log that writes nothing.
    #[must_use]
    pub fn off() -> Self {
        Self(None)
    }

    /// Opens the log, reads what is there, closes exchanges of which no end was written, and starts to write.
    ///
    /// Blocks: all that is kept is read once.
    ///
    /// # Errors
    /// [`OpenError`]: nothing can be recorded, and so nothing should be done.
    pub fn open(
        settings: &Settings,
        chain: &ChainKey,
        signing: &SigningKey,
    ) -> Result<(Self, Running), OpenError> {
        Self::start(settings, chain, recovery::recover(settings, chain, signing)?)
    }

    fn start(settings: &Settings, chain: &ChainKey, begun: Begun) -> Result<(Self, Running), OpenError> {
        let desk = Arc::new(Desk::new());
        let log = Self(Some(Arc::clone(&desk)));
        let failed = |act| {
            let path = settings.directory.clone();
            move |source| OpenError::Io { act, path, source }
        };
        let writer = Writer::begin(settings, chain, begun, Arc::clone(&desk)).map_err(failed("write to"))?;
        let (ending, ended) = mpsc::channel();
        let written = move || {
            writer.run();
            // Nobody waits for it where the process is ending anyway.
            let _ = ending.send(());
        };
        thread::Builder::new()
            .name("audit".to_owned())
            .spawn(written)
            .map_err(failed("start a thread for"))?;
        Ok((log, Running { desk, ended }))
    }

    /// Records that something is about to be done, and waits until that is written. Cancel-safe: where nobody waits any
    /// more, nothing is written, or the completion is too.
    ///
    /// # Errors
    /// [`NotRecorded`]: it must not be done.
    pub async fn intent(&self, event: Event) -> Result<Receipt, NotRecorded> {
        if self.0.is_none() {
            return Ok(Receipt::of_nothing(event));
        }
        self.written(Arc::new(event), None, Duty::Intent).await
    }

    /// Records something that is over when it is said, and waits until that is written.
    ///
    /// # Errors
    /// [`NotRecorded`].
    pub async fn record(&self, event: Event, completion: Completion) -> Result<(), NotRecorded> {
        if self.0.is_none() {
            return Ok(());
        }
        self.written(Arc::new(event), Some(completion), Duty::Single).await
    }

    /// Records what must be written even where the disk is full, a revocation or a change of readiness, and waits for
    /// nothing.
    ///
    /// # Errors
    /// [`NotRecorded::Full`] or [`NotRecorded::Closed`]. It is right to do it all the same.
    pub fn reserved(&self, event: Event, completion: Completion) -> Result<(), NotRecorded> {
        let Some(desk) = &self.0 else { return Ok(()) };
        if desk.counts.reserved.fetch_add(1, Relaxed) >= RESERVED_MAX {
            desk.counts.reserved.fetch_sub(1, Relaxed);
            return Err(NotRecorded::Full);
        }
        let entry = Entry { event: Arc::new(event), completion: Some(completion), duty: Duty::Reserved };
        if desk.queue.push(entry) { Ok(()) } else { Err(NotRecorded::Closed) }
    }

    /// Counts a request of somebody who did not prove who they are. Waits for nothing, and takes nobody's place.
    pub fn stranger(&self, source: IpAddr, why: Why) {
        if let Some(desk) = &self.0 {
            desk.strangers(|strangers| strangers.count(source, why));
            desk.counts.strangers.fetch_add(1, Relaxed);
        }
    }

    /// Resolves once the log has not been writable for `limit` without a break. Cancel-safe.
    pub async fn failed_for(&self, limit: Duration) {
        match &self.0 {
            Some(desk) => desk.health.failed_for(limit).await,
            None => std::future::pending().await,
        }
    }

    /// Resolves once the log is failing, or works, as `failing` says. Cancel-safe.
    pub async fn becomes(&self, failing: bool) {
        match &self.0 {
            Some(desk) => desk.health.becomes(failing).await,
            None if failing => std::future::pending().await,
            None => {}
        }
    }

    /// Why the log cannot be written now, if it cannot.
    #[must_use]
    pub fn failing(&self) -> Option<String> {
        self.0.as_ref()?.health.failing()
    }

    /// What was counted; `None` where nothing is written.
    #[must_use]
    pub fn figures(&self) -> Option<Figures> {
        let desk = self.0.as_ref()?;
        Some(desk.counts.now(desk.queue.len(), desk.health.failing().is_some()))
    }

    async fn written<T>(
        &self,
        event: Arc<Event>,
        completion: Option<Completion>,
        duty: impl FnOnce(oneshot::Sender<T>, OwnedSemaphorePermit) -> Duty,
    ) -> Result<T, NotRecorded> {
        let desk = self.0.as_ref().ok_or(NotRecorded::Closed)?;
        let refused = |desk: &Desk| {
            desk.counts.refused.fetch_add(1, Relaxed);
            desk.health.failing().map_or(NotRecorded::Closed, NotRecorded::Failing)
        };
        if desk.health.failing().is_some() {
            return Err(refused(desk));
        }
        let accepted = async {
            let place = Arc::clone(&desk.places).acquire_owned().await.ok()?;
            let (told, written) = oneshot::channel();
            let is_queued = desk.queue.push(Entry { event, completion, duty: duty(told, place) });
            if is_queued { written.await.ok() } else { None }
        };
        match timeout(INTENT_MAX, accepted).await {
            Ok(Some(written)) => Ok(written),
            Ok(None) => Err(refused(desk)),
            Err(_) => {
                let why = format!("no line was written within {} s", INTENT_MAX.as_secs());
                if desk.health.fails(&why) {
                    desk.counts.failures.fetch_add(1, Relaxed);
                }
                Err(refused(desk))
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.desk.queue.close();
        if self.ended.recv_timeout(CLOSE_MAX).is_err() {
            warn!("the audit log was not closed in time: its last lines may have no checkpoint");
        }
    }
}

#[cfg(test)]
mod tests;
