//! Removal of expired tokens from the store, every hour.

use std::time::{Duration, SystemTime};

use daemon::error_chain;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

use crate::directory::Directory;

/// The time between two removals. An expired token enrolls nobody in the meantime.
const EVERY: Duration = Duration::from_secs(60 * 60);

/// Removes expired tokens as long as it is polled, first at once.
pub(super) async fn remove(directory: Directory) {
    let mut every = interval(EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        if let Err(error) = directory.remove_expired_tokens(SystemTime::now()).await {
            warn!(error = %error_chain(&error), "expired tokens were not removed from the store; the next try is in an hour");
        }
    }
}
