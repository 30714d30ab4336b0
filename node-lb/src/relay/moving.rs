//! The moves of connections to an API server that has joined others, so that all carry about the same.

use std::time::Duration;

/// Younger connections do not move. They were made while the API server was about to join.
const AGE_MIN: Duration = Duration::from_secs(60);

/// A connection moves within this time after the API server has joined.
pub(super) const MOVE_WITHIN: Duration = Duration::from_secs(60);

/// Says whether a connection of this age moves to an API server that has joined `others`: with the probability
/// that is its share. `random` is evenly distributed.
pub(super) fn moves(age: Duration, others: usize, random: u32) -> bool {
    age > AGE_MIN && u64::from(random) * (others as u64 + 1) <= u64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_connection_moves_with_the_share_of_the_one_that_joined() {
        let (old, steps) = (AGE_MIN + Duration::from_secs(1), 3000_u32);
        let randoms = (0..steps).map(|step| step * (u32::MAX / steps));

        for others in 1..5 {
            let moved = randoms.clone().filter(|random| moves(old, others, *random)).count();
            let expected = steps as usize / (others + 1);
            assert!(moved.abs_diff(expected) <= 1, "{moved} of {steps} for {others} others");
        }
    }

    #[test]
    fn a_young_connection_stays() {
        assert!(!moves(AGE_MIN, 1, 0));
    }
}
