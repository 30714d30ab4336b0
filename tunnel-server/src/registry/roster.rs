//! The tunnels of one cluster, and which of them serves best.

use std::time::{Duration, SystemTime};

use proto::greeting::BootNonce;
use proto::session::Health;
use proto::spiffe::AgentId;

use super::TUNNELS_PER_CLUSTER_MAX;

/// Tunnels whose round trip is within this of the best one's count as equally near; the one with fewer streams is taken.
const NEAR: Duration = Duration::from_millis(2);

/// One tunnel.
#[derive(Clone)]
pub(super) struct Entry<T> {
    pub(super) ticket: u64,
    pub(super) agent: AgentId,
    pub(super) boot: BootNonce,
    pub(super) since: SystemTime,
    pub(super) tunnel: T,
}

/// How a tunnel does, as far as the choice is concerned.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    pub(super) health: Health,
    pub(super) draining: bool,
    pub(super) round_trip: Duration,
    pub(super) streams: u32,
}

/// In the order in which they came.
pub(super) struct Roster<T>(Vec<Entry<T>>);

impl<T> Default for Roster<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Roster<T> {
    pub(super) fn entries(&self) -> &[Entry<T>] {
        &self.0
    }

    /// Enters a tunnel, unless there are too many.
    pub(super) fn enter(&mut self, entry: Entry<T>) -> Result<(), ()> {
        if self.0.len() >= TUNNELS_PER_CLUSTER_MAX {
            return Err(());
        }
        self.0.push(entry);
        Ok(())
    }

    /// Takes the tunnel with this ticket off, and no other, however alike they are.
    pub(super) fn strike_off(&mut self, ticket: u64) {
        self.0.retain(|entry| entry.ticket != ticket);
    }

    /// The tunnel for the next exchange: one that is not draining or lost, live before suspect, then near, then idle.
    pub(super) fn best(&self, standing: impl Fn(&T) -> Standing) -> Option<&Entry<T>> {
        let usable: Vec<(&Entry<T>, Standing)> = self
            .0
            .iter()
            .filter(|entry| !self.is_superseded(entry))
            .map(|entry| (entry, standing(&entry.tunnel)))
            .filter(|(_, standing)| !standing.draining && standing.health != Health::Lost)
            .collect();
        let any_live = usable.iter().any(|(_, standing)| standing.health == Health::Live);
        let of_best_health =
            || usable.iter().filter(move |(_, standing)| !any_live || standing.health == Health::Live);
        let nearest = of_best_health().map(|(_, standing)| standing.round_trip).min()?;
        of_best_health()
            .filter(|(_, standing)| standing.round_trip <= nearest + NEAR)
            .min_by_key(|(_, standing)| (standing.streams, standing.round_trip))
            .map(|(entry, _)| *entry)
    }

    /// The tunnels of processes whose agent has greeted again as another process since.
    pub(super) fn superseded(&self) -> impl Iterator<Item = &T> {
        self.0.iter().filter(|entry| self.is_superseded(entry)).map(|entry| &entry.tunnel)
    }

    /// Whether a later process of the same agent has greeted. Its predecessor's tunnel may look alive for a few more
    /// heartbeats, but nobody stands behind it.
    fn is_superseded(&self, entry: &Entry<T>) -> bool {
        self.0.iter().any(|other| {
            other.agent == entry.agent && other.boot != entry.boot && other.ticket > entry.ticket
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVE: Standing =
        Standing { health: Health::Live, draining: false, round_trip: Duration::from_millis(40), streams: 0 };

    #[test]
    fn a_late_goodbye_does_not_strike_off_the_reconnected_agent() {
        let mut roster = roster(&[("a", 1, LIVE), ("a", 2, LIVE)]);
        roster.strike_off(0);
        assert_eq!(best(&roster), Some(1));
    }

    #[test]
    fn a_restarted_agents_old_tunnel_gets_nothing_more() {
        let nearer = Standing { round_trip: Duration::from_millis(1), ..LIVE };
        assert_eq!(best(&roster(&[("a", 1, nearer), ("a", 2, LIVE)])), Some(1));
    }

    #[test]
    fn a_restarted_agents_old_tunnel_and_no_other_is_superseded() {
        let roster = roster(&[("a", 1, LIVE), ("b", 1, LIVE), ("a", 2, LIVE), ("a", 2, LIVE)]);
        assert_eq!(roster.superseded().map(|(index, _)| *index).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn another_tunnel_of_the_same_process_supersedes_nothing() {
        let nearer = Standing { round_trip: Duration::from_millis(1), ..LIVE };
        assert_eq!(best(&roster(&[("a", 1, nearer), ("a", 1, LIVE)])), Some(0));
    }

    #[test]
    fn live_goes_before_near_and_suspect_is_better_than_nothing() {
        let suspect = Standing { health: Health::Suspect, round_trip: Duration::from_millis(1), ..LIVE };
        assert_eq!(best(&roster(&[("a", 1, suspect), ("b", 1, LIVE)])), Some(1));
        assert_eq!(best(&roster(&[("a", 1, suspect)])), Some(0));
    }

    #[test]
    fn draining_and_lost_tunnels_are_never_taken() {
        let draining = Standing { draining: true, ..LIVE };
        let lost = Standing { health: Health::Lost, ..LIVE };
        assert_eq!(best(&roster(&[("a", 1, draining), ("b", 1, lost)])), None);
    }

    #[test]
    fn among_near_tunnels_the_one_with_fewer_streams_is_taken() {
        let busy = Standing { streams: 9, round_trip: Duration::from_millis(39), ..LIVE };
        assert_eq!(best(&roster(&[("a", 1, busy), ("b", 1, LIVE)])), Some(1));
        let far = Standing { round_trip: Duration::from_millis(50), ..LIVE };
        assert_eq!(best(&roster(&[("a", 1, busy), ("b", 1, far)])), Some(0));
    }

    #[test]
    fn one_more_than_the_limit_is_not_entered() {
        let full: Vec<_> = (0..TUNNELS_PER_CLUSTER_MAX).map(|_| ("a", 1, LIVE)).collect();
        let mut roster = roster(&full);
        assert!(roster.enter(entry(99, "b", 1, LIVE)).is_err());
        roster.strike_off(0);
        assert!(roster.enter(entry(99, "b", 1, LIVE)).is_ok());
    }

    fn best(roster: &Roster<(usize, Standing)>) -> Option<usize> {
        roster.best(|(_, standing)| *standing).map(|entry| entry.tunnel.0)
    }

    fn roster(entries: &[(&str, u8, Standing)]) -> Roster<(usize, Standing)> {
        let mut roster = Roster::default();
        for (index, (instance, boot, standing)) in entries.iter().enumerate() {
            roster.enter(entry(index, instance, *boot, *standing)).unwrap();
        }
        roster
    }

    fn entry(index: usize, instance: &str, boot: u8, standing: Standing) -> Entry<(usize, Standing)> {
        let agent =
            AgentId::parse(&format!("spiffe://tombolo/cluster/c/agent/{instance}"), "tombolo").unwrap();
        let boot = BootNonce([boot; 16]);
        Entry { ticket: index as u64, agent, boot, since: SystemTime::UNIX_EPOCH, tunnel: (index, standing) }
    }
}
