//! Decides whether an agent of a cluster may open one more tunnel, and which older tunnel of it makes room.
//!
//! Agents are counted and not tunnels, because an agent that races carriers holds two tunnels at once. An
//! agent is one name in certificates, so no agent can count as several.

use std::collections::HashSet;

use proto::greeting::BootNonce;
use proto::spiffe::AgentId;

/// Most agents that a cluster can run with. It is enough for a DaemonSet on its control-plane nodes, and many
/// times enough for a Deployment.
pub const AGENTS_PER_CLUSTER_MAX: usize = 64;

/// Further agents of a cluster while its agents are replaced. A Deployment or DaemonSet with `maxSurge` stops
/// an agent only after its successor is connected, so at that time both count.
pub const SURGE_AGENTS_MAX: usize = 16;

/// Most agents of a cluster that are connected at once and are not leaving.
const CONNECTED_AGENTS_MAX: usize = AGENTS_PER_CLUSTER_MAX + SURGE_AGENTS_MAX;

/// Most agents of a cluster that are leaving: all of their tunnels drain. They do not count as connected, so
/// that their long exchanges keep no successor out.
pub(super) const LEAVING_AGENTS_MAX: usize = 80;

/// Most tunnels of one process of an agent. It needs two for each address of a server while it changes from
/// one carrier to the other.
pub(super) const TUNNELS_PER_PROCESS_MAX: usize = 8;

/// Most tunnels of one agent: those of a process, and those of its predecessors that have not ended yet.
pub const TUNNELS_PER_AGENT_MAX: usize = 16;

/// Most tunnels of a cluster with which an agent may add tunnels as it likes. Beyond them an agent gets its
/// first tunnel, so that no agent keeps another one out. If all of its tunnels serve, a new process of it gets
/// one more. Every other tunnel takes the place of an idle one of the agent.
pub const TUNNELS_PER_CLUSTER_MAX: usize = 512;

/// Most tunnels of a cluster whose agents are all hostile. Beyond [`TUNNELS_PER_CLUSTER_MAX`] an agent that has
/// tunnels adds one at most, and none if it has more than [`TUNNELS_PER_PROCESS_MAX`]. One that has none adds
/// two. So a cluster gets most if 64 agents have 8 tunnels each and add one, and all others add two.
const TUNNELS_WITH_RESTARTS_MAX: usize = TUNNELS_PER_CLUSTER_MAX
    + TUNNELS_PER_CLUSTER_MAX / TUNNELS_PER_PROCESS_MAX
    + 2 * (CONNECTED_AGENTS_MAX + LEAVING_AGENTS_MAX - TUNNELS_PER_CLUSTER_MAX / TUNNELS_PER_PROCESS_MAX);

const _: () = assert!(LEAVING_AGENTS_MAX >= CONNECTED_AGENTS_MAX, "all agents of a cluster can be replaced");
// The predecessor's tunnels may all look live, and the new process gets its own beside them.
const _: () = assert!(TUNNELS_PER_AGENT_MAX >= 2 * TUNNELS_PER_PROCESS_MAX);
// Two carriers for every agent, and for every agent that is leaving.
const _: () = assert!(TUNNELS_PER_CLUSTER_MAX >= 2 * (CONNECTED_AGENTS_MAX + LEAVING_AGENTS_MAX));
const _: () = assert!(TUNNELS_WITH_RESTARTS_MAX == 768, "docs/limits.md and decision 0063 say this number");

/// The limit that kept a tunnel out of the registry. Each message says what to do, because the agent logs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitReached {
    /// The cluster has as many agents as it may.
    #[error(
        "the cluster is full: {CONNECTED_AGENTS_MAX} agents are connected, which is the most ({AGENTS_PER_CLUSTER_MAX}, and \
         {SURGE_AGENTS_MAX} more while agents are replaced); run fewer agents: a Deployment of 2 or 3 replicas is enough"
    )]
    ClusterAgents,
    /// Too many agents of the cluster are stopping and still finish exchanges.
    #[error(
        "the cluster is full: {LEAVING_AGENTS_MAX} of its agents are stopping and still finish requests, which is the \
         most; wait until one of them has ended, or replace fewer agents at once"
    )]
    LeavingAgents,
    /// The agent has as many tunnels as it may, and all of them serve.
    #[error(
        "this agent has {TUNNELS_PER_PROCESS_MAX} tunnels that serve, which is the most; do not let more than \
         {} names or addresses in `servers` lead to one server", TUNNELS_PER_PROCESS_MAX / 2
    )]
    AgentTunnels,
    /// The cluster has as many tunnels as it may, and this process of the agent has one of them.
    #[error(
        "the cluster has {TUNNELS_PER_CLUSTER_MAX} tunnels, which is the most, and this agent has one already; run fewer agents"
    )]
    ClusterTunnels,
    /// The server has as many tunnels as it may.
    #[error(
        "the server is full: it has {0} tunnels, which is the most; connect some clusters to another server, or raise \
         `limits.server.tunnels` there"
    )]
    ServerTunnels(usize),
}

/// One tunnel of a cluster, as far as these limits need it.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldTunnel<'t> {
    pub(super) ticket: u64,
    pub(super) agent: &'t AgentId,
    pub(super) boot: BootNonce,
    /// The tunnel finishes its exchanges and takes no new ones.
    pub(super) is_draining: bool,
    /// The tunnel takes no exchanges now: it drains, is silent, is on probation or belongs to an earlier
    /// process.
    pub(super) is_idle: bool,
}

/// Decides whether the process `boot` of `agent` may open one more tunnel beside those that its cluster
/// `held`, in the order of their registration. Returns the ticket of the agent's own tunnel that has to go for
/// it, if any.
///
/// # Errors
/// `LimitReached` if there is no room. A new process of an agent that counts is never refused, because it
/// replaces the earlier one. In a full cluster an idle tunnel goes for it, even one that still drains: a
/// process is only a claim, so new ones must not add a tunnel each.
pub(super) fn room_for(
    held: &[HeldTunnel<'_>],
    agent: &AgentId,
    boot: BootNonce,
) -> Result<Option<u64>, LimitReached> {
    check_agents(held, agent)?;
    let of_agent = || held.iter().filter(|tunnel| tunnel.agent == agent);
    let of_all_processes = of_agent().count();
    let of_process = of_agent().filter(|tunnel| tunnel.boot == boot).count();
    let is_process_full = of_process >= TUNNELS_PER_PROCESS_MAX;
    let is_agent_full = is_process_full || of_all_processes >= TUNNELS_PER_AGENT_MAX;
    let is_cluster_full = of_all_processes > 0 && held.len() >= TUNNELS_PER_CLUSTER_MAX;
    if !is_agent_full && !is_cluster_full {
        return Ok(None);
    }
    // A process that got a tunnel beyond the cluster's limit does not also get the last one of the earlier
    // processes. Otherwise every restart could add a tunnel that serves.
    let is_last_kept = is_cluster_full && of_process > 0 && of_all_processes - of_process <= 1;
    let is_own_only = is_process_full || is_last_kept;
    let mut may_go = of_agent().filter(|tunnel| tunnel.is_idle && (!is_own_only || tunnel.boot == boot));
    match may_go.next() {
        Some(oldest) => Ok(Some(oldest.ticket)),
        None if is_agent_full => Err(LimitReached::AgentTunnels),
        // All of the agent's tunnels serve an earlier process, which was perhaps killed a moment ago.
        None if of_process == 0 => Ok(None),
        None => Err(LimitReached::ClusterTunnels),
    }
}

/// Checks the limits on agents for one that is not counted yet.
fn check_agents(held: &[HeldTunnel<'_>], agent: &AgentId) -> Result<(), LimitReached> {
    let serving = held.iter().filter(|tunnel| !tunnel.is_draining);
    let connected: HashSet<&AgentId> = serving.map(|tunnel| tunnel.agent).collect();
    if connected.contains(agent) {
        return Ok(());
    }
    if connected.len() >= CONNECTED_AGENTS_MAX {
        return Err(LimitReached::ClusterAgents);
    }
    let all: HashSet<&AgentId> = held.iter().map(|tunnel| tunnel.agent).collect();
    let is_leaving = all.contains(agent);
    if !is_leaving && all.len() - connected.len() >= LEAVING_AGENTS_MAX {
        return Err(LimitReached::LeavingAgents);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
