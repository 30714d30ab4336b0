//! How long somebody is heard out before it is spoken to, and how much of its words may wait meanwhile.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// What waits here at most of somebody who is heard out. Between a command and this pipe lie three connections, of the container
/// runtime, the kubelet and the API server, and Linux lets each hold 10 MB (`tcp_wmem` and `tcp_rmem`).
pub(super) const HEARD_BYTES_MAX: usize = 32 * 1024 * 1024;

/// How long somebody is heard out, and within what time as much as [`HEARD_BYTES_MAX`] more than the caller takes is read, at an even
/// pace: read at once it would keep the site's machine from everything else. Who still talks then has not closed. With
/// a second of silence more it is shorter than the 5 s between two of kubectl's pings, so that each of them is held.
pub(super) const HEARING_MAX: Duration = Duration::from_millis(3500);

/// Who says nothing for so long has said all for now.
const PAUSE: Duration = Duration::from_millis(250);

/// How often there is room for more of whom is heard out.
pub(super) const ROOM_EVERY: Duration = Duration::from_millis(10);

/// Somebody is heard out.
pub(super) struct Hearing {
    began: Instant,
    /// When something came, or could not for want of room.
    talked: Instant,
    /// Until there may be room, or enough was waited.
    looks: Pin<Box<Sleep>>,
}

impl Hearing {
    pub(super) fn begin() -> Self {
        let now = Instant::now();
        Self { began: now, talked: now, looks: Box::pin(sleep(PAUSE)) }
    }

    /// How much more than the usual may wait.
    pub(super) fn room(&self) -> usize {
        room(self.began.elapsed(), HEARING_MAX)
    }

    /// Whether it is over, where that or the room may have changed; the edge `talks` if it just did, or if there was no room.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>, talks: bool) -> Poll<bool> {
        let now = Instant::now();
        if talks {
            self.talked = now;
        }
        let ends = (self.talked + PAUSE).min(self.began + HEARING_MAX);
        if now >= ends {
            return Poll::Ready(true);
        }
        self.looks.as_mut().reset(if talks { ends.min(now + ROOM_EVERY) } else { ends });
        self.looks.as_mut().poll(cx).map(|()| false)
    }
}

/// The room so long after reading began, all of which there is after `within`: it grows at an even pace.
pub(super) fn room(elapsed: Duration, within: Duration) -> usize {
    (HEARD_BYTES_MAX as f64 * elapsed.div_duration_f64(within).min(1.0)) as usize
}
