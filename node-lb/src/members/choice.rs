//! The choice of an API server for a new connection.

use std::net::SocketAddr;
use std::time::Duration;

use super::grade::Grade;
use super::state::{Member, Members};

/// API servers whose round trip is longer than the shortest one by more than this get no connections while a
/// nearer one is as healthy.
const ROUND_TRIP_DIFFERENCE_MAX: Duration = Duration::from_millis(5);

/// The order in which API servers are used: those of the first rank that has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Ready,
    ReadyLastResort,
    Alive,
    AliveLastResort,
    Down,
}

impl Rank {
    fn of(member: &Member) -> Option<Self> {
        match (member.grade, member.is_named()) {
            (Grade::Ready, true) => Some(Self::Ready),
            (Grade::Ready, false) => Some(Self::ReadyLastResort),
            (Grade::Alive, true) => Some(Self::Alive),
            (Grade::Alive, false) => Some(Self::AliveLastResort),
            (Grade::Down, _) => Some(Self::Down),
            (Grade::Unproven, _) => None,
        }
    }
}

impl Members {
    /// The API server for a new connection, other than those in `tried`: of two random ones the one with fewer
    /// connections. If all are down, each in turn. `None` if none is left that has ever shown a certificate of
    /// the cluster's CA.
    pub fn choose(&mut self, tried: &[SocketAddr], mut random: impl FnMut() -> u32) -> Option<&Member> {
        let usable = |member: &&Member| !tried.contains(&member.address);
        let rank = self.list.iter().filter(usable).filter_map(Rank::of).min()?;
        let ranked: Vec<&Member> =
            self.list.iter().filter(usable).filter(|member| Rank::of(member) == Some(rank)).collect();
        if rank == Rank::Down {
            self.turns = self.turns.wrapping_add(1);
            return Some(ranked[self.turns % ranked.len()]);
        }
        let nearest = ranked.iter().filter_map(|member| member.round_trip()).min().unwrap_or_default();
        let is_near = |member: &&&Member| {
            member.round_trip().is_none_or(|time| time <= nearest + ROUND_TRIP_DIFFERENCE_MAX)
        };
        let near: Vec<&Member> = ranked.iter().filter(is_near).copied().collect();
        let first = below(near.len(), random());
        // Another one than the first, each with the same chance.
        let second =
            if near.len() < 2 { first } else { (first + 1 + below(near.len() - 1, random())) % near.len() };
        let of_two = [near[first], near[second]];
        of_two.into_iter().min_by_key(|member| member.traffic.connections())
    }
}

/// A number below `count`, evenly distributed as `random` is. `count` is small.
fn below(count: usize, random: u32) -> usize {
    usize::try_from((u64::from(random) * count as u64) >> 32).unwrap_or_default()
}
