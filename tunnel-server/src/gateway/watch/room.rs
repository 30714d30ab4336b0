//! How much of unfinished events all watches together may hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What the watches of one gateway may hold together of events that are not yet whole. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Room(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    taken: AtomicUsize,
    bytes_max: usize,
}

/// What one watch holds of it, until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    room: Room,
    bytes: usize,
}

impl Room {
    pub(super) fn of(bytes_max: usize) -> Self {
        Self(Arc::new(Inner { taken: AtomicUsize::new(0), bytes_max }))
    }

    /// Nothing of it yet.
    pub(super) fn nothing(&self) -> Held {
        Held { room: self.clone(), bytes: 0 }
    }
}

impl Held {
    /// Holds so many bytes from now on, if there is room.
    pub(super) fn hold(&mut self, bytes: usize) -> bool {
        let Inner { taken, bytes_max } = &*self.room.0;
        let others = taken.fetch_sub(self.bytes, Ordering::Relaxed) - self.bytes;
        self.bytes = bytes;
        taken.fetch_add(bytes, Ordering::Relaxed);
        others.saturating_add(bytes) <= *bytes_max
    }

    /// Holds nothing any more.
    pub(super) fn release(&mut self) {
        self.room.0.taken.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = 0;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_together_hold_as_much_as_there_is_room_for_and_not_one_byte_more() {
        let room = Room::of(10);
        let (mut one, mut other) = (room.nothing(), room.nothing());

        assert!(one.hold(4) && other.hold(6));
        assert!(!one.hold(5), "one beyond");
        one.release();
        assert!(other.hold(10));
        drop(other);
        assert!(one.hold(10));
    }
}
