//! Lets other tasks run between the bytes and frames of a busy peer.
//!
//! tokio gives each task 128 units between two yields, and its sockets and channels spend them. A carrier's
//! stream whose bytes have arrived already spends none by itself, so a loop over them would never yield.

use std::task::{Context, Poll};

use tokio::task::coop;

/// Bytes that cost one unit: a task yields after 128 KiB.
const BYTES_PER_UNIT: usize = 1024;

/// Units that a task has between two yields, so that no more are spent in vain.
const UNITS_MAX: usize = 128;

/// Spends so many units of the task's budget, as far as it has them.
pub(crate) fn spend(cx: &mut Context<'_>, units: usize) {
    for _ in 0..units.min(UNITS_MAX) {
        let Poll::Ready(unit) = coop::poll_proceed(cx) else { return };
        unit.made_progress();
    }
}

/// Spends the units that so many bytes cost beyond the first.
pub(crate) fn spend_bytes(cx: &mut Context<'_>, bytes: usize) {
    spend(cx, bytes / BYTES_PER_UNIT);
}
