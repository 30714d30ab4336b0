//! Which of a cluster's API servers may be asked now: those that say they are ready; where none does, the one that the
//! agent's own credential names.
//!
//! Decides and does nothing: time and chance come in as arguments, [`super::probing`] asks the questions that are due.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::config::API_SERVERS_MAX;

/// How often an API server that is ready is asked whether it still is. Up to a quarter less, so that not all agents ask at
/// once.
pub const PROBE_EVERY: Duration = Duration::from_millis(400);

/// How often one is asked that is not.
pub const PROBE_AGAIN_EVERY: Duration = Duration::from_secs(1);

/// It answers within this time, TCP and TLS included, or it is not ready.
pub const PROBE_MAX: Duration = Duration::from_millis(500);

// One that has died is not asked for longer than a second, and one that has come to life is within two.
const _: () = assert!(PROBE_EVERY.as_millis() + PROBE_MAX.as_millis() < 1000);
const _: () = assert!(PROBE_AGAIN_EVERY.as_millis() + PROBE_MAX.as_millis() < 2000);

/// Where a request may go: to an API server at this address, or to the one that the credential names.
pub(crate) type Place = Option<SocketAddr>;

/// The API servers of one cluster. The default knows none: requests go where the credential says.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    members: Vec<Member>,
    /// Two were known at some time. One alone is asked where the credential says, which is most likely itself; but one that
    /// is left over may be another.
    is_many: bool,
}

#[derive(Debug, Clone)]
struct Member {
    address: SocketAddr,
    is_ready: bool,
    /// When it is to be asked; `None` while it is.
    due: Option<Instant>,
}

impl Endpoints {
    /// From now on these are all. What is known of those that were there before stays; others are asked at once, and are not
    /// ready before they answer.
    pub(super) fn set(&mut self, addresses: &[SocketAddr], now: Instant) {
        let mut members: Vec<Member> = Vec::new();
        for address in addresses {
            if members.len() < API_SERVERS_MAX && !members.iter().any(|member| member.address == *address) {
                let known = self.members.iter().find(|member| member.address == *address).cloned();
                members.push(known.unwrap_or(Member { address: *address, is_ready: false, due: Some(now) }));
            }
        }
        self.is_many |= members.len() > 1;
        self.members = members;
    }

    /// The API servers that are ready.
    pub(super) fn ready(&self) -> impl Iterator<Item = SocketAddr> {
        self.asked().filter(|member| member.is_ready).map(|member| member.address)
    }

    /// Every place where a request may go now; one at least.
    pub(super) fn places(&self) -> Vec<Place> {
        let ready: Vec<Place> = self.ready().map(Some).collect();
        if ready.is_empty() { vec![None] } else { ready }
    }

    /// Whether an API server at `address` is known, and not ready.
    pub(super) fn is_down(&self, address: SocketAddr) -> bool {
        self.asked().any(|member| member.address == address && !member.is_ready)
    }

    /// Whether an API server at `address` is known.
    pub(super) fn has(&self, address: SocketAddr) -> bool {
        self.members.iter().any(|member| member.address == address)
    }

    /// How many are ready, and how many are not.
    pub(super) fn count(&self) -> (usize, usize) {
        let ready = self.ready().count();
        (ready, self.asked().count() - ready)
    }

    /// Those that are to be asked now; they are asked until [`Self::heard`].
    pub(super) fn due(&mut self, now: Instant) -> Vec<SocketAddr> {
        let due = if self.is_many { self.members.as_mut_slice() } else { &mut [] };
        let due = due.iter_mut().filter(|member| member.due.is_some_and(|due| due <= now));
        due.map(|member| {
            member.due = None;
            member.address
        })
        .collect()
    }

    /// When the next one is to be asked, if any is.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.asked().filter_map(|member| member.due).min()
    }

    /// One that was asked has answered, or has not. `random` is any number, evenly distributed. Says whether anything changed.
    pub(super) fn heard(&mut self, address: SocketAddr, is_ready: bool, now: Instant, random: u8) -> bool {
        let Some(member) = self.members.iter_mut().find(|member| member.address == address) else {
            return false;
        };
        let every = if is_ready { PROBE_EVERY } else { PROBE_AGAIN_EVERY };
        member.due = Some(now + every - every * u32::from(random) / (4 * u32::from(u8::MAX)));
        let changed = member.is_ready != is_ready;
        member.is_ready = is_ready;
        changed
    }

    /// A connection to one could not be made: it is not ready before it has said so again. Says whether anything changed.
    pub(super) fn failed(&mut self, address: SocketAddr, now: Instant) -> bool {
        let Some(member) = self.members.iter_mut().find(|member| member.address == address) else {
            return false;
        };
        // Where a question is on its way, its answer counts.
        member.due = member.due.map(|_| now + PROBE_AGAIN_EVERY);
        std::mem::replace(&mut member.is_ready, false)
    }

    fn asked(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|_| self.is_many)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 6443))
    }

    fn addresses(lasts: &[u8]) -> Vec<SocketAddr> {
        lasts.iter().copied().map(address).collect()
    }

    /// Endpoints of which all were asked, and these are ready.
    fn endpoints(all: &[u8], ready: &[u8], now: Instant) -> Endpoints {
        let mut endpoints = Endpoints::default();
        endpoints.set(&addresses(all), now);
        for asked in endpoints.due(now) {
            endpoints.heard(asked, addresses(ready).contains(&asked), now, 0);
        }
        endpoints
    }

    #[test]
    fn a_new_one_is_asked_at_once_and_used_once_it_has_answered() {
        let now = Instant::now();
        let mut endpoints = endpoints(&[1, 2], &[1, 2], now);
        endpoints.set(&addresses(&[1, 2, 3]), now);

        assert_eq!(endpoints.places(), [Some(address(1)), Some(address(2))]);
        assert_eq!(endpoints.due(now), [address(3)]);
        assert_eq!(endpoints.due(now), []);
        assert!(endpoints.heard(address(3), true, now, 0));
        assert_eq!(endpoints.places(), [Some(address(1)), Some(address(2)), Some(address(3))]);
    }

    #[test]
    fn where_none_is_ready_the_credentials_own_is_asked() {
        let now = Instant::now();

        assert_eq!(Endpoints::default().places(), [None]);
        assert_eq!(endpoints(&[1, 2], &[], now).places(), [None]);
        let mut one_dies = endpoints(&[1, 2], &[1], now);
        assert_eq!(one_dies.places(), [Some(address(1))]);
        assert!(one_dies.failed(address(1), now));
        assert_eq!(one_dies.places(), [None]);
    }

    #[test]
    fn one_alone_is_not_asked_whether_it_lives_but_one_that_is_left_is() {
        let now = Instant::now();
        let mut alone = Endpoints::default();
        alone.set(&addresses(&[1]), now);
        assert_eq!((alone.due(now), alone.next_due(), alone.places()), (vec![], None, vec![None]));

        let mut left = endpoints(&[1, 2], &[1, 2], now);
        left.set(&addresses(&[2]), now);
        assert_eq!(left.places(), [Some(address(2))]);
        assert!(left.next_due().is_some());
    }

    #[test]
    fn no_more_api_servers_are_asked_than_may_be() {
        let now = Instant::now();
        let all: Vec<u8> = (0..40).chain(0..40).collect();

        let endpoints = endpoints(&all, &all, now);

        assert_eq!(endpoints.places().len(), API_SERVERS_MAX);
    }

    #[test]
    fn what_could_not_be_reached_is_not_ready_before_it_says_so_again() {
        let now = Instant::now();
        let mut endpoints = endpoints(&[1, 2], &[1, 2], now);

        assert!(endpoints.failed(address(1), now));
        assert!(!endpoints.failed(address(1), now));

        assert!(
            endpoints.is_down(address(1)) && !endpoints.is_down(address(2)) && !endpoints.is_down(address(9))
        );
        assert_eq!(endpoints.count(), (1, 1));
        assert_eq!(endpoints.due(now + PROBE_EVERY), [address(2)]);
        assert_eq!(endpoints.due(now + PROBE_AGAIN_EVERY), [address(1)]);
    }

    proptest! {
        /// One cluster through any fate: each step changes who is there, or lets a time pass in which those of `alive` answer.
        #[test]
        fn whoever_dies_is_left_within_a_second_and_whoever_comes_is_used_within_two(
            steps in prop::collection::vec((prop::collection::btree_set(0_u8..6, 2..6), 0_u8..64, any::<u8>(), 0_u64..3000), 1..20)
        ) {
            let mut now = Instant::now();
            let mut endpoints = Endpoints::default();
            for (there, alive, random, lasts) in steps {
                let there: Vec<u8> = there.into_iter().collect();
                endpoints.set(&addresses(&there), now);
                let is_alive = |address: SocketAddr| {
                    let SocketAddr::V4(address) = address else { return false };
                    alive & (1 << address.ip().octets()[3]) != 0
                };
                let (since, until) = (now, now + Duration::from_millis(lasts));
                // Questions on their way, with when their answer is there: at once, or when the wait for it is over.
                let mut asked: Vec<(SocketAddr, Instant)> = Vec::new();
                loop {
                    for address in endpoints.due(now) {
                        asked.push((address, if is_alive(address) { now } else { now + PROBE_MAX }));
                    }
                    let (answered, waiting): (Vec<_>, Vec<_>) = asked.into_iter().partition(|(_, at)| *at <= now);
                    asked = waiting;
                    for (address, _) in answered {
                        endpoints.heard(address, is_alive(address), now, random);
                    }
                    let places = endpoints.places();
                    prop_assert!(!places.is_empty());
                    prop_assert!(places.iter().flatten().all(|place| addresses(&there).contains(place)));
                    if now >= since + Duration::from_secs(1) {
                        prop_assert!(places.iter().flatten().all(|place| is_alive(*place)), "{places:?} {alive:b}");
                    }
                    if now >= since + Duration::from_secs(2) {
                        let expected = addresses(&there).into_iter().filter(|one| is_alive(*one));
                        prop_assert!(expected.clone().all(|one| places.contains(&Some(one))), "{places:?} {alive:b}");
                    }
                    if now >= until {
                        // The next step begins with nobody on the way, as if those that wait had timed out now.
                        for (address, _) in asked.drain(..) {
                            endpoints.heard(address, false, now, random);
                        }
                        break;
                    }
                    now += Duration::from_millis(10);
                }
            }
        }
    }
}
