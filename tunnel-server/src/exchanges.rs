//! The running exchanges: their permits, their entries in the audit log, their slow readers, and what ends
//! them early.
//!
//! An exchange is in [`ExchangeTable`] from its permit to its last byte, also while it waits for its cluster.
//! It is ended when its credential is revoked or expires, when the policy no longer permits it, or when it
//! has run for too long. One background task ([`ExchangeTable::enforce`]) does that: at once after a change
//! of the directory or the policy, and every second for time limits. Another one
//! ([`ExchangeTable::reauthorize`]) repeats the reviews whose answers are valid for a limited time.

mod reauthorize;
mod table;
mod termination;

pub(crate) mod audit;
pub(crate) mod byte_count;
pub(crate) mod grpc;
pub(crate) mod slow_readers;

use ::audit::{EndReason, Log};

use audit::UNAUDITED_MAX;
use slow_readers::SlowReaders;

pub use reauthorize::{REVIEWED_EVERY, UNREVIEWED_MAX};
pub use table::{ExchangeTable, RunningExchange};
pub use termination::TerminationReason;

/// Ends all exchanges once the audit log could not be written for [`UNAUDITED_MAX`]. Runs as long as the
/// server does.
pub(crate) async fn end_unaudited(log: Log, slow_readers: SlowReaders) {
    loop {
        log.failed_for(UNAUDITED_MAX).await;
        slow_readers.end_all(EndReason::AuditFailed);
        log.becomes(false).await;
    }
}
