//! The tunnels of one cluster, and which of them serves best.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use proto::greeting::BootNonce;
use proto::session::Health;
use proto::spiffe::AgentId;

use transport::Carrier;

use super::TUNNELS_PER_CLUSTER_MAX;

/// Round trips are compared in steps of this: what is less is the noise of one machine.
const NEAR: Duration = Duration::from_millis(2);

/// A tunnel over QUIC has to live so long before it takes over from one over HTTP/2 of the same process: a path may carry a
/// handshake over UDP and nothing after it.
const TRUSTED_AFTER: Duration = Duration::from_secs(5);

/// One tunnel.
#[derive(Clone)]
pub(super) struct Entry<T> {
    pub(super) ticket: u64,
    pub(super) agent: AgentId,
    pub(super) boot: BootNonce,
    pub(super) since: SystemTime,
    pub(super) tunnel: T,
    /// When it was last chosen, in turns of its roster.
    pub(super) chosen: Arc<AtomicU64>,
    /// It takes nothing until it is known that nobody stands behind the tunnels of earlier processes of its agent.
    pub(super) on_probation: bool,
    /// Another process uses its agent's certificate at the same time, and answers.
    pub(super) key_copied: bool,
}

/// How a tunnel does, as far as the choice is concerned.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    pub(super) health: Health,
    pub(super) draining: bool,
    pub(super) carrier: Carrier,
    /// For how long it has been live.
    pub(super) live_for: Duration,
    pub(super) distance: Duration,
    pub(super) streams: u32,
}

/// In the order in which they came.
pub(super) struct Roster<T> {
    entries: Vec<Entry<T>>,
    turn: AtomicU64,
}

impl<T> Default for Roster<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), turn: AtomicU64::new(0) }
    }
}

impl Standing {
    /// What one more exchange would find: everybody in front of it, at every round trip's distance.
    fn cost(self) -> u64 {
        let steps = self.distance.as_nanos() / NEAR.as_nanos() + 1;
        (u64::from(self.streams) + 1).saturating_mul(u64::try_from(steps).unwrap_or(u64::MAX))
    }
}

impl Standing {
    /// Whether new exchanges come on this and not on another tunnel of the same process, because of what carries them.
    fn goes_before(self, other: &Self) -> bool {
        match (self.carrier, other.carrier) {
            (Carrier::Quic, Carrier::Http2) => self.has_returned_after(other),
            (Carrier::Http2, Carrier::Quic) => !other.has_returned_after(&self),
            (Carrier::Quic, Carrier::Quic) | (Carrier::Http2, Carrier::Http2) => false,
        }
    }

    /// Whether QUIC works again since HTTP/2 came in its place. An agent dials HTTP/2 where QUIC does not work for it; that
    /// this side still hears it says only that one direction passes.
    fn has_returned_after(self, http2: &Self) -> bool {
        self.live_for >= TRUSTED_AFTER && self.live_for <= http2.live_for
    }
}

impl<T> Entry<T> {
    fn is_of_the_process_of(&self, other: &Self) -> bool {
        self.agent == other.agent && self.boot == other.boot
    }
}

impl<T> Roster<T> {
    pub(super) fn entries(&self) -> &[Entry<T>] {
        &self.entries
    }

    pub(super) fn entry_mut(&mut self, ticket: u64) -> Option<&mut Entry<T>> {
        self.entries.iter_mut().find(|entry| entry.ticket == ticket)
    }

    /// Enters a tunnel, unless there are too many; on probation, if there are some of an earlier process of its agent.
    pub(super) fn enter(&mut self, mut entry: Entry<T>) -> Result<(), ()> {
        if self.entries.len() >= TUNNELS_PER_CLUSTER_MAX {
            return Err(());
        }
        entry.on_probation = self.entries.iter().any(|earlier| supersedes(&entry, earlier));
        self.entries.push(entry);
        Ok(())
    }

    /// Takes the tunnel with this ticket off, and no other, however alike they are.
    pub(super) fn strike_off(&mut self, ticket: u64) -> Option<Entry<T>> {
        let position = self.entries.iter().position(|entry| entry.ticket == ticket)?;
        Some(self.entries.remove(position))
    }

    /// The tunnel for the next exchange: of those that are usable the one with the least work for its distance, and
    /// among equals the one whose turn it is. A tunnel that has silently died finishes nothing, so that its streams pile
    /// up and turn others away from it.
    pub(super) fn best(&self, standing: impl Fn(&T) -> Standing) -> Option<&Entry<T>> {
        let rank = |entry: &&Entry<T>| (standing(&entry.tunnel).cost(), entry.chosen.load(Ordering::Relaxed));
        let best = self.usable(&standing).min_by_key(rank)?;
        best.chosen.store(self.turn.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        Some(best)
    }

    /// The tunnels that take new exchanges: live ones that do not drain and behind which somebody stands. Where a process
    /// has both, QUIC and not HTTP/2, unless QUIC has yet to show that it lasts.
    pub(super) fn usable(&self, standing: impl Fn(&T) -> Standing) -> impl Iterator<Item = &Entry<T>> {
        let serving = move |entry: &Entry<T>| {
            let standing = standing(&entry.tunnel);
            let serves = standing.health == Health::Live && !standing.draining;
            (serves && !entry.on_probation && !self.is_superseded(entry)).then_some(standing)
        };
        self.entries.iter().filter(move |entry| {
            let Some(standing) = serving(entry) else { return false };
            let others = self.entries.iter().filter(|other| other.is_of_the_process_of(entry));
            !others.filter_map(&serving).any(|other| other.goes_before(&standing))
        })
    }

    /// Ends a tunnel's probation.
    pub(super) fn trust(&mut self, ticket: u64) {
        let entry = self.entries.iter_mut().find(|entry| entry.ticket == ticket);
        entry.into_iter().for_each(|entry| entry.on_probation = false);
    }

    /// Notes that two processes use one certificate: that of this tunnel, and an earlier one.
    pub(super) fn flag(&mut self, ticket: u64) {
        let Some(newcomer) = self.entries.iter().position(|entry| entry.ticket == ticket) else { return };
        for at in 0..self.entries.len() {
            self.entries[at].key_copied |=
                at == newcomer || supersedes(&self.entries[newcomer], &self.entries[at]);
        }
    }

    /// The tunnels of earlier processes of the agent that has opened this one.
    pub(super) fn before(&self, ticket: u64) -> impl Iterator<Item = &T> {
        let newcomer = self.entries.iter().find(move |entry| entry.ticket == ticket);
        newcomer.into_iter().flat_map(|newcomer| {
            let of_before = move |entry: &&Entry<T>| supersedes(newcomer, entry);
            self.entries.iter().filter(of_before).map(|entry| &entry.tunnel)
        })
    }

    /// Whether another process takes exchanges while that of the tunnel with this ticket takes none: it stops, then, where
    /// its tunnel drains. Where it still takes some, the drain is one of this tunnel alone, because another carrier has taken
    /// its place.
    pub(super) fn is_relieved(&self, ticket: u64, standing: impl Fn(&T) -> Standing) -> bool {
        let Some(leaving) = self.entries.iter().find(|entry| entry.ticket == ticket) else { return false };
        let mut usable = self.usable(standing).peekable();
        usable.peek().is_some() && !usable.any(|entry| entry.is_of_the_process_of(leaving))
    }

    /// The tunnels of processes whose agent has greeted again as another process since.
    pub(super) fn superseded(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter(|entry| self.is_superseded(entry)).map(|entry| &entry.tunnel)
    }

    /// Whether a later process of the same agent has greeted.
    fn is_superseded(&self, entry: &Entry<T>) -> bool {
        self.entries.iter().any(|other| supersedes(other, entry))
    }
}

/// Whether `later` is the tunnel of a later process of the same agent. Further tunnels of one process supersede nothing.
fn supersedes<T>(later: &Entry<T>, earlier: &Entry<T>) -> bool {
    later.agent == earlier.agent && later.boot != earlier.boot && later.ticket > earlier.ticket
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVE: Standing = Standing {
        health: Health::Live,
        draining: false,
        carrier: Carrier::Quic,
        live_for: TRUSTED_AFTER,
        distance: Duration::from_millis(40),
        streams: 0,
    };

    #[test]
    fn a_late_goodbye_does_not_strike_off_the_reconnected_agent() {
        let mut roster = roster(&[("a", 1, LIVE), ("a", 2, LIVE)]);
        roster.strike_off(0);
        assert_eq!(best(&roster), Some(1));
    }

    #[test]
    fn a_restarted_agents_old_tunnel_gets_nothing_more() {
        let nearer = Standing { distance: Duration::from_millis(1), ..LIVE };
        assert_eq!(best(&roster(&[("a", 1, nearer), ("a", 2, LIVE)])), Some(1));
    }

    #[test]
    fn a_restarted_agents_old_tunnel_and_no_other_is_superseded() {
        let roster = roster(&[("a", 1, LIVE), ("b", 1, LIVE), ("a", 2, LIVE), ("a", 2, LIVE)]);
        assert_eq!(roster.superseded().map(|(index, _)| *index).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn of_a_process_with_both_quic_is_used_and_http2_as_long_as_quic_has_not_lasted() {
        let http2 = Standing { carrier: Carrier::Http2, live_for: TRUSTED_AFTER * 2, ..LIVE };
        let young = Standing { live_for: Duration::from_secs(1), ..LIVE };
        let suspect = Standing { health: Health::Suspect, ..LIVE };
        assert_eq!(best(&roster(&[("a", 1, http2), ("a", 1, LIVE)])), Some(1));
        assert_eq!(best(&roster(&[("a", 1, http2), ("a", 1, young)])), Some(0));
        assert_eq!(best(&roster(&[("a", 1, http2), ("a", 1, suspect)])), Some(0));
        // What is heard in one direction alone was there before HTTP/2 had to come.
        let heard_one_way = Standing { live_for: TRUSTED_AFTER * 3, ..LIVE };
        assert_eq!(best(&roster(&[("a", 1, heard_one_way), ("a", 1, http2)])), Some(1));
        // Alone it is used at once.
        assert_eq!(best(&roster(&[("a", 1, young)])), Some(0));
    }

    #[test]
    fn what_carries_tunnels_says_nothing_between_two_agents() {
        let http2 = Standing { carrier: Carrier::Http2, distance: Duration::from_millis(1), ..LIVE };
        assert_eq!(best(&roster(&[("a", 1, http2), ("b", 1, LIVE)])), Some(0));
    }

    #[test]
    fn whose_process_stops_is_relieved_by_another_process_and_not_by_another_carrier_of_its_own() {
        let draining = Standing { draining: true, ..LIVE };
        let is_relieved = |others: &[(&str, u8, Standing)]| {
            let all = [&[("a", 1, draining)], others].concat();
            roster(&all).is_relieved(0, |(_, standing)| *standing)
        };
        assert!(is_relieved(&[("b", 1, LIVE)]));
        assert!(is_relieved(&[("a", 1, draining), ("b", 1, LIVE)]));
        assert!(is_relieved(&[("a", 2, LIVE)]), "started anew");
        assert!(!is_relieved(&[]) && !is_relieved(&[("b", 1, draining)]), "nobody is there");
        assert!(!is_relieved(&[("a", 1, LIVE), ("b", 1, LIVE)]), "it stays, and finishes what it has");
        assert!(!roster(&[("b", 1, LIVE)]).is_relieved(7, |(_, standing)| *standing), "it is gone");
    }

    #[test]
    fn while_a_newcomer_is_on_probation_neither_it_nor_its_predecessor_is_taken() {
        let mut roster = roster(&[("a", 1, LIVE)]);
        roster.enter(entry(1, "a", 2, LIVE)).unwrap();
        assert_eq!(best(&roster), None);
        assert_eq!(roster.before(1).map(|(index, _)| *index).collect::<Vec<_>>(), [0]);

        roster.trust(1);
        assert_eq!(best(&roster), Some(1));

        roster.strike_off(1);
        assert_eq!(best(&roster), Some(0), "who was refused is as if it had never come");
    }

    #[test]
    fn another_tunnel_of_the_same_process_supersedes_nothing() {
        let nearer = Standing { distance: Duration::from_millis(1), ..LIVE };
        let roster = roster(&[("a", 1, nearer), ("a", 1, LIVE)]);
        assert_eq!(best(&roster), Some(0));
        assert_eq!(roster.before(1).count(), 0);
    }

    #[test]
    fn live_goes_before_near() {
        let suspect = Standing { health: Health::Suspect, distance: Duration::from_millis(1), ..LIVE };
        assert_eq!(best(&roster(&[("a", 1, suspect), ("b", 1, LIVE)])), Some(1));
    }

    #[test]
    fn draining_lost_and_suspect_tunnels_are_never_taken() {
        let draining = Standing { draining: true, ..LIVE };
        let [lost, suspect] = [Health::Lost, Health::Suspect].map(|health| Standing { health, ..LIVE });
        assert_eq!(best(&roster(&[("a", 1, draining), ("b", 1, lost), ("c", 1, suspect)])), None);
    }

    #[test]
    fn work_goes_where_there_is_least_of_it_for_the_distance() {
        let busy = |streams| Standing { streams, ..LIVE };
        assert_eq!(best(&roster(&[("a", 1, busy(9)), ("b", 1, busy(8))])), Some(1));
        let far = |streams| Standing { streams, distance: Duration::from_millis(199), ..LIVE };
        assert_eq!(best(&roster(&[("a", 1, busy(3)), ("b", 1, far(0))])), Some(0), "five times as far");
        assert_eq!(best(&roster(&[("a", 1, busy(5)), ("b", 1, far(0))])), Some(1), "and six times as busy");
    }

    #[test]
    fn equals_take_turns_whatever_a_distance_wavers() {
        let wavers = |micros| Standing { distance: Duration::from_micros(micros), ..LIVE };
        let roster = roster(&[("a", 1, wavers(310)), ("b", 1, wavers(900)), ("c", 1, wavers(1_700))]);

        let chosen: Vec<_> = (0..7).filter_map(|_| best(&roster)).collect();

        assert_eq!(chosen, [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn a_newcomer_is_not_buried_under_the_turns_that_it_missed() {
        let mut roster = roster(&[("a", 1, LIVE)]);
        (0..9).for_each(|_| assert_eq!(best(&roster), Some(0)));
        roster.enter(entry(1, "b", 1, LIVE)).unwrap();

        let chosen: Vec<_> = (0..4).filter_map(|_| best(&roster)).collect();

        assert_eq!(chosen, [1, 0, 1, 0]);
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
            roster.trust(index as u64);
        }
        roster
    }

    fn entry(index: usize, instance: &str, boot: u8, standing: Standing) -> Entry<(usize, Standing)> {
        let agent =
            AgentId::parse(&format!("spiffe://tombolo/cluster/c/agent/{instance}"), "tombolo").unwrap();
        let boot = BootNonce([boot; 16]);
        Entry {
            ticket: index as u64,
            agent,
            boot,
            since: SystemTime::UNIX_EPOCH,
            tunnel: (index, standing),
            chosen: Arc::default(),
            on_probation: false,
            key_copied: false,
        }
    }
}
