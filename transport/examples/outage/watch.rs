//! When the first byte came after a link's return.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// One direction of one load.
#[derive(Clone, Default)]
pub(crate) struct Watch(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    reopened: Option<Instant>,
    first: Option<Duration>,
    any: bool,
}

impl Watch {
    pub(crate) fn reopened(&self, at: Instant) {
        self.0.lock().unwrap().reopened = Some(at);
    }

    /// Something has come.
    pub(crate) fn saw(&self) {
        let mut seen = self.0.lock().unwrap();
        seen.any = true;
        if let (Some(reopened), None) = (seen.reopened, seen.first) {
            seen.first = Some(reopened.elapsed());
        }
    }

    pub(crate) fn first(&self) -> Option<Duration> {
        self.0.lock().unwrap().first
    }

    /// Whether anything came, before the outage or after it.
    pub(crate) fn any(&self) -> bool {
        self.0.lock().unwrap().any
    }
}
