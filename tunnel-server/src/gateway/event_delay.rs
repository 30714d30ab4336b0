//! The time for an ERROR event to leave before its body is broken off. A reset of HTTP/2 discards what was not
//! yet sent, and hyper drops what it has buffered.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

/// Time between an ERROR event of this server and the break of its body. A caller that does not read has the
/// break alone.
pub(super) const EVENT_DELAY: Duration = Duration::from_secs(1);

/// Resolves when an ERROR event has had its time to leave.
pub(super) struct EventDelay(Pin<Box<Sleep>>);

impl EventDelay {
    pub(super) fn begin() -> Self {
        Self(Box::pin(sleep(EVENT_DELAY)))
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}
