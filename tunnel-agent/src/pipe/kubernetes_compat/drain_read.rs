//! Reading what the edge may still have to send, before a caller's bytes are forwarded to it: for how long,
//! and how much.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// Bytes of one edge that may wait here while it is drained. Between a command and this pipe lie three
/// connections, of the container runtime, the kubelet and the API server, and Linux lets each hold 10 MB
/// (`tcp_wmem` and `tcp_rmem`). 32 MiB.
pub(super) const WAITING_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Longest draining. Within this time up to [`WAITING_BYTES_MAX`] more than the caller takes are read, at an
/// even pace: read at once they would keep the site's machine from everything else. An edge that still sends
/// then has not closed. Together with a second of the caller's silence it is shorter than the 5 s between two
/// of kubectl's pings, so that each of them is held back.
pub(super) const DRAIN_MAX: Duration = Duration::from_millis(3500);

/// An edge that sends nothing for so long has sent everything for now.
const PAUSE: Duration = Duration::from_millis(250);

/// Interval at which more bytes may wait. Short enough for an even pace.
pub(super) const STEP_EVERY: Duration = Duration::from_millis(10);

/// One draining of an edge, from its begin on.
pub(super) struct DrainRead {
    began: Instant,
    /// Time at which the edge last sent something, or could not because as much waits as may.
    sent: Instant,
    /// Wakes the task when more may wait, or when the draining is over.
    timer: Pin<Box<Sleep>>,
}

impl DrainRead {
    pub(super) fn begin() -> Self {
        let now = Instant::now();
        Self { began: now, sent: now, timer: Box::pin(sleep(PAUSE)) }
    }

    /// Bytes beyond the usual that may wait now.
    pub(super) fn extra_bytes(&self) -> usize {
        extra_bytes(self.began.elapsed(), DRAIN_MAX)
    }

    /// Ready with `true` where the draining is over, and with `false` where more may wait. `sends` says that
    /// the edge has just sent something, or that as much waits as may.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>, sends: bool) -> Poll<bool> {
        let now = Instant::now();
        if sends {
            self.sent = now;
        }
        let ends = (self.sent + PAUSE).min(self.began + DRAIN_MAX);
        if now >= ends {
            return Poll::Ready(true);
        }
        self.timer.as_mut().reset(if sends { ends.min(now + STEP_EVERY) } else { ends });
        self.timer.as_mut().poll(cx).map(|()| false)
    }
}

/// Bytes that may wait so long after reading began. They grow at an even pace, up to [`WAITING_BYTES_MAX`] at
/// the end of `within`.
pub(super) fn extra_bytes(elapsed: Duration, within: Duration) -> usize {
    (WAITING_BYTES_MAX as f64 * elapsed.div_duration_f64(within).min(1.0)) as usize
}
