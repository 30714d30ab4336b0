//! Limits the connections of each source before its identity is known. Pure.
//!
//! A source is an IPv4 address or an IPv6 network, because the owner of an IPv6 network has 2⁶⁴ addresses.
//! Many unrelated clients may share a source, so a client that can prove who it is, by a certificate or by another
//! credential, is never locked out. Beyond a source's limits a connection enters the proving lane, in which the
//! proof must come soon. If that lane is full, the oldest connection that has had enough time is displaced. The
//! lane is so wide that it takes more than a hundred new connections a second before it is full of younger ones.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use crate::rate::{Rate, TokenBucket};

/// Most connections of one source in the proving lane. Beyond this number the oldest is displaced, or the newest refused.
/// A burst of 500 and 100 new ones a second leave room for clients that prove themselves.
pub const PROVING_MAX: usize = 640;

/// The longest time that a connection may stay in the proving lane.
pub const PROVING_TIME_MAX: Duration = Duration::from_secs(5);

/// A connection in the proving lane has at least this time: some round trips of a bad link.
const PROVING_TIME_MIN: Duration = Duration::from_millis(1_500);

// What came in the last 1.5 s at 100 a second finds a place beside a burst of 500 that is younger than that.
const _: () = assert!(100 * PROVING_TIME_MIN.as_millis() < 1_000 * (PROVING_MAX as u128 - 400));

/// Most sources that are remembered, which is twice the number of connections. Beyond this number a source
/// without a connection is forgotten.
pub(super) const SOURCES_MAX: usize = 20_000;

/// The limits of one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerSourceLimits {
    /// Most connections of clients that have not proved who they are.
    pub connections: usize,
    /// The rate of new connections, with or without proof.
    pub rate: Rate,
    /// Most connections beyond these limits, each of which must soon prove who its client is.
    pub proving: usize,
}

impl PerSourceLimits {
    /// The limits at a listener that sets none of its own.
    pub const DEFAULT: Self =
        Self { connections: 100, rate: Rate { per_second: 50, burst: 100 }, proving: PROVING_MAX };

    /// No limits, for listeners whose entry points have slots of their own for each source.
    pub const UNLIMITED: Self =
        Self { connections: usize::MAX, rate: Rate { per_second: u32::MAX, burst: u32::MAX }, proving: 0 };
}

/// The remembered sources. Dropping a `T` ends the handshake that it belongs to.
#[derive(Debug)]
pub(super) struct Sources<T> {
    limits: PerSourceLimits,
    by_prefix: HashMap<IpAddr, SourceState<T>>,
    admitted: u64,
}

#[derive(Debug)]
struct SourceState<T> {
    bucket: TokenBucket,
    /// Connections outside the proving lane without proof.
    open: usize,
    /// Connections in the proving lane, the oldest first.
    proving: VecDeque<PendingProof<T>>,
}

#[derive(Debug)]
struct PendingProof<T> {
    number: u64,
    since: Instant,
    ends: T,
}

/// The lane of one admitted connection. It is given back once, to [`Sources::released`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SourceAdmission {
    pub(super) source: IpAddr,
    lane: Lane,
    number: u64,
}

/// The part of a source's limits that a connection uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// The client needs no proof.
    Open,
    /// The proof must come in time.
    Proving,
}

/// The decision about a new connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SourceDecision<T> {
    /// The connection is admitted, perhaps in place of another, whose handshake ends.
    Granted(SourceAdmission, Option<T>),
    /// The connection is refused and must be closed.
    Refused,
}

impl SourceAdmission {
    /// Returns true if the client must prove who it is.
    pub(super) fn must_prove(self) -> bool {
        self.lane == Lane::Proving
    }
}

impl<T> Sources<T> {
    pub(super) fn new(limits: PerSourceLimits) -> Self {
        Self { limits, by_prefix: HashMap::new(), admitted: 0 }
    }

    /// Admits or refuses one more connection from `address`, to this `lane` or a stricter one. Dropping `ends`
    /// ends the connection.
    pub(super) fn admit(&mut self, address: IpAddr, lane: Lane, ends: T, now: Instant) -> SourceDecision<T> {
        let limits = self.limits;
        self.admitted += 1;
        let number = self.admitted;
        let prefix = source_of(address);
        self.make_room(prefix);
        let source = self.by_prefix.entry(prefix).or_insert_with(|| SourceState::new(now));
        let is_slow_enough = source.bucket.take(limits.rate, now);
        if lane == Lane::Open && is_slow_enough && source.open < limits.connections {
            source.open += 1;
            return SourceDecision::Granted(SourceAdmission { source: prefix, lane, number }, None);
        }
        let mut displaced = None;
        if source.proving.len() >= limits.proving {
            let had_time =
                |oldest: &PendingProof<T>| now.saturating_duration_since(oldest.since) >= PROVING_TIME_MIN;
            if !source.proving.front().is_some_and(had_time) {
                return SourceDecision::Refused;
            }
            displaced = source.proving.pop_front().map(|oldest| oldest.ends);
        }
        source.proving.push_back(PendingProof { number, since: now, ends });
        SourceDecision::Granted(SourceAdmission { source: prefix, lane: Lane::Proving, number }, displaced)
    }

    /// Counts a connection from `address` that was admitted before, whatever the limits say of a new one.
    pub(super) fn admit_again(&mut self, address: IpAddr, now: Instant) -> SourceAdmission {
        self.admitted += 1;
        let source = source_of(address);
        self.make_room(source);
        self.by_prefix.entry(source).or_insert_with(|| SourceState::new(now)).open += 1;
        SourceAdmission { source, lane: Lane::Open, number: self.admitted }
    }

    /// Releases a connection that has ended, or whose client has proved who it is.
    pub(super) fn released(&mut self, admission: SourceAdmission) {
        let Some(source) = self.by_prefix.get_mut(&admission.source) else { return };
        match admission.lane {
            Lane::Open => source.open = source.open.saturating_sub(1),
            // A displaced connection has left the lane already.
            Lane::Proving => source.proving.retain(|proving| proving.number != admission.number),
        }
    }

    /// The most connections without proof that any source has.
    pub(super) fn busiest(&self) -> usize {
        self.by_prefix.values().map(|source| source.open).max().unwrap_or_default()
    }

    /// Makes room for one more source, unless this one is known.
    fn make_room(&mut self, prefix: IpAddr) {
        if self.by_prefix.len() < SOURCES_MAX || self.by_prefix.contains_key(&prefix) {
            return;
        }
        // Any idle one: a search for the oldest would be slow under an attack from many sources.
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
        let (bucket, proving) = (TokenBucket::full(now), VecDeque::new());
        Self { bucket, open: 0, proving }
    }

    fn is_idle(&self) -> bool {
        self.open == 0 && self.proving.is_empty()
    }
}

/// The source of an address: the /64 network of an IPv6 address, or the IPv4 address, even if it is mapped to
/// IPv6.
#[must_use]
pub fn source_of(address: IpAddr) -> IpAddr {
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

    const PROVING: usize = 16;
    const LIMITS: PerSourceLimits =
        PerSourceLimits { connections: 5, rate: Rate { per_second: 10, burst: 10 }, proving: PROVING };

    /// Both the number of connections and their rate are limited. Other sources are not affected.
    #[test]
    fn beyond_a_sources_limits_a_proof_is_required() {
        let (mut sources, now) = (Sources::new(LIMITS), Instant::now());
        let [busy, same, other] =
            ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"].map(|a| a.parse().unwrap());
        let admissions: Vec<SourceAdmission> = (0..5).map(|_| granted(&mut sources, busy, now)).collect();
        assert!(admissions.iter().all(|admission| !admission.must_prove()));

        assert!(granted(&mut sources, same, now).must_prove(), "the same network, one beyond");
        assert!(!granted(&mut sources, other, now).must_prove());
        sources.released(admissions[0]);
        assert!(!granted(&mut sources, busy, now).must_prove(), "free again");

        let quick = "192.0.2.1".parse().unwrap();
        for _ in 0..10 {
            let admission = granted(&mut sources, quick, now);
            assert!(!admission.must_prove());
            sources.released(admission);
        }
        assert!(granted(&mut sources, quick, now).must_prove(), "the eleventh at once");
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        assert!(granted(&mut sources, mapped, now).must_prove(), "the same address");
        assert!(!granted(&mut sources, quick, now + Duration::from_secs(1)).must_prove());
    }

    #[test]
    fn a_connection_with_proof_does_not_count() {
        let (mut sources, now, nat) = (Sources::new(LIMITS), Instant::now(), "192.0.2.1".parse().unwrap());
        for _ in 0..1_000 {
            let admission = granted(&mut sources, nat, now);
            sources.released(admission);
        }
        assert_eq!(sources.busiest(), 0);
        assert!(sources.by_prefix.values().all(|source| source.proving.is_empty()));
    }

    #[test]
    fn a_full_lane_displaces_its_oldest_only_after_enough_time() {
        let (mut sources, now, nat) = (Sources::new(LIMITS), Instant::now(), "192.0.2.1".parse().unwrap());
        let flood = |sources: &mut Sources<u32>, now| {
            (0..1_000)
                .filter(|_| matches!(sources.admit(nat, Lane::Open, 0, now), SourceDecision::Granted(..)))
                .count()
        };
        assert_eq!(flood(&mut sources, now), 5 + PROVING);
        let soon = now + PROVING_TIME_MIN - Duration::from_millis(1);
        sources.by_prefix.values_mut().for_each(|source| source.open = LIMITS.connections);
        assert_eq!(sources.admit(nat, Lane::Open, 0, soon), SourceDecision::Refused);

        let later = now + PROVING_TIME_MIN;
        let SourceDecision::Granted(admission, Some(_)) = sources.admit(nat, Lane::Open, 7, later) else {
            panic!("the oldest goes")
        };
        assert!(admission.must_prove());
        sources.released(admission);

        assert_eq!(flood(&mut sources, later), PROVING, "old connections are displaced, and no young one is");
    }

    #[test]
    fn the_number_of_sources_is_bounded_and_connected_ones_stay() {
        let (mut sources, now) = (Sources::new(LIMITS), Instant::now());
        let address = |n: usize| IpAddr::from(u32::try_from(n).unwrap().to_be_bytes());
        let connected = granted(&mut sources, address(0), now);
        for n in 1..SOURCES_MAX + 1_000 {
            let admission = granted(&mut sources, address(n), now + Duration::from_micros(n as u64));
            sources.released(admission);
            assert!(sources.len() <= SOURCES_MAX);
        }
        assert!(sources.by_prefix.contains_key(&connected.source));
    }

    fn granted(sources: &mut Sources<u32>, address: IpAddr, now: Instant) -> SourceAdmission {
        match sources.admit(address, Lane::Open, 0, now) {
            SourceDecision::Granted(admission, _) => admission,
            SourceDecision::Refused => panic!("refused"),
        }
    }
}
