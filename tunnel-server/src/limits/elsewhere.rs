//! The use of limits at the other servers, as these tell of it, and the part that is left for this one.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use daemon::Rate;
use proto::peering::{CallerDigest, CallerShare, UsageKind};

/// The time for which a word of another server counts. It is renewed every second.
pub(super) const WORD_COUNTS: Duration = Duration::from_secs(5);

/// Parts of a request for each second, so that a small rate can be divided among servers.
const PARTS: u64 = 1_000;

/// The last word of each other server.
#[derive(Default)]
pub(super) struct UsageElsewhere {
    words: HashMap<String, PeerWord>,
    next_session: u64,
}

/// The callers who use much of a limit at one other server.
struct PeerWord {
    /// The session over which it came. A newer one of the same server replaces it.
    session: u64,
    heard: Instant,
    shares: HashMap<(CallerDigest, UsageKind), u32>,
}

impl UsageElsewhere {
    /// The number of a new session.
    pub(super) fn join(&mut self) -> u64 {
        self.next_session += 1;
        self.next_session
    }

    /// Takes the word of a server in place of its last one.
    pub(super) fn hear(&mut self, server_id: &str, session: u64, shares: Vec<CallerShare>, now: Instant) {
        if self.words.get(server_id).is_some_and(|word| word.session > session) {
            return;
        }
        let shares = shares.into_iter().map(|CallerShare { caller, kind, held }| ((caller, kind), held));
        let word = PeerWord { session, heard: now, shares: shares.collect() };
        self.words.insert(server_id.to_owned(), word);
    }

    /// Drops the word of a session that has ended, and of no newer one.
    pub(super) fn leave(&mut self, server_id: &str, session: u64) {
        if self.words.get(server_id).is_some_and(|word| word.session == session) {
            self.words.remove(server_id);
        }
    }

    /// Returns true if no server tells of anybody, so that digests need not be made.
    pub(super) fn is_silent(&self) -> bool {
        self.words.values().all(|word| word.shares.is_empty())
    }

    /// The number that a caller may have here of a limit of `max`.
    ///
    /// Others' numbers and the one here make no more than `max`. Requests end soon, so they are also divided: those that run at
    /// one server would keep the caller's requests out of all others. If more are wanted than may run, each server lets
    /// no more than its part begin, and at least one.
    pub(super) fn room(&self, max: usize, caller: CallerDigest, kind: UsageKind, now: Instant) -> usize {
        let held: u64 = self.told(caller, kind, now).sum();
        let room = max.saturating_sub(usize::try_from(held).unwrap_or(usize::MAX));
        if kind != UsageKind::Requests {
            return room;
        }
        let wanted = self.fresh(now).map(|word| {
            word.share(caller, UsageKind::Requests).max(word.share(caller, UsageKind::RequestsWanted))
        });
        let part = fair_part(max as u64, wanted.collect());
        room.min(usize::try_from(part).unwrap_or(usize::MAX).max(1))
    }

    /// The time after which a token of this caller's `rate` is back: the rate's own, or longer if the caller sends requests to
    /// other servers, too.
    pub(super) fn token_interval(&self, rate: Rate, caller: CallerDigest, now: Instant) -> Duration {
        let others = self.told(caller, UsageKind::Rate, now).map(|asked| asked * PARTS).collect();
        let part = fair_part(u64::from(rate.per_second) * PARTS, others);
        let part = u32::try_from(part).unwrap_or(u32::MAX).max(1);
        rate.interval().max(Duration::from_secs(PARTS) / part)
    }

    /// The numbers of other servers that count now.
    fn told(&self, caller: CallerDigest, kind: UsageKind, now: Instant) -> impl Iterator<Item = u64> {
        self.fresh(now).map(move |word| word.share(caller, kind))
    }

    /// The words of other servers that count now.
    fn fresh(&self, now: Instant) -> impl Iterator<Item = &PeerWord> {
        self.words.values().filter(move |word| word.counts(now))
    }
}

impl PeerWord {
    fn counts(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.heard) < WORD_COUNTS
    }

    fn share(&self, caller: CallerDigest, kind: UsageKind) -> u64 {
        self.shares.get(&(caller, kind)).copied().map_or(0, u64::from)
    }
}

/// The part of `limit` for one server beside `others`, which want so much. A server that wants less than an equal part gets what
/// it wants, and the rest is divided equally among those that want more (max-min fairness). If all servers know the same
/// numbers, their parts are `limit` together.
fn fair_part(limit: u64, mut others: Vec<u64>) -> u64 {
    others.sort_unstable();
    let (mut left, mut servers) = (limit, others.len() as u64 + 1);
    for wanted in others {
        if wanted > left / servers {
            break;
        }
        left -= wanted;
        servers -= 1;
    }
    left / servers
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_word_counts_for_five_seconds_and_until_its_session_ends() {
        let (mut elsewhere, now) = (UsageElsewhere::default(), Instant::now());
        let session = elsewhere.join();
        elsewhere.hear("b", session, vec![share(UsageKind::Watches, 7)], now);
        let room = |elsewhere: &UsageElsewhere, now| elsewhere.room(10, ANN, UsageKind::Watches, now);

        assert_eq!(room(&elsewhere, now + WORD_COUNTS - Duration::from_millis(1)), 3);
        assert_eq!(room(&elsewhere, now + WORD_COUNTS), 10);
        assert_eq!(elsewhere.room(10, ANN, UsageKind::Upgrades, now), 10, "another limit");
        assert_eq!(elsewhere.room(10, BEN, UsageKind::Watches, now), 10, "another caller");
        elsewhere.leave("b", session);
        assert_eq!(room(&elsewhere, now), 10);
        assert!(elsewhere.is_silent());
    }

    #[test]
    fn the_last_word_of_a_server_replaces_the_one_before() {
        let (mut elsewhere, now) = (UsageElsewhere::default(), Instant::now());
        let [old, new] = [elsewhere.join(), elsewhere.join()];
        let room = |elsewhere: &UsageElsewhere| elsewhere.room(10, ANN, UsageKind::Watches, now);
        elsewhere.hear("b", old, vec![share(UsageKind::Watches, 7)], now);
        elsewhere.hear("b", new, vec![share(UsageKind::Watches, 2)], now);
        elsewhere.hear("b", old, vec![share(UsageKind::Watches, 7)], now);
        assert_eq!(room(&elsewhere), 8, "an older session has no say");

        elsewhere.leave("b", old);
        assert_eq!(room(&elsewhere), 8, "nor does its end");
        elsewhere.hear("c", 9, vec![share(UsageKind::Watches, 20)], now);
        assert_eq!(room(&elsewhere), 0);
        elsewhere.hear("c", 9, Vec::new(), now);
        assert_eq!(room(&elsewhere), 8);
    }

    #[test]
    fn requests_are_divided_if_more_are_wanted_than_may_run() {
        let (mut elsewhere, now) = (UsageElsewhere::default(), Instant::now());
        let room = |elsewhere: &UsageElsewhere| elsewhere.room(100, ANN, UsageKind::Requests, now);
        elsewhere.hear("b", 1, vec![share(UsageKind::Requests, 90)], now);
        assert_eq!(room(&elsewhere), 10, "they run there");
        elsewhere.hear("b", 1, vec![share(UsageKind::RequestsWanted, 500)], now);
        assert_eq!(room(&elsewhere), 50, "they are wanted in both places");
        elsewhere.hear("c", 2, vec![share(UsageKind::RequestsWanted, 20)], now);
        assert_eq!(room(&elsewhere), 40);
        for other in ["d", "e"] {
            elsewhere.hear(other, 3, vec![share(UsageKind::RequestsWanted, 500)], now);
        }
        assert_eq!(elsewhere.room(3, ANN, UsageKind::Requests, now), 1, "one begins in any case");
    }

    #[test]
    fn a_rate_is_divided_in_parts_of_a_request() {
        let (mut elsewhere, now) = (UsageElsewhere::default(), Instant::now());
        let rate = Rate { per_second: 10, burst: 20 };
        let interval = |elsewhere: &UsageElsewhere| elsewhere.token_interval(rate, ANN, now);
        assert_eq!(interval(&elsewhere), rate.interval());
        elsewhere.hear("b", 1, vec![share(UsageKind::Rate, 5)], now);
        assert_eq!(interval(&elsewhere), 2 * rate.interval());
        elsewhere.hear("b", 1, vec![share(UsageKind::Rate, 1_000)], now);
        elsewhere.hear("c", 2, vec![share(UsageKind::Rate, 1_000)], now);
        let third = interval(&elsewhere).as_secs_f64() / rate.interval().as_secs_f64();
        assert!((2.99..3.01).contains(&third), "{third}");
    }

    proptest! {
        /// No server gets less than an equal part, or than it wants.
        #[test]
        fn the_parts_of_all_servers_are_the_limit_together(
            limit in 1_u64..1_000_000,
            wanted in vec(0_u64..1_000_000, 1..20),
        ) {
            let parts: Vec<u64> = (0..wanted.len()).map(|own| {
                let others = wanted.iter().enumerate().filter(|(other, _)| *other != own);
                fair_part(limit, others.map(|(_, wanted)| *wanted).collect())
            }).collect();
            let servers = wanted.len() as u64;

            let used: u64 = parts.iter().zip(&wanted).map(|(part, wanted)| *part.min(wanted)).sum();

            let most = limit.min(wanted.iter().sum());
            // Fractions are rounded down.
            prop_assert!(used <= most && used + servers >= most, "{} of {}", used, most);
            prop_assert!(parts.iter().all(|part| *part >= limit / servers));
        }
    }

    const ANN: CallerDigest = CallerDigest([1; 16]);
    const BEN: CallerDigest = CallerDigest([2; 16]);

    fn share(kind: UsageKind, held: u32) -> CallerShare {
        CallerShare { caller: ANN, kind, held }
    }
}
