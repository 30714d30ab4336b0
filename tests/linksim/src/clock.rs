//! The clock that all processes of a machine share, so that they can exchange points in time.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The present value of `CLOCK_MONOTONIC`, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The instant at which [`monotonic_ns`] had this value, in this process or another.
pub fn instant(ns: u64) -> Instant {
    let now = Instant::now();
    let now_ns = monotonic_ns();
    if ns <= now_ns {
        now.checked_sub(Duration::from_nanos(now_ns - ns)).unwrap_or(now)
    } else {
        now + Duration::from_nanos(ns - now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_from_another_process_becomes_an_instant() {
        let before = Instant::now();
        let other = instant(monotonic_ns());
        assert!(before.duration_since(other) < Duration::from_secs(1));
        assert!(instant(monotonic_ns() + 1_000_000_000) > before);
    }
}
