//! What the log counts of itself.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// What is counted, by whoever does it.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) lines: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) files: AtomicU64,
    pub(crate) strangers: AtomicU64,
    pub(crate) open: AtomicUsize,
    pub(crate) reserved: AtomicUsize,
}

/// What was counted since the log was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// Lines that were written.
    pub lines: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What was not done because it could not be recorded.
    pub refused: u64,
    /// How often the log failed.
    pub failures: u64,
    /// Checkpoints that were signed.
    pub checkpoints: u64,
    /// Files that were begun.
    pub files: u64,
    /// Requests of those who did not prove who they are.
    pub strangers: u64,
    /// Exchanges whose intent is written and whose completion is not yet due.
    pub open: usize,
    /// Lines that wait.
    pub waiting: usize,
    /// Whether the log cannot be written now.
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
            strangers: self.strangers.load(Relaxed),
            open: self.open.load(Relaxed),
            waiting,
            is_failing,
        }
    }
}
