//! Tells the other servers once a second of the callers who use much of a limit here.

use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};

use super::telling::Teller;
use crate::limits::Limiter;

/// The time between two words. For so long a caller may exceed a limit by what it begins at several servers at once.
const USAGE_EVERY: Duration = Duration::from_secs(1);

/// Tells all sessions as long as it is polled.
pub(super) async fn tell(teller: Teller, limiter: Limiter) {
    let mut ticks = interval(USAGE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut was_silent = true;
    loop {
        ticks.tick().await;
        let shares = limiter.take_shares(teller.sessions(), Instant::now());
        let is_silent = shares.is_empty();
        // One empty word says that the last one counts no more.
        if !(is_silent && was_silent) {
            teller.tell_usage(&shares);
        }
        was_silent = is_silent;
    }
}
