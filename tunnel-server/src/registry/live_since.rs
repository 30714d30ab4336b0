//! The liveness of a tunnel, for exchanges that wait for its end.

use tokio::sync::watch;
use tokio::time::Instant;

/// The time since which a tunnel has been live without a break. `None` while it is not live.
pub(super) type LiveSince = watch::Sender<Option<Instant>>;
