//! A clock that is never before the begin of the agent's certificate, because a machine may wake in 1970. The
//! certificates of servers and of API servers are verified by it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustls::time_provider::TimeProvider;
use rustls_pki_types::UnixTime;

/// The system's clock with a floor. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    /// The earliest time, in seconds since 1970.
    floor: Arc<AtomicU64>,
}

impl Clock {
    /// The time in seconds since 1970.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        self.seconds_at(SystemTime::now())
    }

    /// Raises the floor to a time that is certainly past: the begin of a certificate that was issued.
    pub fn raise(&self, floor: u64) {
        self.floor.fetch_max(floor, Ordering::Relaxed);
    }

    fn seconds_at(&self, now: SystemTime) -> u64 {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        now.max(self.floor.load(Ordering::Relaxed))
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.seconds())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_wakes_in_1970_goes_on_where_it_was() {
        let clock = Clock::default();
        clock.raise(1_700_000_000);
        assert_eq!(clock.seconds_at(SystemTime::UNIX_EPOCH), 1_700_000_000);
        let later = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_001);
        assert_eq!(clock.seconds_at(later), 1_700_000_001);

        clock.raise(1_800_000_000);
        clock.raise(5);
        assert_eq!(clock.seconds_at(later), 1_800_000_000);
    }
}
