//! Limits of certificate requests per agent and per cluster. Each request costs a signature and two audit
//! lines, which must not push others out of the log.

use std::time::{Duration, Instant};

use proto::ClusterId;
use proto::spiffe::AgentId;
use tonic::Status;

use crate::listener::windowed_counts::WindowedCounts;

/// The time for which a request counts.
const WINDOW: Duration = Duration::from_secs(600);

/// Most certificates that one agent, which is one pod, can request within [`WINDOW`]. A kubelet restarts a
/// container that ends at once seven times, and an agent repeats a request whose answer was lost.
const CERTIFICATES_MAX: u32 = 20;

/// Most certificates that all agents of a cluster can request, or clients whose tokens its issuer has signed:
/// four for each of as many agents as a cluster can have.
const CERTIFICATES_PER_CLUSTER_MAX: u32 = 1_024;

/// Most agents, and most clusters, whose requests are counted.
const REMEMBERED_MAX: usize = 65_536;

/// Counters of the requests within [`WINDOW`].
#[derive(Debug)]
pub(super) struct RateLimits {
    agents: WindowedCounts<AgentId>,
    clusters: WindowedCounts<ClusterId>,
    /// Requests with a key that its agent has replaced. They do not count against that agent.
    replaced: WindowedCounts<AgentId>,
}

impl Default for RateLimits {
    fn default() -> Self {
        Self {
            agents: WindowedCounts::new(WINDOW, REMEMBERED_MAX),
            clusters: WindowedCounts::new(WINDOW, REMEMBERED_MAX),
            replaced: WindowedCounts::new(WINDOW, REMEMBERED_MAX),
        }
    }
}

impl RateLimits {
    /// Counts a request of an agent that has proved itself by its recorded key or as a pod.
    pub(super) fn agent(&self, agent: &AgentId, now: Instant) -> Result<(), Status> {
        take(&self.agents, agent, CERTIFICATES_MAX, "this agent", now)?;
        self.cluster(agent.cluster(), now)
    }

    /// Counts a request of a client that has a token of the cluster, or one that the cluster's issuer has
    /// signed.
    pub(super) fn cluster(&self, cluster: &ClusterId, now: Instant) -> Result<(), Status> {
        take(&self.clusters, cluster, CERTIFICATES_PER_CLUSTER_MAX, "this cluster", now)
    }

    /// Counts a request with a key that the agent has replaced.
    pub(super) fn replaced(&self, agent: &AgentId, now: Instant) -> Result<(), Status> {
        take(&self.replaced, agent, CERTIFICATES_MAX, "the holder of this key", now)
    }
}

fn take<K: Eq + std::hash::Hash + Clone>(
    counts: &WindowedCounts<K>,
    who: &K,
    max: u32,
    called: &str,
    now: Instant,
) -> Result<(), Status> {
    if counts.count(who, now) >= max {
        let minutes = WINDOW.as_secs() / 60;
        return Err(Status::resource_exhausted(format!(
            "{called} has asked for {max} certificates within {minutes} minutes; try again when they are over"
        )));
    }
    counts.add(who.clone(), now);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(cluster: &str, instance: &str) -> AgentId {
        AgentId::new(cluster.parse().unwrap(), instance).unwrap()
    }

    /// Other agents of its cluster and of other clusters are not affected.
    #[test]
    fn the_certificates_of_one_agent_are_limited_apart_from_others() {
        let (limits, now) = (RateLimits::default(), Instant::now());
        let (one, two) = (agent("edge-a", "one"), agent("edge-a", "two"));
        for _ in 0..CERTIFICATES_MAX {
            limits.agent(&one, now).unwrap();
        }
        let refused = limits.agent(&one, now).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert!(refused.message().contains("20 certificates within 10 minutes"), "{refused:?}");
        limits.agent(&two, now).unwrap();
        limits.agent(&agent("edge-b", "one"), now).unwrap();
        limits.agent(&one, now + WINDOW).unwrap();
    }

    #[test]
    fn the_certificates_of_a_clusters_agents_together_are_limited() {
        let (limits, now) = (RateLimits::default(), Instant::now());
        for n in 0..CERTIFICATES_PER_CLUSTER_MAX {
            limits.agent(&agent("edge-a", &n.to_string()), now).unwrap();
        }
        let refused = limits.agent(&agent("edge-a", "another"), now).unwrap_err();
        assert!(refused.message().starts_with("this cluster"), "{refused:?}");
        limits.cluster(&"edge-a".parse().unwrap(), now).unwrap_err();
        limits.agent(&agent("edge-b", "another"), now).unwrap();
    }

    #[test]
    fn requests_with_a_replaced_key_do_not_count_against_its_agent() {
        let (limits, now) = (RateLimits::default(), Instant::now());
        let one = agent("edge-a", "one");
        for _ in 0..CERTIFICATES_MAX {
            limits.replaced(&one, now).unwrap();
        }
        limits.replaced(&one, now).unwrap_err();
        limits.agent(&one, now).unwrap();
    }
}
