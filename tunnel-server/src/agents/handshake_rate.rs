//! Limits how fast handshakes over UDP may begin without proof of the source address, in total and for each
//! network.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use daemon::TokenBucket;

use crate::config::AgentLimits;

/// Most networks with a rate of their own. Beyond this number slow networks are forgotten, and if that is not
/// enough, all of them.
pub(super) const NETWORKS_MAX: usize = 4_096;

/// The recent handshakes, in total and by network.
#[derive(Debug)]
pub(super) struct HandshakeRate {
    limits: AgentLimits,
    all: TokenBucket,
    by_network: HashMap<IpAddr, TokenBucket>,
}

impl HandshakeRate {
    /// Creates full buckets, with rates from `limits`.
    pub(super) fn new(limits: AgentLimits, now: Instant) -> Self {
        Self { limits, all: TokenBucket::full(now), by_network: HashMap::new() }
    }

    /// Returns true if one more handshake from `address` may begin without proof of that address.
    pub(super) fn allows(&mut self, address: IpAddr, now: Instant) -> bool {
        let network = network(address);
        if !self.by_network.contains_key(&network) && self.by_network.len() >= NETWORKS_MAX {
            self.by_network.retain(|_, bucket| !bucket.is_full(now));
            // Addresses are easily forged here; the total rate still applies.
            if self.by_network.len() >= NETWORKS_MAX {
                self.by_network.clear();
            }
        }
        let network_bucket = self.by_network.entry(network).or_insert_with(|| TokenBucket::full(now));
        network_bucket.take(self.limits.unproved_rate_of_network, now)
            && self.all.take(self.limits.unproved_rate, now)
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            Ipv4Addr::new(a, b, c, 0).into()
        }
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d & 0xff00, 0, 0, 0, 0).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn fresh() -> (HandshakeRate, AgentLimits, Instant) {
        let (limits, now) = (AgentLimits::default(), Instant::now());
        (HandshakeRate::new(limits, now), limits, now)
    }

    #[test]
    fn a_busy_network_must_prove_its_address_and_others_need_not() {
        let (mut rate, limits, now) = fresh();
        let burst = limits.unproved_rate_of_network.burst as usize;
        let same_network = |n: usize| IpAddr::from([192, 0, 2, u8::try_from(n % 250).unwrap()]);

        assert_eq!((0..1_000).filter(|n| rate.allows(same_network(*n), now)).count(), burst);

        assert!(rate.allows([192, 0, 3, 1].into(), now));
        assert!(rate.allows("2001:db8::1".parse().unwrap(), now));
        let later = now + Duration::from_secs(1);
        let per_second = limits.unproved_rate_of_network.per_second as usize;
        assert_eq!((0..1_000).filter(|n| rate.allows(same_network(*n), later)).count(), per_second);
    }

    /// Both limits hold for any number of source networks.
    #[test]
    fn the_total_rate_and_the_number_of_networks_are_bounded() {
        let (mut rate, limits, now) = fresh();
        let forged = |n: u32| IpAddr::from((n << 8).to_be_bytes());

        let mut allowed = 0;
        for n in 0..20_000 {
            allowed += u32::from(rate.allows(forged(n), now));
            assert!(rate.by_network.len() <= NETWORKS_MAX);
        }

        assert_eq!(allowed, limits.unproved_rate.burst);
        assert_eq!(
            network("2001:db8:0:12ff::1".parse().unwrap()),
            network("2001:db8:0:1234::9".parse().unwrap())
        );
    }
}
