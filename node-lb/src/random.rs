//! Random numbers for choices and pauses. Nothing secret depends on them.

use std::time::Duration;

/// A random number, evenly distributed.
pub(crate) fn random() -> u32 {
    let mut bytes = [0; 4];
    // Without random numbers every choice is the first one, which is still a valid choice.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    u32::from_ne_bytes(bytes)
}

/// A random time below `limit`.
pub(crate) fn random_below(limit: Duration) -> Duration {
    limit.mul_f64(f64::from(random()) / f64::from(u32::MAX))
}

/// `every`, longer or shorter by up to a quarter, so that not all workers ask at once.
pub(crate) fn jittered(every: Duration) -> Duration {
    every * 3 / 4 + random_below(every / 2)
}
