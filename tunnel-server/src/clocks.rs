//! The clocks of the other servers beside this one's, and whether certificates may be issued by this one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tracing::{info, warn};

/// Clocks that differ by more are reported.
pub const CLOCKS_DIFFER_AFTER: Duration = Duration::from_secs(2);

/// Among servers with clocks that differ by more, those in the minority issue no certificate.
pub const CLOCKS_APART_AFTER: Duration = Duration::from_secs(30);

/// The time for which one reading of a clock counts. A delay on the way makes a clock seem to be behind, so the reading that
/// is furthest ahead is the best one of this time.
const READINGS_FOR: Duration = Duration::from_secs(3);

/// Most readings of one clock: each server tells its own once a second.
const READINGS_MAX: usize = 8;

/// The clocks of the other servers. Clones share them.
#[derive(Debug, Clone)]
pub struct Clocks(Arc<SharedClocks>);

#[derive(Debug)]
struct SharedClocks {
    own_id: String,
    next_session: AtomicU64,
    /// By the IDs of the servers.
    others: Mutex<BTreeMap<String, OtherClock>>,
}

/// The clock of one other server, as its session tells it.
#[derive(Debug)]
struct OtherClock {
    session: u64,
    /// When each reading arrived, and by how many milliseconds it was ahead of this server's clock.
    readings: VecDeque<(Instant, i64)>,
    ahead_millis: i64,
    state: ClockState,
}

/// The difference between two clocks, as far as it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClockState {
    Alike,
    Differs,
    Apart,
}

/// The readings of one session. When this is dropped, the clock is unknown again.
#[derive(Debug)]
#[must_use = "the clock of the other server is forgotten when this is dropped"]
pub struct ClockReadings {
    clocks: Clocks,
    id: String,
    session: u64,
}

/// No certificate is issued, because as many servers have another time as have this one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no certificate is issued here, because the clocks of the servers {own} and {other} differ by {seconds} s: set the clock that \
     is wrong"
)]
pub struct ClocksApart {
    own: String,
    other: String,
    seconds: u64,
}

impl Clocks {
    /// The clocks beside that of the server of this ID. None is known yet.
    #[must_use]
    pub fn new(own_id: String) -> Self {
        let (next_session, others) = (AtomicU64::new(0), Mutex::default());
        Self(Arc::new(SharedClocks { own_id, next_session, others }))
    }

    /// Begins the readings of the clock of another server, in place of those of its earlier session.
    pub fn read(&self, id: &str) -> ClockReadings {
        let session = self.0.next_session.fetch_add(1, Ordering::Relaxed);
        ClockReadings { clocks: self.clone(), id: id.to_owned(), session }
    }

    /// Says whether this server may issue certificates. With servers in disagreement, it may if more of them, itself
    /// included, have its time than another one. A clock that is unknown does not count.
    ///
    /// # Errors
    /// [`ClocksApart`], with the names of two servers.
    pub fn agree(&self) -> Result<(), ClocksApart> {
        let others = self.others();
        let apart = others.iter().filter(|(_, other)| other.state == ClockState::Apart);
        let Some((id, other)) = apart.clone().next() else { return Ok(()) };
        let apart = apart.count();
        // With this server's own clock.
        let alike = others.len() - apart + 1;
        if alike > apart {
            return Ok(());
        }
        let seconds = other.ahead_millis.unsigned_abs() / 1000;
        Err(ClocksApart { own: self.0.own_id.clone(), other: id.clone(), seconds })
    }

    /// The largest difference to the clock of another server.
    #[must_use]
    pub fn difference(&self) -> Duration {
        let others = self.others();
        let millis = others.values().map(|other| other.ahead_millis.unsigned_abs()).max();
        Duration::from_millis(millis.unwrap_or_default())
    }

    fn others(&self) -> MutexGuard<'_, BTreeMap<String, OtherClock>> {
        self.0.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a reading that was `ahead_millis` ahead. Returns the states before and after it.
    fn note(&self, id: &str, session: u64, ahead_millis: i64, now: Instant) -> (ClockState, OtherClock) {
        let mut others = self.others();
        let other = others.entry(id.to_owned()).or_insert_with(|| OtherClock::new(session));
        if other.session < session {
            // Its state stays, so that a change is reported once.
            *other = OtherClock { state: other.state, ..OtherClock::new(session) };
        }
        let before = other.state;
        other.take(ahead_millis, now);
        let after = OtherClock { readings: VecDeque::new(), ..*other };
        (before, after)
    }
}

impl ClockReadings {
    /// Takes the other server's word about its time, which was on the way for `delay`.
    pub fn take(&self, unix_millis: u64, delay: Duration) {
        let own = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let told = i128::from(unix_millis) + delay.as_millis().cast_signed();
        let ahead = told - own.as_millis().cast_signed();
        let ahead = i64::try_from(ahead).unwrap_or(if ahead < 0 { i64::MIN } else { i64::MAX });
        let (before, after) = self.clocks.note(&self.id, self.session, ahead, Instant::now());
        if before == after.state {
            return;
        }
        let (peer, ahead_seconds) = (&self.id, after.ahead_millis / 1000);
        match after.state {
            ClockState::Alike => info!(peer, "the clock of another server agrees with this one's again"),
            ClockState::Differs => {
                warn!(peer, ahead_seconds, "the clock of another server differs from this one's");
            }
            ClockState::Apart => {
                warn!(
                    peer,
                    ahead_seconds,
                    is_issuing = self.clocks.agree().is_ok(),
                    "the clock of another server is far from this one's, and servers in the minority issue no certificate"
                );
            }
        }
    }
}

impl Drop for ClockReadings {
    fn drop(&mut self) {
        let mut others = self.clocks.others();
        if others.get(&self.id).is_some_and(|other| other.session == self.session) {
            others.remove(&self.id);
        }
    }
}

impl OtherClock {
    fn new(session: u64) -> Self {
        Self { session, readings: VecDeque::new(), ahead_millis: 0, state: ClockState::Alike }
    }

    fn take(&mut self, ahead_millis: i64, now: Instant) {
        self.readings.push_back((now, ahead_millis));
        while self.readings.len() > READINGS_MAX
            || self.readings.front().is_some_and(|(at, _)| now.duration_since(*at) > READINGS_FOR)
        {
            self.readings.pop_front();
        }
        self.ahead_millis = self.readings.iter().map(|(_, ahead)| *ahead).max().unwrap_or(ahead_millis);
        self.state = state(Duration::from_millis(self.ahead_millis.unsigned_abs()));
    }
}

fn state(difference: Duration) -> ClockState {
    if difference > CLOCKS_APART_AFTER {
        ClockState::Apart
    } else if difference > CLOCKS_DIFFER_AFTER {
        ClockState::Differs
    } else {
        ClockState::Alike
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_wrong_clock_of_three_issues_nothing_and_the_others_go_on() {
        let wrong = clocks(&[("one", -60_000), ("two", -60_010)]);
        let right = clocks(&[("three", 60_000), ("two", 10)]);

        let refused = wrong.agree().unwrap_err().to_string();

        assert!(refused.contains("own and one differ by 60 s"), "{refused}");
        assert_eq!(right.agree(), Ok(()));
        assert_eq!(right.difference(), Duration::from_secs(60));
    }

    #[test]
    fn of_two_servers_with_other_times_neither_issues() {
        for ahead in [31_000, -31_000] {
            assert!(clocks(&[("one", ahead)]).agree().is_err(), "{ahead}");
        }
        assert!(clocks(&[("one", 30_000)]).agree().is_ok());
        assert!(
            clocks(&[("one", 60_000), ("two", 60_000), ("three", 5)]).agree().is_err(),
            "two of four each"
        );
        assert!(clocks(&[]).agree().is_ok(), "no other clock is known");
    }

    #[test]
    fn a_reading_that_was_delayed_is_no_wrong_clock() {
        let clocks = Clocks::new("own".to_owned());
        let now = Instant::now();
        let note = |ahead, at| clocks.note("one", 0, ahead, at).1.state;

        assert_eq!(note(5, now), ClockState::Alike);
        // A link was silent for a while, or this process was stopped.
        assert_eq!(note(-40_000, now + Duration::from_secs(1)), ClockState::Alike);
        assert_eq!(note(3, now + Duration::from_secs(41)), ClockState::Alike);
        // A clock that is really behind stays so.
        assert_eq!(note(-40_000, now + Duration::from_secs(42)), ClockState::Alike);
        assert_eq!(note(-40_000, now + Duration::from_secs(45)), ClockState::Apart);
    }

    #[test]
    fn the_clock_of_a_server_without_a_session_is_unknown() {
        let clocks = Clocks::new("own".to_owned());
        let (first, second) = (clocks.read("one"), clocks.read("one"));
        clocks.note("one", first.session, 60_000, Instant::now());
        clocks.note("one", second.session, 60_000, Instant::now());

        drop(first);
        assert!(clocks.agree().is_err(), "its next session goes on");
        drop(second);
        assert!(clocks.agree().is_ok());
    }

    #[test]
    fn a_change_is_reported_once() {
        let clocks = Clocks::new("own".to_owned());
        let mut now = Instant::now();
        let mut note = |ahead| {
            now += Duration::from_secs(4);
            let (before, after) = clocks.note("one", 0, ahead, now);
            before != after.state
        };
        assert_eq!(
            [2_000, 2_001, 5_000, 31_000, 32_000, 0].map(&mut note),
            [false, true, false, true, false, true]
        );
    }

    fn clocks(others: &[(&str, i64)]) -> Clocks {
        let clocks = Clocks::new("own".to_owned());
        for (id, ahead) in others {
            clocks.note(id, 0, *ahead, Instant::now());
        }
        clocks
    }
}
