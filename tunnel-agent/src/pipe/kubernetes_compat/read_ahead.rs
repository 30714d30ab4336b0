//! Reading ahead of the caller around each ping of a translator behind the edge.
//!
//! A caller that speaks WebSocket is answered by a translator in the API server or the kubelet. The
//! translator speaks SPDY with the container runtime, and pings it every five seconds from the upgrade on
//! (Kubernetes, `streamtranslator.go` and `spdy/connection.go`). A runtime that has closed answers by RST,
//! and output that its kernel still holds is lost. No answer of the agent can prevent that ping, but its time
//! is known.

use std::future::Future as _;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use super::drain_read::{self, STEP_EVERY, WAITING_BYTES_MAX};

/// Interval between two pings of a translator.
const PINGED_EVERY: Duration = Duration::from_secs(5);

/// Within this time before each ping, as much as may wait here is read, at an even pace.
const BEFORE: Duration = Duration::from_millis(1500);

/// Longest delay of a ping: the translator has to be connected first, and its machine may be busy.
const BEHIND: Duration = Duration::from_millis(500);

/// The schedule of a translator's pings on one connection.
pub(super) struct ReadAhead {
    upgraded: Instant,
    /// Wakes the task when more bytes may wait.
    timer: Pin<Box<Sleep>>,
}

impl ReadAhead {
    /// The schedule of a connection that was upgraded just now.
    pub(super) fn begin() -> Self {
        Self { upgraded: Instant::now(), timer: Box::pin(sleep(PINGED_EVERY - BEFORE)) }
    }

    /// Bytes beyond the usual that may wait now. Wakes the task when there may be more.
    pub(super) fn extra_bytes(&mut self, cx: &mut Context<'_>) -> usize {
        loop {
            let now = Instant::now();
            let (extra, more_in) = extra_bytes(now.duration_since(self.upgraded));
            if self.timer.deadline() <= now {
                self.timer.as_mut().reset(now + more_in);
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return extra;
            }
        }
    }
}

/// Bytes that may wait so long after the upgrade, and the time until there may be more.
fn extra_bytes(elapsed: Duration) -> (usize, Duration) {
    let period = PINGED_EVERY.as_nanos();
    let since_ping = Duration::from_nanos((elapsed.as_nanos() % period) as u64);
    let begins = PINGED_EVERY - BEFORE;
    if since_ping >= begins {
        (drain_read::extra_bytes(since_ping - begins, BEFORE), STEP_EVERY)
    } else if since_ping < BEHIND && elapsed >= PINGED_EVERY {
        (WAITING_BYTES_MAX, begins - since_ping)
    } else {
        (0, begins - since_ping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extra_after(millis: u64) -> usize {
        extra_bytes(Duration::from_millis(millis)).0
    }

    /// The upgrade itself is followed by no ping.
    #[test]
    fn a_ping_that_comes_half_a_second_late_is_waited_for() {
        for pinged in [5_000, 10_000, 3_600_000] {
            assert_eq!(extra_after(pinged), WAITING_BYTES_MAX);
            assert_eq!(extra_after(pinged + 499), WAITING_BYTES_MAX);
            assert_eq!(extra_after(pinged + 500), 0);
        }
        assert_eq!(extra_after(0), 0);
    }

    #[test]
    fn more_bytes_may_wait_at_the_time_that_was_announced() {
        for millis in [0, 3_499, 3_500, 4_200, 4_999, 5_000, 5_400, 5_500] {
            let elapsed = Duration::from_millis(millis);
            let (now, more_in) = extra_bytes(elapsed);
            let (then, _) = extra_bytes(elapsed + more_in + Duration::from_millis(1));
            assert!(then > now || now == WAITING_BYTES_MAX, "{millis}: {now}, and after {more_in:?} {then}");
        }
    }
}
