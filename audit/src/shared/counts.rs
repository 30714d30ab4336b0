//! Counters of the log, which become metrics.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// The counters; users and writer increment them.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) lines: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) files: AtomicU64,
    pub(crate) unauthenticated: AtomicU64,
    pub(crate) open: AtomicUsize,
    pub(crate) reserved: AtomicUsize,
}

/// A snapshot of the counters since the log was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// Lines that were written to the log.
    pub lines: u64,
    /// Bytes of all written lines.
    pub bytes: u64,
    /// Requests that were refused because the log could not be written.
    pub refused: u64,
    /// Times that the log began to fail.
    pub failures: u64,
    /// Checkpoints that the writer has signed.
    pub checkpoints: u64,
    /// Files that the writer has begun.
    pub files: u64,
    /// Requests without an authenticated user.
    pub unauthenticated: u64,
    /// Exchanges with a written intent that have not completed yet.
    pub open: usize,
    /// Lines that wait to be written.
    pub waiting: usize,
    /// True if the log cannot be written now.
    pub is_failing: bool,
}

impl Counts {
    pub(crate) fn now(&self, waiting: usize, is_failing: bool) -> Figures {
        Figures {
            lines: self.lines.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            refused: self.refused.load(Relaxed),
            failures: self.failures.load(Relaxed),
            checkpoints: self.checkpoints.load(Relaxed),
            files: self.files.load(Relaxed),
            unauthenticated: self.unauthenticated.load(Relaxed),
            open: self.open.load(Relaxed),
            waiting,
            is_failing,
        }
    }
}
