//! The destinations of requests: a cluster's API servers that are ready, or the one in the agent's own
//! credential if none is.
//!
//! It only decides: time and random numbers are arguments, and [`super::probing`] sends the probes that are
//! due.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::config::API_SERVERS_MAX;

/// Interval between probes of an API server that is ready. Up to a quarter less, so that not all agents probe
/// at once.
pub const PROBE_EVERY: Duration = Duration::from_millis(400);

/// Interval between probes of an API server that is not ready.
pub const PROBE_AGAIN_EVERY: Duration = Duration::from_secs(1);

/// Longest wait for the answer to a probe, TCP and TLS included. Without an answer the API server is not
/// ready.
pub const PROBE_MAX: Duration = Duration::from_millis(500);

// A dead API server gets no requests after a second at most, and one that is up again gets them within two.
const _: () = assert!(PROBE_EVERY.as_millis() + PROBE_MAX.as_millis() < 1000);
const _: () = assert!(PROBE_AGAIN_EVERY.as_millis() + PROBE_MAX.as_millis() < 2000);

/// The destination of a request: an API server at this address, or `None` for the one that the credential
/// names.
pub(super) type Destination = Option<SocketAddr>;

/// The API servers of one cluster. By default none is known, and requests go to the address in the
/// credential.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    members: Vec<Member>,
    /// Two or more were known at some time. A single one is not probed, because the credential most likely
    /// names it. But one that is left over may be another.
    has_been_many: bool,
}

#[derive(Debug, Clone)]
struct Member {
    address: SocketAddr,
    is_ready: bool,
    /// Time of the next probe. `None` while one is under way.
    due: Option<Instant>,
}

impl Endpoints {
    /// Replaces the API servers. Known ones keep their state. New ones are probed at once, and are not ready
    /// before they answer.
    pub(super) fn set(&mut self, addresses: &[SocketAddr], now: Instant) {
        let mut members: Vec<Member> = Vec::new();
        for address in addresses {
            if members.len() < API_SERVERS_MAX && !members.iter().any(|member| member.address == *address) {
                let known = self.members.iter().find(|member| member.address == *address).cloned();
                members.push(known.unwrap_or(Member { address: *address, is_ready: false, due: Some(now) }));
            }
        }
        self.has_been_many |= members.len() > 1;
        self.members = members;
    }

    /// The addresses of API servers that are ready.
    pub(super) fn ready(&self) -> impl Iterator<Item = SocketAddr> {
        self.probed_members().filter(|member| member.is_ready).map(|member| member.address)
    }

    /// Every destination of a request now, at least one.
    pub(super) fn destinations(&self) -> Vec<Destination> {
        let ready: Vec<Destination> = self.ready().map(Some).collect();
        if ready.is_empty() { vec![None] } else { ready }
    }

    /// Returns true if an API server at `address` is known and not ready.
    pub(super) fn is_down(&self, address: SocketAddr) -> bool {
        self.probed_members().any(|member| member.address == address && !member.is_ready)
    }

    /// Returns true if an API server at `address` is known.
    pub(super) fn has(&self, address: SocketAddr) -> bool {
        self.members.iter().any(|member| member.address == address)
    }

    /// The numbers of API servers that are ready, and that are not.
    pub(super) fn count(&self) -> (usize, usize) {
        let ready = self.ready().count();
        (ready, self.probed_members().count() - ready)
    }

    /// The API servers that are to be probed now. A probe of each is under way until [`Self::probed`].
    pub(super) fn due(&mut self, now: Instant) -> Vec<SocketAddr> {
        let due = if self.has_been_many { self.members.as_mut_slice() } else { &mut [] };
        let due = due.iter_mut().filter(|member| member.due.is_some_and(|due| due <= now));
        due.map(|member| {
            member.due = None;
            member.address
        })
        .collect()
    }

    /// Time of the next probe, if there is one.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.probed_members().filter_map(|member| member.due).min()
    }

    /// The probe of an API server has ended. `random` is evenly distributed. Returns whether its readiness
    /// has changed.
    pub(super) fn probed(&mut self, address: SocketAddr, is_ready: bool, now: Instant, random: u8) -> bool {
        let Some(member) = self.members.iter_mut().find(|member| member.address == address) else {
            return false;
        };
        let every = if is_ready { PROBE_EVERY } else { PROBE_AGAIN_EVERY };
        member.due = Some(now + every - every * u32::from(random) / (4 * u32::from(u8::MAX)));
        let changed = member.is_ready != is_ready;
        member.is_ready = is_ready;
        changed
    }

    /// A connection to an API server could not be made, so it is not ready until a probe succeeds. Returns
    /// whether that is a change.
    pub(super) fn failed(&mut self, address: SocketAddr, now: Instant) -> bool {
        let Some(member) = self.members.iter_mut().find(|member| member.address == address) else {
            return false;
        };
        // If a probe is under way, its result counts.
        member.due = member.due.map(|_| now + PROBE_AGAIN_EVERY);
        std::mem::replace(&mut member.is_ready, false)
    }

    fn probed_members(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|_| self.has_been_many)
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

    /// Endpoints of which all were probed, and these are ready.
    fn endpoints(all: &[u8], ready: &[u8], now: Instant) -> Endpoints {
        let mut endpoints = Endpoints::default();
        endpoints.set(&addresses(all), now);
        for asked in endpoints.due(now) {
            endpoints.probed(asked, addresses(ready).contains(&asked), now, 0);
        }
        endpoints
    }

    #[test]
    fn a_new_one_is_probed_at_once_and_used_once_it_has_answered() {
        let now = Instant::now();
        let mut endpoints = endpoints(&[1, 2], &[1, 2], now);
        endpoints.set(&addresses(&[1, 2, 3]), now);

        assert_eq!(endpoints.destinations(), [Some(address(1)), Some(address(2))]);
        assert_eq!(endpoints.due(now), [address(3)]);
        assert_eq!(endpoints.due(now), []);
        assert!(endpoints.probed(address(3), true, now, 0));
        assert_eq!(endpoints.destinations(), [Some(address(1)), Some(address(2)), Some(address(3))]);
    }

    #[test]
    fn where_none_is_ready_the_credentials_own_is_used() {
        let now = Instant::now();

        assert_eq!(Endpoints::default().destinations(), [None]);
        assert_eq!(endpoints(&[1, 2], &[], now).destinations(), [None]);
        let mut one_dies = endpoints(&[1, 2], &[1], now);
        assert_eq!(one_dies.destinations(), [Some(address(1))]);
        assert!(one_dies.failed(address(1), now));
        assert_eq!(one_dies.destinations(), [None]);
    }

    #[test]
    fn a_single_one_is_not_probed_but_one_that_is_left_over_is() {
        let now = Instant::now();
        let mut alone = Endpoints::default();
        alone.set(&addresses(&[1]), now);
        assert_eq!((alone.due(now), alone.next_due(), alone.destinations()), (vec![], None, vec![None]));

        let mut left = endpoints(&[1, 2], &[1, 2], now);
        left.set(&addresses(&[2]), now);
        assert_eq!(left.destinations(), [Some(address(2))]);
        assert!(left.next_due().is_some());
    }

    #[test]
    fn api_servers_are_used_up_to_their_limit() {
        let now = Instant::now();
        let all: Vec<u8> = (0..40).chain(0..40).collect();

        let endpoints = endpoints(&all, &all, now);

        assert_eq!(endpoints.destinations().len(), API_SERVERS_MAX);
    }

    #[test]
    fn an_unreachable_one_is_not_ready_until_a_probe_succeeds() {
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
        /// Each step changes the API servers of a cluster, or lets a time pass in which those of `alive`
        /// answer.
        #[test]
        fn a_dead_one_is_left_within_1_s_and_a_new_one_used_within_2_s(
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
                // Probes under way, each with the time of its result: at once, or when the wait for an answer
                // is over.
                let mut asked: Vec<(SocketAddr, Instant)> = Vec::new();
                loop {
                    for address in endpoints.due(now) {
                        asked.push((address, if is_alive(address) { now } else { now + PROBE_MAX }));
                    }
                    let (answered, waiting): (Vec<_>, Vec<_>) = asked.into_iter().partition(|(_, at)| *at <= now);
                    asked = waiting;
                    for (address, _) in answered {
                        endpoints.probed(address, is_alive(address), now, random);
                    }
                    let destinations = endpoints.destinations();
                    prop_assert!(!destinations.is_empty());
                    prop_assert!(destinations.iter().flatten().all(|address| addresses(&there).contains(address)));
                    if now >= since + Duration::from_secs(1) {
                        prop_assert!(destinations.iter().flatten().all(|address| is_alive(*address)), "{destinations:?} {alive:b}");
                    }
                    if now >= since + Duration::from_secs(2) {
                        let expected = addresses(&there).into_iter().filter(|one| is_alive(*one));
                        prop_assert!(expected.clone().all(|one| destinations.contains(&Some(one))), "{destinations:?} {alive:b}");
                    }
                    if now >= until {
                        // The next step begins without a probe under way, as if those that wait had timed out
                        // now.
                        for (address, _) in asked.drain(..) {
                            endpoints.probed(address, false, now, random);
                        }
                        break;
                    }
                    now += Duration::from_millis(10);
                }
            }
        }
    }
}
