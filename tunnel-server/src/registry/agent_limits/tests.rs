//! Clusters whose agents race carriers, are replaced, and claim too much.

use super::*;

const LIVE: Option<IdleCause> = None;

/// The number of processes, of as many agents, that fill a cluster with all tunnels that they may have.
const FULL_PROCESSES: usize = TUNNELS_PER_CLUSTER_MAX / TUNNELS_PER_PROCESS_MAX;

/// The reason why a tunnel takes no exchanges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IdleCause {
    Drains,
    Silent,
}

/// The tunnels of a cluster that admits agents as the registry does.
#[derive(Default)]
struct CrowdedCluster {
    tunnels: Vec<(u64, AgentId, u8, Option<IdleCause>)>,
    next: u64,
}

impl CrowdedCluster {
    /// A cluster with agents `0` to `count - 1`, each of which has a tunnel over either carrier.
    fn racing(count: usize) -> Self {
        let mut cluster = Self::default();
        for number in 0..count {
            for _carrier in 0..2 {
                assert_eq!(cluster.dial(&name(number), 1), Ok(None), "agent {number}");
            }
        }
        cluster
    }

    /// A cluster with all tunnels that it may have. They belong to agents `0` to `FULL_PROCESSES - 1`.
    fn full() -> Self {
        let mut cluster = Self::default();
        for number in 0..FULL_PROCESSES {
            (0..TUNNELS_PER_PROCESS_MAX).for_each(|_| assert_eq!(cluster.dial(&name(number), 1), Ok(None)));
        }
        assert_eq!(cluster.tunnels.len(), TUNNELS_PER_CLUSTER_MAX);
        cluster
    }

    /// Dials as a process of an agent, and registers the tunnel if it may. Returns the ticket of the tunnel
    /// that had to go.
    fn dial(&mut self, agent: &str, boot: u8) -> Result<Option<u64>, LimitReached> {
        let agent = id(agent);
        let held: Vec<HeldTunnel<'_>> = self.tunnels.iter().map(held).collect();
        let gone = room_for(&held, &agent, BootNonce([boot; 16]))?;
        self.tunnels.retain(|(ticket, ..)| Some(*ticket) != gone);
        self.tunnels.push((self.next, agent, boot, LIVE));
        self.next += 1;
        Ok(gone)
    }

    /// All tunnels of an agent take no exchanges any more.
    fn all_are(&mut self, agent: &str, idle: IdleCause) {
        let agent = id(agent);
        let own = self.tunnels.iter_mut().filter(|(_, of, ..)| *of == agent);
        own.for_each(|(.., now)| *now = Some(idle));
    }

    /// The tunnels of the agent's processes before `boot` take no exchanges any more.
    fn earlier_are(&mut self, agent: &str, boot: u8, idle: IdleCause) {
        let agent = id(agent);
        let earlier = self.tunnels.iter_mut().filter(|(_, of, process, _)| *of == agent && *process < boot);
        earlier.for_each(|(.., now)| *now = Some(idle));
    }

    fn ended(&mut self, agent: &str) {
        let agent = id(agent);
        self.tunnels.retain(|(_, of, ..)| *of != agent);
    }

    fn count_of(&self, agent: &str) -> usize {
        let agent = id(agent);
        self.tunnels.iter().filter(|(_, of, ..)| *of == agent).count()
    }
}

#[test]
fn a_cluster_of_64_racing_agents_has_room_for_its_surge_and_not_for_more() {
    let mut cluster = CrowdedCluster::racing(AGENTS_PER_CLUSTER_MAX);

    for number in 0..SURGE_AGENTS_MAX {
        let surge = format!("surge-{number}");
        assert_eq!((cluster.dial(&surge, 1), cluster.dial(&surge, 1)), (Ok(None), Ok(None)), "{surge}");
    }

    assert_eq!(cluster.tunnels.len(), 2 * CONNECTED_AGENTS_MAX);
    assert_eq!(cluster.dial("one-more", 1), Err(LimitReached::ClusterAgents));
    assert_eq!(cluster.dial(&name(0), 1), Ok(None), "who is counted may change carriers");
}

/// As `maxSurge: 1` and `maxUnavailable: 0` do it: the old agent is told to stop once the new one is
/// connected, and finishes its exchanges for as long as the rollout lasts.
#[test]
fn a_rollout_of_64_agents_ends_although_every_old_agent_still_drains() {
    let mut cluster = CrowdedCluster::racing(AGENTS_PER_CLUSTER_MAX);

    for number in 0..AGENTS_PER_CLUSTER_MAX {
        let new = format!("new-{number}");
        assert_eq!((cluster.dial(&new, 1), cluster.dial(&new, 1)), (Ok(None), Ok(None)), "{new}");
        cluster.all_are(&name(number), IdleCause::Drains);
    }

    assert_eq!(cluster.tunnels.len(), 4 * AGENTS_PER_CLUSTER_MAX, "nobody was disconnected");
}

/// With `maxSurge: 100%`, all new agents dial at once, and each that is refused dials again.
#[test]
fn a_rollout_of_all_64_agents_at_once_ends() {
    let mut cluster = CrowdedCluster::racing(AGENTS_PER_CLUSTER_MAX);
    let mut waiting: Vec<String> =
        (0..AGENTS_PER_CLUSTER_MAX).map(|number| format!("new-{number}")).collect();

    for round in 0..AGENTS_PER_CLUSTER_MAX / SURGE_AGENTS_MAX {
        waiting.retain(|new| cluster.dial(new, 1).is_err());
        for number in 0..SURGE_AGENTS_MAX {
            cluster.all_are(&name(round * SURGE_AGENTS_MAX + number), IdleCause::Drains);
        }
    }

    assert_eq!(waiting, Vec::<String>::new());
}

#[test]
fn agents_that_say_they_leave_and_stay_are_limited_too() {
    let mut cluster = CrowdedCluster::default();
    for number in 0..LEAVING_AGENTS_MAX {
        assert_eq!(cluster.dial(&name(number), 1), Ok(None));
        cluster.all_are(&name(number), IdleCause::Drains);
    }

    assert_eq!(cluster.dial("one-more", 1), Err(LimitReached::LeavingAgents));
    assert_eq!(cluster.dial(&name(0), 2), Ok(None), "who is among them may come back");
    assert_eq!(cluster.dial("one-more", 1), Ok(None), "there is one less");
    cluster.all_are("one-more", IdleCause::Drains);
    assert_eq!(cluster.dial("another", 1), Err(LimitReached::LeavingAgents));
    cluster.ended(&name(1));
    assert_eq!(cluster.dial("another", 1), Ok(None));
}

/// A silent agent may come back at any moment, so it keeps its place.
#[test]
fn silent_agents_count() {
    let mut cluster = CrowdedCluster::racing(CONNECTED_AGENTS_MAX);
    cluster.all_are(&name(0), IdleCause::Silent);
    assert_eq!(cluster.dial("one-more", 1), Err(LimitReached::ClusterAgents));
    cluster.ended(&name(0));
    assert_eq!(cluster.dial("one-more", 1), Ok(None));
}

#[test]
fn a_new_process_of_a_counted_agent_always_gets_in() {
    let mut cluster = CrowdedCluster::racing(CONNECTED_AGENTS_MAX);
    (2..TUNNELS_PER_PROCESS_MAX).for_each(|_| assert_eq!(cluster.dial(&name(0), 1), Ok(None)));
    // The first process was killed a moment ago, so its tunnels look live.
    (0..TUNNELS_PER_PROCESS_MAX).for_each(|_| assert_eq!(cluster.dial(&name(0), 2), Ok(None)));
    assert_eq!(cluster.count_of(&name(0)), TUNNELS_PER_AGENT_MAX);

    // The second one was killed, too, and the first is silent by now.
    let first = cluster.tunnels.iter_mut().filter(|(_, agent, boot, _)| *agent == id(&name(0)) && *boot == 1);
    first.for_each(|(.., now)| *now = Some(IdleCause::Silent));
    for boot in 3..20 {
        let gone = cluster.dial(&name(0), boot);
        assert!(matches!(gone, Ok(Some(_))), "the oldest silent tunnel goes: {gone:?}");
        cluster.tunnels.iter_mut().for_each(|(.., of, now)| {
            if *of == boot {
                *now = Some(IdleCause::Silent);
            }
        });
        assert_eq!(cluster.count_of(&name(0)), TUNNELS_PER_AGENT_MAX);
    }
}

/// One certificate has one name, whatever its holder says about processes.
#[test]
fn one_agent_takes_no_more_than_its_own_tunnels() {
    let mut cluster = CrowdedCluster::racing(2);
    for boot in 0..100 {
        for _ in 0..100 {
            let _ = cluster.dial(&name(0), boot);
        }
    }
    assert_eq!(cluster.count_of(&name(0)), TUNNELS_PER_AGENT_MAX);
    assert_eq!(cluster.count_of(&name(1)), 2, "nobody else's tunnel goes for it");
}

#[test]
fn a_process_at_its_limit_keeps_what_serves_and_gives_up_what_does_not() {
    let mut cluster = CrowdedCluster::default();
    (0..TUNNELS_PER_PROCESS_MAX).for_each(|_| assert_eq!(cluster.dial("a", 1), Ok(None)));
    assert_eq!(cluster.dial("a", 1), Err(LimitReached::AgentTunnels));

    cluster.tunnels[3].3 = Some(IdleCause::Drains);
    cluster.tunnels[5].3 = Some(IdleCause::Silent);

    assert_eq!(cluster.dial("a", 1), Ok(Some(3)), "the oldest of them");
    assert_eq!(cluster.dial("a", 1), Ok(Some(5)));
    assert_eq!(cluster.dial("a", 1), Err(LimitReached::AgentTunnels));
}

#[test]
fn beyond_a_clusters_tunnels_an_agent_gets_its_first_and_no_second() {
    let mut cluster = CrowdedCluster::full();

    assert_eq!(cluster.dial("modest", 1), Ok(None));
    assert_eq!(cluster.dial("modest", 1), Err(LimitReached::ClusterTunnels));
    cluster.all_are("modest", IdleCause::Silent);
    assert!(matches!(cluster.dial("modest", 1), Ok(Some(_))), "it is back over another path");
}

/// An agent can claim a new process for every dial, and say that all earlier tunnels drain.
#[test]
fn new_processes_of_draining_agents_add_no_tunnel_to_a_full_cluster() {
    let mut cluster = CrowdedCluster::full();

    for boot in 2..20 {
        for number in 0..FULL_PROCESSES {
            cluster.all_are(&name(number), IdleCause::Drains);
            let gone = cluster.dial(&name(number), boot);
            assert!(matches!(gone, Ok(Some(_))), "agent {number}, process {boot}: {gone:?}");
        }
    }

    assert_eq!(cluster.tunnels.len(), TUNNELS_PER_CLUSTER_MAX);
}

/// A new process gets in beside a predecessor that looks live. The place beyond the limit stays one place,
/// even if the new process claims to serve and the next one follows.
#[test]
fn restarts_in_a_full_cluster_add_one_tunnel_to_an_agent() {
    let mut cluster = CrowdedCluster::full();
    assert_eq!(cluster.dial("modest", 1), Ok(None));
    assert_eq!(cluster.dial("modest", 2), Ok(None), "its predecessor looks live");

    for boot in 3..20 {
        cluster.earlier_are("modest", boot - 1, IdleCause::Silent);
        assert_eq!(cluster.dial("modest", boot - 1), Err(LimitReached::ClusterTunnels), "the last is kept");
        assert!(matches!(cluster.dial("modest", boot), Ok(Some(_))), "for process {boot} it goes");
    }

    assert_eq!(cluster.count_of("modest"), 2);
}

/// A second tunnel of the new process takes the place of an earlier process's tunnel, as long as another one
/// is left.
#[test]
fn a_restarted_agent_gets_its_places_in_a_full_cluster_back_but_one() {
    let mut cluster = CrowdedCluster::full();
    assert_eq!(cluster.dial(&name(0), 2), Ok(None), "its predecessor looks live");
    cluster.earlier_are(&name(0), 2, IdleCause::Silent);

    for oldest in 0..TUNNELS_PER_PROCESS_MAX - 1 {
        assert_eq!(cluster.dial(&name(0), 2), Ok(Some(oldest as u64)));
    }

    assert_eq!(cluster.dial(&name(0), 2), Err(LimitReached::AgentTunnels));
    assert_eq!(cluster.count_of(&name(0)), TUNNELS_PER_PROCESS_MAX + 1);
}

/// All agents that may be there hold all that they can. It is one agent less than the bound counts, because
/// a new agent is admitted only while there is room for a leaving one, too.
#[test]
fn a_cluster_of_hostile_agents_has_no_more_tunnels_than_the_bound() {
    let mut cluster = CrowdedCluster::full();
    (0..FULL_PROCESSES).for_each(|number| assert_eq!(cluster.dial(&name(number), 2), Ok(None)));

    for number in 0..2 * CONNECTED_AGENTS_MAX {
        let further = format!("further-{number}");
        for boot in 1..5 {
            let _ = cluster.dial(&further, boot);
            if boot > 1 {
                cluster.earlier_are(&further, boot, IdleCause::Silent);
            }
        }
        if number < LEAVING_AGENTS_MAX - 1 {
            cluster.all_are(&further, IdleCause::Drains);
        }
    }

    assert_eq!(cluster.tunnels.len(), TUNNELS_WITH_RESTARTS_MAX - 2);
}

#[test]
fn every_limit_says_what_to_do_in_one_line() {
    let limits = [
        LimitReached::ClusterAgents,
        LimitReached::LeavingAgents,
        LimitReached::AgentTunnels,
        LimitReached::ClusterTunnels,
        LimitReached::ServerTunnels(1),
    ];
    for limit in limits {
        let message = limit.to_string();
        let (state, remedy) = message.split_once("; ").unwrap_or_else(|| panic!("no remedy: {message}"));
        assert!(state.contains("which is the most") && !remedy.contains('\n'), "{message}");
    }
    assert!(
        LimitReached::ClusterAgents
            .to_string()
            .contains("80 agents are connected, which is the most (64, and 16")
    );
}

fn held<'t>((ticket, agent, boot, idle): &'t (u64, AgentId, u8, Option<IdleCause>)) -> HeldTunnel<'t> {
    HeldTunnel {
        ticket: *ticket,
        agent,
        boot: BootNonce([*boot; 16]),
        is_draining: *idle == Some(IdleCause::Drains),
        is_idle: idle.is_some(),
    }
}

fn name(number: usize) -> String {
    format!("agent-{number}")
}

fn id(instance: &str) -> AgentId {
    AgentId::new("edge-a".parse().unwrap(), instance).unwrap()
}
