//! When to read ahead of a caller because somebody further on is about to ping.
//!
//! Whoever speaks WebSocket is answered by a translator in the API server or the kubelet, which speaks SPDY with the runtime and
//! pings that every five seconds from then on (Kubernetes, `streamtranslator.go` and `spdy/connection.go`). A runtime that has closed answers by
//! RST, and what its kernel holds is lost. No answer of ours keeps that ping away, but when it comes is known.

use std::future::Future as _;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use super::hearing::{self, HEARD_BYTES_MAX, ROOM_EVERY};

/// Between two pings of a translator.
const PINGED_EVERY: Duration = Duration::from_secs(5);

/// Within this time before each, as much as may wait here is read, at an even pace.
const BEFORE: Duration = Duration::from_millis(1500);

/// A translator has to be connected first, and on a busy machine its ping comes so much late.
const BEHIND: Duration = Duration::from_millis(500);

/// Knows when pings come.
pub(super) struct Ahead {
    upgraded: Instant,
    /// Until there is more room.
    looks: Pin<Box<Sleep>>,
}

impl Ahead {
    /// Somebody was upgraded just now.
    pub(super) fn begin() -> Self {
        Self { upgraded: Instant::now(), looks: Box::pin(sleep(PINGED_EVERY - BEFORE)) }
    }

    /// How much more than the usual may wait now, where the usual does. Wakes the task when there is more room.
    pub(super) fn room(&mut self, cx: &mut Context<'_>) -> usize {
        loop {
            let now = Instant::now();
            let (room, more_in) = room(now.duration_since(self.upgraded));
            if self.looks.deadline() <= now {
                self.looks.as_mut().reset(now + more_in);
            }
            if self.looks.as_mut().poll(cx).is_pending() {
                return room;
            }
        }
    }
}

/// The room so long after the upgrade, and when there is more.
fn room(elapsed: Duration) -> (usize, Duration) {
    let period = PINGED_EVERY.as_nanos();
    let since_ping = Duration::from_nanos((elapsed.as_nanos() % period) as u64);
    let begins = PINGED_EVERY - BEFORE;
    if since_ping >= begins {
        (hearing::room(since_ping - begins, BEFORE), ROOM_EVERY)
    } else if since_ping < BEHIND && elapsed >= PINGED_EVERY {
        (HEARD_BYTES_MAX, begins - since_ping)
    } else {
        (0, begins - since_ping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room_after(millis: u64) -> usize {
        room(Duration::from_millis(millis)).0
    }

    #[test]
    fn a_ping_that_comes_half_a_second_late_is_waited_for_and_none_comes_with_the_upgrade() {
        for pinged in [5_000, 10_000, 3_600_000] {
            assert_eq!(room_after(pinged), HEARD_BYTES_MAX);
            assert_eq!(room_after(pinged + 499), HEARD_BYTES_MAX);
            assert_eq!(room_after(pinged + 500), 0);
        }
        assert_eq!(room_after(0), 0);
    }

    #[test]
    fn there_is_more_room_when_it_was_said_to_be() {
        for millis in [0, 3_499, 3_500, 4_200, 4_999, 5_000, 5_400, 5_500] {
            let elapsed = Duration::from_millis(millis);
            let (now, more_in) = room(elapsed);
            let (then, _) = room(elapsed + more_in + Duration::from_millis(1));
            assert!(then > now || now == HEARD_BYTES_MAX, "{millis}: {now}, and after {more_in:?} {then}");
        }
    }
}
