//! A NAT as home routers and carriers have it: every sender behind it appears under a port that the NAT
//! chose, and is forgotten when it is quiet.
//!
//! It translates IPv4 with UDP and TCP; all other packets pass unchanged.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Serialize;

use crate::packet::{self, End};
use crate::rng::SeededRng;

/// The range from which ports are chosen.
const PORTS: RangeInclusive<u16> = 20_000..=59_999;
/// Most senders that are remembered at once; a packet of one more is dropped.
pub const MAPPINGS_MAX: usize = 16_384;
/// Most ports that are tried for a new sender.
const TRIES_MAX: usize = 64;

/// The options of a NAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NatOptions {
    /// The address that the other side sees; each sender's own, if `None`.
    pub address: Option<Ipv4Addr>,
    /// Time after which a sender without packets in either direction is forgotten.
    pub expiry: Duration,
}

/// The mappings of senders to the ports under which the other side sees them. It rewrites packets and moves
/// none.
#[derive(Debug)]
pub struct Nat {
    options: NatOptions,
    rng: SeededRng,
    by_inside: HashMap<TransportAddress, Mapping>,
    by_outside: HashMap<TransportAddress, TransportAddress>,
    /// Counters of everything that happened so far.
    pub counters: NatCounters,
}

/// Counters of a NAT's mappings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct NatCounters {
    /// Mappings made since the start.
    pub mapped: u64,
    /// Mappings forgotten because they were quiet.
    pub expired: u64,
    /// Mappings that were forgotten on command.
    pub rebound: u64,
}

/// The protocol's number, an address and a port.
type TransportAddress = (u8, Ipv4Addr, u16);

#[derive(Debug, Clone, Copy)]
struct Mapping {
    outside: TransportAddress,
    used: Duration,
}

impl Nat {
    /// A NAT without any mapping.
    pub fn new(options: NatOptions, seed: u64) -> Self {
        Self {
            options,
            rng: SeededRng::new(seed),
            by_inside: HashMap::new(),
            by_outside: HashMap::new(),
            counters: NatCounters::default(),
        }
    }

    /// Rewrites an outgoing packet. Returns `false` if it must be dropped, because all mappings are taken.
    pub fn outbound(&mut self, now: Duration, packet: &mut [u8]) -> bool {
        let Some(inside) = transport_address(packet, End::Source) else { return true };
        let outside = match self.refresh(now, inside) {
            Some(outside) => outside,
            None => match self.map(now, inside) {
                Some(outside) => outside,
                None => return false,
            },
        };
        packet::readdress(packet, End::Source, outside.1, outside.2);
        true
    }

    /// Rewrites an incoming packet. Returns `false` if it must be dropped, because no sender has that port.
    pub fn inbound(&mut self, now: Duration, packet: &mut [u8]) -> bool {
        let Some(outside) = transport_address(packet, End::Destination) else { return true };
        let Some(&inside) = self.by_outside.get(&outside) else { return false };
        if self.refresh(now, inside).is_none() {
            return false;
        }
        packet::readdress(packet, End::Destination, inside.1, inside.2);
        true
    }

    /// Forgets all senders: the next packet of each leaves from another port, from `address` if one is given,
    /// and packets to the old port are dropped.
    pub fn rebind(&mut self, address: Option<Ipv4Addr>) -> usize {
        let forgotten = self.by_inside.len();
        self.by_inside.clear();
        self.by_outside.clear();
        self.counters.rebound += forgotten as u64;
        self.options.address = address.or(self.options.address);
        forgotten
    }

    // The outside address of a mapping that has not expired; marks it as used now.
    fn refresh(&mut self, now: Duration, inside: TransportAddress) -> Option<TransportAddress> {
        let mapping = self.by_inside.get_mut(&inside)?;
        if now.saturating_sub(mapping.used) > self.options.expiry {
            let outside = mapping.outside;
            self.by_inside.remove(&inside);
            self.by_outside.remove(&outside);
            self.counters.expired += 1;
            return None;
        }
        mapping.used = now;
        Some(mapping.outside)
    }

    fn map(&mut self, now: Duration, inside: TransportAddress) -> Option<TransportAddress> {
        if self.by_inside.len() >= MAPPINGS_MAX {
            self.expire_quiet(now);
        }
        if self.by_inside.len() >= MAPPINGS_MAX {
            return None;
        }
        let address = self.options.address.unwrap_or(inside.1);
        let room = u64::from(PORTS.end() - PORTS.start()) + 1;
        for _ in 0..TRIES_MAX {
            let port = PORTS.start() + self.rng.below(room) as u16;
            let outside = (inside.0, address, port);
            if let Entry::Vacant(free) = self.by_outside.entry(outside) {
                free.insert(inside);
                self.by_inside.insert(inside, Mapping { outside, used: now });
                self.counters.mapped += 1;
                return Some(outside);
            }
        }
        None
    }

    fn expire_quiet(&mut self, now: Duration) {
        let quiet: Vec<TransportAddress> = self.by_inside.keys().copied().collect();
        for inside in quiet {
            let used = self.by_inside[&inside].used;
            if self.refresh(now, inside).is_some()
                && let Some(mapping) = self.by_inside.get_mut(&inside)
            {
                mapping.used = used; // Checking a mapping does not use it.
            }
        }
    }
}

fn transport_address(packet: &[u8], end: End) -> Option<TransportAddress> {
    Some((packet::protocol(packet)?, packet::address(packet, end)?, packet::port(packet, end)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::tests::{is_right, udp};

    const INSIDE: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 0, 0, 2), 5000);
    const PEER: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 8443);
    const OUTSIDE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
    const EXPIRY: Duration = Duration::from_secs(30);

    fn nat() -> Nat {
        Nat::new(NatOptions { address: Some(OUTSIDE), expiry: EXPIRY }, 1)
    }

    /// The sender of a packet from inside, as the peer sees it.
    fn seen(nat: &mut Nat, now: u64, from: (Ipv4Addr, u16)) -> (Ipv4Addr, u16) {
        let mut packet = udp(from, PEER, b"there");
        assert!(nat.outbound(Duration::from_secs(now), &mut packet));
        assert!(is_right(&packet));
        (packet::address(&packet, End::Source).unwrap(), packet::port(&packet, End::Source).unwrap())
    }

    /// The sender inside that gets a packet of the peer to this address.
    fn answered(nat: &mut Nat, now: u64, to: (Ipv4Addr, u16)) -> Option<(Ipv4Addr, u16)> {
        let mut packet = udp(PEER, to, b"back");
        let passed = nat.inbound(Duration::from_secs(now), &mut packet);
        assert!(is_right(&packet));
        let to = packet::address(&packet, End::Destination).zip(packet::port(&packet, End::Destination));
        passed.then(|| to.unwrap())
    }

    #[test]
    fn a_sender_keeps_its_port_and_answers_find_it() {
        let mut nat = nat();
        let first = seen(&mut nat, 0, INSIDE);
        assert_eq!(first.0, OUTSIDE);
        assert_ne!(first.1, INSIDE.1);
        assert_eq!(seen(&mut nat, 20, INSIDE), first);
        assert_eq!(answered(&mut nat, 40, first), Some(INSIDE));
        assert_ne!(seen(&mut nat, 41, (INSIDE.0, 5001)), first);
    }

    #[test]
    fn a_quiet_sender_is_forgotten_and_comes_back_under_another_port() {
        let mut nat = nat();
        let first = seen(&mut nat, 0, INSIDE);
        assert_eq!(answered(&mut nat, 31, first), None);
        assert_ne!(seen(&mut nat, 32, INSIDE), first);
        assert_eq!(nat.counters.expired, 1);
    }

    #[test]
    fn after_a_rebinding_the_old_port_leads_nowhere() {
        let mut nat = nat();
        let first = seen(&mut nat, 0, INSIDE);
        assert_eq!(nat.rebind(Some(Ipv4Addr::new(203, 0, 113, 8))), 1);
        assert_eq!(answered(&mut nat, 0, first), None);
        let second = seen(&mut nat, 0, INSIDE);
        assert_eq!(second.0, Ipv4Addr::new(203, 0, 113, 8));
        assert_eq!(answered(&mut nat, 0, second), Some(INSIDE));
    }

    #[test]
    fn the_same_seed_chooses_the_same_ports() {
        assert_eq!(seen(&mut nat(), 0, INSIDE), seen(&mut nat(), 0, INSIDE));
    }

    #[test]
    fn a_full_table_drops_new_senders_until_old_ones_have_been_quiet() {
        let mut nat = nat();
        for number in 0..MAPPINGS_MAX as u32 {
            seen(&mut nat, 0, (Ipv4Addr::from_bits(0x0a00_0000 + number), 1));
        }
        let mut packet = udp(INSIDE, PEER, b"");
        assert!(!nat.outbound(Duration::from_secs(1), &mut packet));
        assert!(nat.outbound(Duration::from_secs(31), &mut packet));
    }
}
