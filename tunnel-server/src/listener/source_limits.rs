//! How much of a door each source takes before anybody knows who it is. Pure.
//!
//! A source is an address, or a network of IPv6: its owner has 2⁶⁴ addresses. Behind one there may be many who have nothing to do with
//! each other, so nobody is locked out who can show a certificate: beyond a source's limits a connection is let into a lane in
//! which it has to show one, and soon. Where the lane is full, whoever has had time enough makes place.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use daemon::{Bucket, Rate};

/// Handshakes of one source that have to come to a certificate, at once; beyond, the oldest makes place or the newest goes.
pub(super) const PROVING_MAX: usize = 16;

/// The same of a source of whose callers one has shown a certificate of late.
pub(super) const PROVING_TRUSTED_MAX: usize = 64;

/// How long such a handshake may take at most.
pub(super) const PROVING_TIME_MAX: Duration = Duration::from_secs(5);

/// How long it may take in any case: some round trips of a bad link.
const PROVING_TIME_MIN: Duration = Duration::from_millis(1_500);

/// For how long a source is trusted because somebody there has shown a certificate.
const TRUSTED_FOR: Duration = Duration::from_secs(600);

/// Most sources that are by_prefix, twice as many as there are connections; beyond, one without a connection is forgotten.
pub(super) const SOURCES_MAX: usize = 20_000;

/// What one source may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerSourceLimits {
    /// Connections of callers who showed no certificate.
    pub connections: usize,
    /// New connections, whoever they are of.
    pub rate: Rate,
}

/// The sources that are by_prefix. `T` ends a handshake when it is dropped.
#[derive(Debug)]
pub(super) struct Sources<T> {
    limits: PerSourceLimits,
    by_prefix: HashMap<IpAddr, SourceState<T>>,
    admitted: u64,
}

#[derive(Debug)]
struct SourceState<T> {
    bucket: Bucket,
    /// Those let in without more ado, as long as they show no certificate.
    open: usize,
    /// Those that have to show one, the oldest first.
    proving: VecDeque<PendingProof<T>>,
    trusted_until: Option<Instant>,
}

#[derive(Debug)]
struct PendingProof<T> {
    number: u64,
    since: Instant,
    ends: T,
}

/// How a connection was let in, which [`Sources::left`] or [`Sources::certified`] is told once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SourceAdmission {
    pub(super) source: IpAddr,
    lane: Lane,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    Open,
    Proving(u64),
}

/// What becomes of a connection that comes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SourceDecision<T> {
    /// It is let in, maybe in the place of another, whose handshake ends.
    Granted(SourceAdmission, Option<T>),
    /// It is not.
    Refused,
}

impl SourceAdmission {
    /// Whether it has to show a certificate.
    pub(super) fn must_show_certificate(self) -> bool {
        self.lane != Lane::Open
    }
}

impl<T> Sources<T> {
    pub(super) fn new(limits: PerSourceLimits) -> Self {
        Self { limits, by_prefix: HashMap::new(), admitted: 0 }
    }

    /// One more connection from `address`; `ends` ends its handshake when it is dropped.
    pub(super) fn admit(&mut self, address: IpAddr, ends: T, now: Instant) -> SourceDecision<T> {
        let limits = self.limits;
        self.admitted += 1;
        let number = self.admitted;
        let prefix = prefix(address);
        self.make_room(prefix);
        let source = self.by_prefix.entry(prefix).or_insert_with(|| SourceState::new(now));
        let is_slow_enough = source.bucket.take(limits.rate, now);
        if is_slow_enough && source.open < limits.connections {
            source.open += 1;
            return SourceDecision::Granted(SourceAdmission { source: prefix, lane: Lane::Open }, None);
        }
        let is_trusted = source.trusted_until.is_some_and(|until| now < until);
        let max = if is_trusted { PROVING_TRUSTED_MAX } else { PROVING_MAX };
        let mut displaced = None;
        if source.proving.len() >= max {
            let had_time =
                |oldest: &PendingProof<T>| now.saturating_duration_since(oldest.since) >= PROVING_TIME_MIN;
            if !source.proving.front().is_some_and(had_time) {
                return SourceDecision::Refused;
            }
            displaced = source.proving.pop_front().map(|oldest| oldest.ends);
        }
        source.proving.push_back(PendingProof { number, since: now, ends });
        SourceDecision::Granted(SourceAdmission { source: prefix, lane: Lane::Proving(number) }, displaced)
    }

    /// It has shown a certificate that was verified: from now on it takes nothing of its source.
    pub(super) fn certified(&mut self, admission: SourceAdmission, now: Instant) {
        self.released(admission);
        if let Some(source) = self.by_prefix.get_mut(&admission.source) {
            source.trusted_until = Some(now + TRUSTED_FOR);
        }
    }

    /// It has ended, and has shown none.
    pub(super) fn released(&mut self, admission: SourceAdmission) {
        let Some(source) = self.by_prefix.get_mut(&admission.source) else { return };
        match admission.lane {
            Lane::Open => source.open = source.open.saturating_sub(1),
            // Who was displaced is no more in it.
            Lane::Proving(number) => source.proving.retain(|proving| proving.number != number),
        }
    }

    /// What the source has that has most connections without a certificate.
    pub(super) fn busiest(&self) -> usize {
        self.by_prefix.values().map(|source| source.open).max().unwrap_or_default()
    }

    /// Makes room for one more, if it is one more.
    fn make_room(&mut self, prefix: IpAddr) {
        if self.by_prefix.len() < SOURCES_MAX || self.by_prefix.contains_key(&prefix) {
            return;
        }
        // Any of them: who comes from very many sources must not make this slow.
        let idle = self.by_prefix.iter().find(|(_, source)| source.is_idle()).map(|(prefix, _)| *prefix);
        idle.map(|idle| self.by_prefix.remove(&idle));
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.by_prefix.len()
    }
}

impl<T> SourceState<T> {
    fn new(now: Instant) -> Self {
        let (bucket, proving) = (Bucket::full(now), VecDeque::new());
        Self { bucket, open: 0, proving, trusted_until: None }
    }

    fn is_idle(&self) -> bool {
        self.open == 0 && self.proving.is_empty()
    }
}

/// One network of IPv6 is one source, and an address of IPv4 is one however it is written.
pub(crate) fn prefix(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: PerSourceLimits =
        PerSourceLimits { connections: 5, rate: Rate { per_second: 10, burst: 10 } };

    #[test]
    fn beyond_a_sources_connections_or_its_pace_a_certificate_has_to_be_shown_and_others_are_let_in() {
        let (mut sources, now) = (Sources::new(LIMITS), Instant::now());
        let [busy, same, other] =
            ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"].map(|a| a.parse().unwrap());
        let held: Vec<SourceAdmission> = (0..5).map(|_| granted(&mut sources, busy, now)).collect();
        assert!(held.iter().all(|admission| !admission.must_show_certificate()));

        assert!(granted(&mut sources, same, now).must_show_certificate(), "the same network, one beyond");
        assert!(!granted(&mut sources, other, now).must_show_certificate());
        sources.released(held[0]);
        assert!(!granted(&mut sources, busy, now).must_show_certificate(), "free again");

        let quick = "192.0.2.1".parse().unwrap();
        for _ in 0..10 {
            let admission = granted(&mut sources, quick, now);
            assert!(!admission.must_show_certificate());
            sources.released(admission);
        }
        assert!(granted(&mut sources, quick, now).must_show_certificate(), "the eleventh at once");
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        assert!(granted(&mut sources, mapped, now).must_show_certificate(), "the same address");
        assert!(!granted(&mut sources, quick, now + Duration::from_secs(1)).must_show_certificate());
    }

    #[test]
    fn who_shows_a_certificate_takes_nothing_of_its_source() {
        let (mut sources, now, nat) = (Sources::new(LIMITS), Instant::now(), "192.0.2.1".parse().unwrap());
        for _ in 0..1_000 {
            let admission = granted(&mut sources, nat, now);
            sources.certified(admission, now);
        }
        assert_eq!(sources.busiest(), 0);
        assert!(sources.by_prefix.values().all(|source| source.proving.is_empty()));
    }

    #[test]
    fn a_full_lane_lets_nobody_in_until_its_oldest_has_had_its_time_who_then_makes_place() {
        let (mut sources, now, nat) = (Sources::new(LIMITS), Instant::now(), "192.0.2.1".parse().unwrap());
        let flood = |sources: &mut Sources<u32>, now| {
            (0..1_000).filter(|_| matches!(sources.admit(nat, 0, now), SourceDecision::Granted(..))).count()
        };
        assert_eq!(flood(&mut sources, now), 5 + PROVING_MAX);
        let soon = now + PROVING_TIME_MIN - Duration::from_millis(1);
        sources.by_prefix.values_mut().for_each(|source| source.open = LIMITS.connections);
        assert_eq!(sources.admit(nat, 0, soon), SourceDecision::Refused);

        let later = now + PROVING_TIME_MIN;
        let SourceDecision::Granted(admission, Some(_)) = sources.admit(nat, 7, later) else {
            panic!("the oldest goes")
        };
        assert!(admission.must_show_certificate());
        sources.certified(admission, later);

        let came = flood(&mut sources, later);
        assert_eq!(
            came, PROVING_TRUSTED_MAX,
            "somebody there can show one: the lane is wider, and the old make place"
        );
    }

    #[test]
    fn no_more_sources_than_the_limit_are_known_and_who_is_connected_is_not_forgotten() {
        let (mut sources, now) = (Sources::new(LIMITS), Instant::now());
        let address = |n: usize| IpAddr::from(u32::try_from(n).unwrap().to_be_bytes());
        let kept = granted(&mut sources, address(0), now);
        for n in 1..SOURCES_MAX + 1_000 {
            let admission = granted(&mut sources, address(n), now + Duration::from_micros(n as u64));
            sources.released(admission);
            assert!(sources.len() <= SOURCES_MAX);
        }
        assert!(sources.by_prefix.contains_key(&kept.source));
    }

    fn granted(sources: &mut Sources<u32>, address: IpAddr, now: Instant) -> SourceAdmission {
        match sources.admit(address, 0, now) {
            SourceDecision::Granted(admission, _) => admission,
            SourceDecision::Refused => panic!("refused"),
        }
    }
}
