//! The tunnels of one cluster, and the choice of the best one for an exchange.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use proto::greeting::BootNonce;
use proto::session::Health;
use proto::spiffe::AgentId;

use transport::Carrier;

use super::agent_limits::{self, HeldTunnel, LimitReached};
use super::newest_process::NewestProcesses;

/// Round trips are compared in steps of this size. Smaller differences are the noise of one machine.
const RTT_STEP: Duration = Duration::from_millis(2);

/// A QUIC tunnel must be live for this long before it replaces an HTTP/2 tunnel of the same process. Some
/// paths pass a handshake over UDP and nothing after it.
const TRUSTED_AFTER: Duration = Duration::from_secs(5);

/// The same for one that was suspect before: a path that fails now and then shall not move requests back and
/// forth.
const TRUSTED_AFTER_FLAP: Duration = Duration::from_secs(30);

const _: () = assert!(TRUSTED_AFTER_FLAP.as_secs() > TRUSTED_AFTER.as_secs());

/// One registered tunnel, with its position in the order of registrations.
#[derive(Clone)]
pub(super) struct TunnelEntry<T> {
    pub(super) ticket: u64,
    pub(super) agent: AgentId,
    pub(super) boot: BootNonce,
    pub(super) since: SystemTime,
    pub(super) tunnel: T,
    /// The turn in which this tunnel was last chosen.
    pub(super) last_chosen: Arc<AtomicU64>,
    /// The tunnel receives nothing until the check for earlier processes of its agent is over.
    pub(super) on_probation: bool,
    /// Another live process uses the same agent certificate at the same time.
    pub(super) key_copied: bool,
}

/// The state of a tunnel as far as the choice between tunnels needs it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) health: Health,
    pub(super) draining: bool,
    pub(super) carrier: Carrier,
    /// The time for which the tunnel has been live without a break.
    pub(super) live_for: Duration,
    /// The tunnel was suspect before that.
    pub(super) has_flapped: bool,
    pub(super) min_rtt: Duration,
    pub(super) streams: u32,
}

/// A tunnel that tells its state to the choice between tunnels. The choice asks for nothing else, so it does not
/// matter how the tunnel came to know its state.
pub(super) trait Selectable {
    /// The state of the tunnel at this moment.
    fn candidate(&self) -> Candidate;
}

/// The tunnels of a cluster in the order of their registration.
pub(super) struct ClusterTunnels<T> {
    entries: Vec<TunnelEntry<T>>,
    turn: AtomicU64,
}

impl<T> Default for ClusterTunnels<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), turn: AtomicU64::new(0) }
    }
}

impl Candidate {
    /// The relative cost of one more exchange: the exchanges ahead of it, weighted by the round-trip time.
    fn cost(self) -> u64 {
        let steps = self.min_rtt.as_nanos() / RTT_STEP.as_nanos() + 1;
        (u64::from(self.streams) + 1).saturating_mul(u64::try_from(steps).unwrap_or(u64::MAX))
    }

    /// Returns true if this carrier takes new exchanges rather than `other`, which is a tunnel of the same
    /// process.
    fn is_preferred_over(self, other: &Self) -> bool {
        match (self.carrier, other.carrier) {
            (Carrier::Quic, Carrier::Http2) => self.has_returned_after(other),
            (Carrier::Http2, Carrier::Quic) => !other.has_returned_after(&self),
            (Carrier::Quic, Carrier::Quic) | (Carrier::Http2, Carrier::Http2) => false,
        }
    }

    /// Returns true if QUIC works again since HTTP/2 replaced it. An agent dials HTTP/2 when QUIC fails for
    /// it. If this side still receives QUIC packets, that only shows that one direction works.
    fn has_returned_after(self, http2: &Self) -> bool {
        let trusted_after = if self.has_flapped { TRUSTED_AFTER_FLAP } else { TRUSTED_AFTER };
        self.live_for >= trusted_after && self.live_for <= http2.live_for
    }
}

impl<T> TunnelEntry<T> {
    fn is_same_process(&self, other: &Self) -> bool {
        self.agent == other.agent && self.boot == other.boot
    }
}

impl<T: Selectable> ClusterTunnels<T> {
    pub(super) fn entries(&self) -> &[TunnelEntry<T>] {
        &self.entries
    }

    pub(super) fn entry_mut(&mut self, ticket: u64) -> Option<&mut TunnelEntry<T>> {
        self.entries.iter_mut().find(|entry| entry.ticket == ticket)
    }

    /// Inserts a tunnel unless a limit is reached. It is on probation if its agent has tunnels of an earlier
    /// process. Returns a removed tunnel of the same agent, which had to make room for it and is to be closed.
    pub(super) fn insert(
        &mut self,
        mut entry: TunnelEntry<T>,
    ) -> Result<Option<TunnelEntry<T>>, LimitReached> {
        let replaced = self.room_for(&entry.agent, entry.boot)?;
        entry.on_probation |= self.entries.iter().any(|earlier| supersedes(&entry, earlier));
        let replaced = replaced.and_then(|ticket| self.remove(ticket));
        self.entries.push(entry);
        Ok(replaced)
    }

    /// Checks whether this process may open one more tunnel. Returns the ticket of a tunnel of the same agent
    /// that has to go for it, if any.
    pub(super) fn room_for(&self, agent: &AgentId, boot: BootNonce) -> Result<Option<u64>, LimitReached> {
        let held = self.entries.iter().map(|entry| {
            let Candidate { health, draining, .. } = entry.tunnel.candidate();
            let is_replaced =
                || entry.agent == *agent && self.entries.iter().any(|other| replaces(other, entry));
            HeldTunnel {
                ticket: entry.ticket,
                agent: &entry.agent,
                boot: entry.boot,
                is_draining: draining,
                is_idle: draining || health != Health::Live || entry.on_probation || is_replaced(),
            }
        });
        agent_limits::room_for(&held.collect::<Vec<_>>(), agent, boot)
    }

    /// Removes the tunnel with this ticket and no other, even if another one is of the same agent.
    pub(super) fn remove(&mut self, ticket: u64) -> Option<TunnelEntry<T>> {
        let position = self.entries.iter().position(|entry| entry.ticket == ticket)?;
        Some(self.entries.remove(position))
    }

    /// Chooses the tunnel for the next exchange: the usable one of least cost, and among equals the one that
    /// was chosen longest ago. A tunnel that has silently died completes nothing, so its streams pile up and
    /// make it expensive.
    pub(super) fn best(&self) -> Option<&TunnelEntry<T>> {
        let rank = |(entry, candidate): &(&TunnelEntry<T>, Candidate)| {
            (candidate.cost(), entry.last_chosen.load(Ordering::Relaxed))
        };
        let (best, _) = self.usable_candidates().min_by_key(rank)?;
        best.last_chosen.store(self.turn.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        Some(best)
    }

    /// The tunnels that may take new exchanges: live, not draining, and not on probation. If a process has
    /// both carriers, its QUIC tunnel is used once it has proved to last, and its HTTP/2 tunnel until then.
    pub(super) fn usable(&self) -> impl Iterator<Item = &TunnelEntry<T>> {
        self.usable_candidates().map(|(entry, _)| entry)
    }

    /// The usable tunnels with their states, each of which is read once. The caller holds a lock on the
    /// cluster, so the time for this grows with the number of tunnels and not with its square.
    fn usable_candidates(&self) -> impl Iterator<Item = (&TunnelEntry<T>, Candidate)> {
        let newest = self.newest_processes();
        let mut serving = Vec::with_capacity(self.entries.len());
        let mut by_process: HashMap<(&AgentId, BootNonce), Vec<Candidate>> = HashMap::new();
        for entry in &self.entries {
            let candidate = entry.tunnel.candidate();
            let serves = candidate.health == Health::Live && !candidate.draining;
            if serves && !entry.on_probation && !newest.supersede(&entry.agent, entry.boot, entry.ticket) {
                serving.push((entry, candidate));
                by_process.entry((&entry.agent, entry.boot)).or_default().push(candidate);
            }
        }
        serving.into_iter().filter(move |(entry, candidate)| {
            let of_process = by_process.get(&(&entry.agent, entry.boot));
            !of_process.into_iter().flatten().any(|other| other.is_preferred_over(candidate))
        })
    }

    /// Ends a tunnel's probation, so that it takes exchanges.
    pub(super) fn end_probation(&mut self, ticket: u64) {
        let entry = self.entries.iter_mut().find(|entry| entry.ticket == ticket);
        entry.into_iter().for_each(|entry| entry.on_probation = false);
    }

    /// Marks this tunnel and those of earlier processes: they share one certificate.
    pub(super) fn mark_key_copied(&mut self, ticket: u64) {
        let Some(newer) = self.entries.iter().position(|entry| entry.ticket == ticket) else { return };
        for at in 0..self.entries.len() {
            self.entries[at].key_copied |= at == newer || supersedes(&self.entries[newer], &self.entries[at]);
        }
    }

    /// The tunnels that earlier processes of the same agent have opened.
    pub(super) fn of_earlier_processes(&self, ticket: u64) -> impl Iterator<Item = &T> {
        let newer = self.entries.iter().find(move |entry| entry.ticket == ticket);
        newer.into_iter().flat_map(|newer| {
            let is_earlier = move |entry: &&TunnelEntry<T>| supersedes(newer, entry);
            self.entries.iter().filter(is_earlier).map(|entry| &entry.tunnel)
        })
    }

    /// Returns true if another process takes exchanges while the process of this tunnel takes none and is
    /// therefore stopping. If the process still takes exchanges, only this tunnel drains, because another
    /// carrier replaces it.
    ///
    /// Invariant: every entry is a tunnel to this server, so only a stopping agent drains all tunnels of a process. If
    /// another server drains, the process goes on: its tunnels elsewhere are successors, which this rule would deny.
    pub(super) fn has_successor(&self, ticket: u64) -> bool {
        let Some(leaving) = self.entries.iter().find(|entry| entry.ticket == ticket) else { return false };
        let mut usable = self.usable().peekable();
        usable.peek().is_some() && !usable.any(|entry| entry.is_same_process(leaving))
    }

    /// The other tunnels of this tunnel's process.
    pub(super) fn siblings(&self, ticket: u64) -> impl Iterator<Item = &T> {
        let own = self.entries.iter().find(move |entry| entry.ticket == ticket);
        own.into_iter().flat_map(|own| {
            let is_sibling =
                |entry: &&TunnelEntry<T>| entry.ticket != own.ticket && entry.is_same_process(own);
            self.entries.iter().filter(is_sibling).map(|entry| &entry.tunnel)
        })
    }

    /// The tunnels whose agent has since greeted as another process.
    pub(super) fn superseded(&self) -> impl Iterator<Item = &T> {
        let newest = self.newest_processes();
        let superseded =
            move |entry: &&TunnelEntry<T>| newest.supersede(&entry.agent, entry.boot, entry.ticket);
        self.entries.iter().filter(superseded).map(|entry| &entry.tunnel)
    }

    /// The newest processes of all agents, which supersede the others as [`supersedes`] says.
    fn newest_processes(&self) -> NewestProcesses<'_> {
        self.entries.iter().map(|entry| (&entry.agent, entry.boot, entry.ticket)).collect()
    }
}

/// Returns true if `later` belongs to a later process of the same agent. Further tunnels of one process
/// supersede nothing.
///
/// Invariant: tickets count this server's registrations. Of two processes at two servers they cannot tell the later one.
fn supersedes<T>(later: &TunnelEntry<T>, earlier: &TunnelEntry<T>) -> bool {
    later.agent == earlier.agent && later.boot != earlier.boot && later.ticket > earlier.ticket
}

/// Returns true if `later` has taken the place of `earlier`, and is not on probation any more.
fn replaces<T>(later: &TunnelEntry<T>, earlier: &TunnelEntry<T>) -> bool {
    !later.on_probation && supersedes(later, earlier)
}

#[cfg(test)]
mod tests {
    use super::super::agent_limits::{TUNNELS_PER_AGENT_MAX, TUNNELS_PER_PROCESS_MAX};
    use super::*;

    const LIVE: Candidate = Candidate {
        health: Health::Live,
        draining: false,
        carrier: Carrier::Quic,
        live_for: TRUSTED_AFTER,
        has_flapped: false,
        min_rtt: Duration::from_millis(40),
        streams: 0,
    };

    impl Selectable for (usize, Candidate) {
        fn candidate(&self) -> Candidate {
            self.1
        }
    }

    #[test]
    fn a_late_close_does_not_remove_the_reconnected_agents_tunnel() {
        let mut tunnels = tunnels(&[("a", 1, LIVE), ("a", 2, LIVE)]);
        tunnels.remove(0);
        assert_eq!(best(&tunnels), Some(1));
    }

    #[test]
    fn a_restarted_agents_old_tunnel_gets_no_new_exchanges() {
        let nearer = Candidate { min_rtt: Duration::from_millis(1), ..LIVE };
        assert_eq!(best(&tunnels(&[("a", 1, nearer), ("a", 2, LIVE)])), Some(1));
    }

    #[test]
    fn a_restarted_agents_old_tunnel_and_no_other_is_superseded() {
        let tunnels = tunnels(&[("a", 1, LIVE), ("b", 1, LIVE), ("a", 2, LIVE), ("a", 2, LIVE)]);
        assert_eq!(tunnels.superseded().map(|(index, _)| *index).collect::<Vec<_>>(), [0]);
    }

    /// Until QUIC has lasted, HTTP/2 is used.
    #[test]
    fn of_two_carriers_of_a_process_quic_is_used_once_it_has_lasted() {
        let http2 = Candidate { carrier: Carrier::Http2, live_for: TRUSTED_AFTER * 2, ..LIVE };
        let young = Candidate { live_for: Duration::from_secs(1), ..LIVE };
        let suspect = Candidate { health: Health::Suspect, ..LIVE };
        assert_eq!(best(&tunnels(&[("a", 1, http2), ("a", 1, LIVE)])), Some(1));
        assert_eq!(best(&tunnels(&[("a", 1, http2), ("a", 1, young)])), Some(0));
        assert_eq!(best(&tunnels(&[("a", 1, http2), ("a", 1, suspect)])), Some(0));
        // QUIC was live before HTTP/2 replaced it, so perhaps only one direction works.
        let one_way = Candidate { live_for: TRUSTED_AFTER * 3, ..LIVE };
        assert_eq!(best(&tunnels(&[("a", 1, one_way), ("a", 1, http2)])), Some(1));
        // Without HTTP/2 beside it, QUIC is used at once.
        assert_eq!(best(&tunnels(&[("a", 1, young)])), Some(0));
    }

    #[test]
    fn a_quic_tunnel_that_flapped_is_used_only_once_it_has_lasted_longer() {
        let http2 = Candidate { carrier: Carrier::Http2, live_for: TRUSTED_AFTER_FLAP * 2, ..LIVE };
        let flapped = |live_for| Candidate { live_for, has_flapped: true, ..LIVE };
        assert_eq!(best(&tunnels(&[("a", 1, flapped(TRUSTED_AFTER)), ("a", 1, http2)])), Some(1));
        assert_eq!(best(&tunnels(&[("a", 1, flapped(TRUSTED_AFTER_FLAP)), ("a", 1, http2)])), Some(0));
        // Without HTTP/2 beside it, it is used at once.
        assert_eq!(best(&tunnels(&[("a", 1, flapped(Duration::ZERO))])), Some(0));
    }

    #[test]
    fn the_carrier_does_not_matter_between_two_agents() {
        let http2 = Candidate { carrier: Carrier::Http2, min_rtt: Duration::from_millis(1), ..LIVE };
        assert_eq!(best(&tunnels(&[("a", 1, http2), ("b", 1, LIVE)])), Some(0));
    }

    /// Another carrier of the draining tunnel's own process is no successor.
    #[test]
    fn only_another_process_succeeds_a_draining_one() {
        let draining = Candidate { draining: true, ..LIVE };
        let has_successor = |others: &[(&str, u8, Candidate)]| {
            let all = [&[("a", 1, draining)], others].concat();
            tunnels(&all).has_successor(0)
        };
        assert!(has_successor(&[("b", 1, LIVE)]));
        assert!(has_successor(&[("a", 1, draining), ("b", 1, LIVE)]));
        assert!(has_successor(&[("a", 2, LIVE)]), "started anew");
        assert!(!has_successor(&[]) && !has_successor(&[("b", 1, draining)]), "nobody is there");
        assert!(!has_successor(&[("a", 1, LIVE), ("b", 1, LIVE)]), "it stays, and finishes what it has");
        assert!(!tunnels(&[("b", 1, LIVE)]).has_successor(7), "it is gone");
    }

    #[test]
    fn a_tunnel_on_probation_and_its_predecessor_get_no_exchanges() {
        let mut tunnels = tunnels(&[("a", 1, LIVE)]);
        insert(&mut tunnels, entry(1, "a", 2, LIVE)).unwrap();
        assert_eq!(best(&tunnels), None);
        assert_eq!(tunnels.of_earlier_processes(1).map(|(index, _)| *index).collect::<Vec<_>>(), [0]);

        tunnels.end_probation(1);
        assert_eq!(best(&tunnels), Some(1));

        tunnels.remove(1);
        assert_eq!(best(&tunnels), Some(0), "who was refused is as if it had never come");
    }

    #[test]
    fn another_tunnel_of_the_same_process_supersedes_nothing() {
        let nearer = Candidate { min_rtt: Duration::from_millis(1), ..LIVE };
        let tunnels = tunnels(&[("a", 1, nearer), ("a", 1, LIVE)]);
        assert_eq!(best(&tunnels), Some(0));
        assert_eq!(tunnels.of_earlier_processes(1).count(), 0);
    }

    #[test]
    fn a_live_tunnel_beats_a_close_suspect_one() {
        let suspect = Candidate { health: Health::Suspect, min_rtt: Duration::from_millis(1), ..LIVE };
        assert_eq!(best(&tunnels(&[("a", 1, suspect), ("b", 1, LIVE)])), Some(1));
    }

    #[test]
    fn draining_lost_and_suspect_tunnels_are_never_chosen() {
        let draining = Candidate { draining: true, ..LIVE };
        let [lost, suspect] = [Health::Lost, Health::Suspect].map(|health| Candidate { health, ..LIVE });
        assert_eq!(best(&tunnels(&[("a", 1, draining), ("b", 1, lost), ("c", 1, suspect)])), None);
    }

    #[test]
    fn the_tunnel_with_least_work_per_round_trip_is_chosen() {
        let busy = |streams| Candidate { streams, ..LIVE };
        assert_eq!(best(&tunnels(&[("a", 1, busy(9)), ("b", 1, busy(8))])), Some(1));
        let far = |streams| Candidate { streams, min_rtt: Duration::from_millis(199), ..LIVE };
        assert_eq!(best(&tunnels(&[("a", 1, busy(3)), ("b", 1, far(0))])), Some(0), "five times as far");
        assert_eq!(best(&tunnels(&[("a", 1, busy(5)), ("b", 1, far(0))])), Some(1), "and six times as busy");
    }

    #[test]
    fn equal_tunnels_take_turns_despite_jitter() {
        let wavers = |micros| Candidate { min_rtt: Duration::from_micros(micros), ..LIVE };
        let tunnels = tunnels(&[("a", 1, wavers(310)), ("b", 1, wavers(900)), ("c", 1, wavers(1_700))]);

        let last_chosen: Vec<_> = (0..7).filter_map(|_| best(&tunnels)).collect();

        assert_eq!(last_chosen, [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn a_new_tunnel_does_not_make_up_for_missed_turns() {
        let mut tunnels = tunnels(&[("a", 1, LIVE)]);
        (0..9).for_each(|_| assert_eq!(best(&tunnels), Some(0)));
        insert(&mut tunnels, entry(1, "b", 1, LIVE)).unwrap();

        let last_chosen: Vec<_> = (0..4).filter_map(|_| best(&tunnels)).collect();

        assert_eq!(last_chosen, [1, 0, 1, 0]);
    }

    #[test]
    fn a_tunnel_beyond_the_limit_is_not_inserted() {
        let full: Vec<_> = (0..TUNNELS_PER_PROCESS_MAX).map(|_| ("a", 1, LIVE)).collect();
        let mut tunnels = tunnels(&full);
        assert_eq!(insert(&mut tunnels, entry(99, "a", 1, LIVE)), Err(LimitReached::AgentTunnels));
        assert_eq!(
            insert(&mut tunnels, entry(99, "b", 1, LIVE)),
            Ok(None),
            "another agent has its own limit"
        );
        tunnels.remove(0);
        assert_eq!(insert(&mut tunnels, entry(100, "a", 1, LIVE)), Ok(None));
    }

    /// The holder of a copied key cannot end the tunnels of the agent itself.
    #[test]
    fn a_serving_tunnel_goes_for_no_other_and_one_on_probation_does() {
        let full: Vec<_> = (0..TUNNELS_PER_PROCESS_MAX).map(|_| ("a", 1, LIVE)).collect();
        let mut tunnels = tunnels(&full);
        let later = TUNNELS_PER_PROCESS_MAX..TUNNELS_PER_AGENT_MAX;
        for index in later.clone() {
            assert_eq!(insert(&mut tunnels, entry(index, "a", 2, LIVE)), Ok(None));
        }

        let third = insert(&mut tunnels, entry(98, "a", 3, LIVE));

        assert_eq!(third, Ok(Some(later.start)), "the oldest on probation");
        tunnels.end_probation(98);
        let fourth = insert(&mut tunnels, entry(99, "a", 4, LIVE));
        assert_eq!(fourth, Ok(Some(0)), "the oldest that the third has replaced");
    }

    fn best(tunnels: &ClusterTunnels<(usize, Candidate)>) -> Option<usize> {
        tunnels.best().map(|entry| entry.tunnel.0)
    }

    fn tunnels(entries: &[(&str, u8, Candidate)]) -> ClusterTunnels<(usize, Candidate)> {
        let mut tunnels = ClusterTunnels::default();
        for (index, (instance, boot, candidate)) in entries.iter().enumerate() {
            assert_eq!(insert(&mut tunnels, entry(index, instance, *boot, *candidate)), Ok(None));
            tunnels.end_probation(index as u64);
        }
        tunnels
    }

    /// Inserts a tunnel, and returns the index of the one that went for it.
    fn insert(
        tunnels: &mut ClusterTunnels<(usize, Candidate)>,
        entry: TunnelEntry<(usize, Candidate)>,
    ) -> Result<Option<usize>, LimitReached> {
        let replaced = tunnels.insert(entry)?;
        Ok(replaced.map(|entry| entry.tunnel.0))
    }

    fn entry(
        index: usize,
        instance: &str,
        boot: u8,
        candidate: Candidate,
    ) -> TunnelEntry<(usize, Candidate)> {
        let agent =
            AgentId::parse(&format!("spiffe://tombolo/cluster/c/agent/{instance}"), "tombolo").unwrap();
        let boot = BootNonce([boot; 16]);
        TunnelEntry {
            ticket: index as u64,
            agent,
            boot,
            since: SystemTime::UNIX_EPOCH,
            tunnel: (index, candidate),
            last_chosen: Arc::default(),
            on_probation: false,
            key_copied: false,
        }
    }
}
