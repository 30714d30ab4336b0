//! The end of a caller's connection that the gateway wants: its certificate was revoked, or its caller has too many
//! connections.

use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::limits::LimitExceeded;

/// The longest time for the first request of a connection that is not served. Its answer says why.
pub(super) const REFUSED_MAX: Duration = Duration::from_secs(5);

/// The reason and the time of a connection's end, if the gateway wants it.
#[derive(Debug, Default)]
pub(super) struct ConnectionEnd {
    /// Cancelled once the connection serves no further request.
    requested: CancellationToken,
    /// The limit that refuses every request.
    pub(super) limited: Option<LimitExceeded>,
    deadline: Option<Instant>,
}

impl ConnectionEnd {
    /// The end of a connection whose requests are all refused, by `limited` or for what they are.
    pub(super) fn soon(limited: Option<LimitExceeded>) -> Self {
        Self { limited, deadline: Some(Instant::now() + REFUSED_MAX), ..Self::default() }
    }

    /// Asks for the end, after the answers that are under way.
    pub(super) fn request(&self) {
        self.requested.cancel();
    }

    /// Resolves when the connection is to serve no further request. Cancel-safe.
    pub(super) async fn requested(&self) {
        self.requested.cancelled().await;
    }

    /// Resolves when the connection must be closed at once; never for one that is served. Cancel-safe.
    pub(super) async fn is_due(&self) {
        match self.deadline {
            Some(deadline) => sleep_until(deadline).await,
            None => pending().await,
        }
    }
}
