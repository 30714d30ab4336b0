//! Measures when the first byte comes after a link's return.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// One direction of one load.
#[derive(Clone, Default)]
pub(crate) struct Watch(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    reopened: Option<Instant>,
    first: Option<Duration>,
    bytes: u64,
}

impl Watch {
    pub(crate) fn reopened(&self, at: Instant) {
        self.0.lock().unwrap().reopened = Some(at);
    }

    /// So many bytes have come.
    pub(crate) fn saw(&self, bytes: u64) {
        let mut seen = self.0.lock().unwrap();
        seen.bytes += bytes;
        if let (Some(reopened), None) = (seen.reopened, seen.first) {
            seen.first = Some(reopened.elapsed());
        }
    }

    pub(crate) fn first(&self) -> Option<Duration> {
        self.0.lock().unwrap().first
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.lock().unwrap().bytes
    }
}
