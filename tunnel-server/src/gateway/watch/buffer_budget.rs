//! The budget of bytes for the incomplete events of all watches together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes of incomplete events that the watches of one gateway may hold together. Clones share the budget.
#[derive(Debug, Clone)]
pub(super) struct BufferBudget(Arc<BudgetShared>);

#[derive(Debug)]
struct BudgetShared {
    taken: AtomicUsize,
    bytes_max: usize,
}

/// The bytes that one watch has reserved, until this is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    budget: BufferBudget,
    bytes: usize,
}

impl BufferBudget {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self(Arc::new(BudgetShared { taken: AtomicUsize::new(0), bytes_max }))
    }

    /// A reservation of no bytes yet.
    pub(super) fn reserve(&self) -> Reservation {
        Reservation { budget: self.clone(), bytes: 0 }
    }
}

impl Reservation {
    /// Changes the reservation to `bytes`. Returns whether the budget still suffices.
    pub(super) fn resize(&mut self, bytes: usize) -> bool {
        let BudgetShared { taken, bytes_max } = &*self.budget.0;
        let others = taken.fetch_sub(self.bytes, Ordering::Relaxed) - self.bytes;
        self.bytes = bytes;
        taken.fetch_add(bytes, Ordering::Relaxed);
        others.saturating_add(bytes) <= *bytes_max
    }

    /// Changes the reservation to no bytes.
    pub(super) fn release(&mut self) {
        self.budget.0.taken.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = 0;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_watches_together_hold_their_budget_and_not_one_byte_more() {
        let budget = BufferBudget::new(10);
        let (mut one, mut other) = (budget.reserve(), budget.reserve());

        assert!(one.resize(4) && other.resize(6));
        assert!(!one.resize(5), "one beyond");
        one.release();
        assert!(other.resize(10));
        drop(other);
        assert!(one.resize(10));
    }
}
