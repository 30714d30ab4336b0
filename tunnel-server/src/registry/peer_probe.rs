//! Asks other servers whether a further process of an agent is alive there, and answers such questions.

use std::collections::HashMap;
use std::time::Duration;

use futures::future::join_all;
use proto::CloseCode;
use proto::greeting::BootNonce;
use proto::peering::{PeerMessage, ProbeAnswer, ProbeOutcome, ProbeRequest, RemoteTunnel};
use proto::session::Health;
use proto::spiffe::AgentId;
use tokio::time::timeout;
use tracing::warn;
use transport::Tunnel;

use super::duplicate_check::{is_any_alive, longest_check};
use super::peers::{PeerRegistration, PeerSession, TunnelAtPeer};
use super::tunnels::TunnelEntry;
use super::{RegisteredTunnel, Registration, Registry};
use crate::config::CopiedKey;

/// The time for an answer beyond that of the search itself.
const ANSWER_TAKES: Duration = Duration::from_millis(500);

/// The reason why another server has not said whether a process is alive there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum NotAnswered {
    #[error("its session takes no more questions")]
    NotAsked,
    #[error("it has not answered in time")]
    Silent,
    #[error("its session has ended, or its answer is not understood")]
    Ended,
}

impl PeerSession {
    /// Asks for processes of this agent beside `boot`.
    async fn ask(
        &self,
        agent: &AgentId,
        boot: BootNonce,
        within: Duration,
    ) -> Result<ProbeOutcome, NotAnswered> {
        if !self.tunnel().serves() {
            return Err(NotAnswered::NotAsked);
        }
        let (number, answered) = self.questions().begin().ok_or(NotAnswered::NotAsked)?;
        let question = PeerMessage::Probe(ProbeRequest { number, agent: agent.clone(), boot });
        let told = self.tunnel().tell_peer(question);
        let outcome = match told {
            Err(_) => Err(NotAnswered::NotAsked),
            Ok(()) => match timeout(within, answered).await {
                Ok(Ok(Some(outcome))) => Ok(outcome),
                Ok(Ok(None) | Err(_)) => Err(NotAnswered::Ended),
                Err(_) => Err(NotAnswered::Silent),
            },
        };
        self.questions().give_up(number);
        outcome
    }
}

impl PeerRegistration {
    /// Takes the other server's answer to a question. One that comes too late changes nothing.
    pub fn answered(&self, answer: ProbeAnswer) {
        self.session().questions().answered(answer);
    }
}

impl Registration {
    /// Asks the other servers that have tunnels of other processes of this agent. One that does not answer has no say.
    pub(super) async fn ask_elsewhere(&self) -> ProbeOutcome {
        let Some((agent, boot)) = self.process() else { return ProbeOutcome::NoDuplicate };
        let mut asked: HashMap<String, (PeerSession, Duration)> = HashMap::new();
        for other in self.others_elsewhere() {
            let (session, distance) = (other.session().clone(), other.told().distance);
            let (_, furthest) = asked.entry(session.server_id().to_owned()).or_insert((session, distance));
            *furthest = distance.max(*furthest);
        }
        let (agent, asked) = (&agent, asked.into_iter());
        let questions = asked.map(|(peer, (session, furthest))| async move {
            let within = longest_check(furthest) + ANSWER_TAKES;
            match session.ask(agent, boot, within).await {
                Ok(outcome) => outcome,
                Err(error) => {
                    warn!(
                        %agent,
                        peer,
                        %error,
                        "another server does not say whether an earlier process of an agent is alive there, so this one decides alone"
                    );
                    ProbeOutcome::NoDuplicate
                }
            }
        });
        join_all(questions).await.into_iter().max().unwrap_or(ProbeOutcome::NoDuplicate)
    }

    /// The tunnels at other servers for which this one has to ask.
    pub(super) fn others_elsewhere(&self) -> Vec<TunnelAtPeer> {
        let Some(own) = self.entry() else { return Vec::new() };
        let others = self.registry.0.at_peers.of_cluster(&self.cluster).into_iter();
        others.filter(|other| has_to_ask(&own, &other.told())).collect()
    }

    fn process(&self) -> Option<(AgentId, BootNonce)> {
        self.entry().map(|entry| (entry.agent, entry.boot))
    }

    fn entry(&self) -> Option<TunnelEntry<RegisteredTunnel>> {
        let tunnels = self.registry.0.by_cluster.get(&self.cluster)?;
        tunnels.entries().iter().find(|entry| entry.ticket == self.ticket).cloned()
    }
}

impl Registry {
    /// Returns true if another server has a tunnel of a process of this agent that counts as earlier than `boot`.
    pub(super) fn has_earlier_elsewhere(&self, agent: &AgentId, boot: BootNonce) -> bool {
        let others = self.0.at_peers.of_cluster(agent.cluster()).into_iter();
        others
            .map(|other| other.told())
            .any(|other| is_other_process(agent, boot, &other) && counts_as_new(true, boot, &other))
    }

    /// Has the tunnels of this server look for other processes of their agents again, for which they have to ask since
    /// another server has told of this tunnel.
    pub(super) fn look_again(&self, told: &RemoteTunnel) {
        if let Some(tunnels) = self.0.by_cluster.get(told.agent.cluster()) {
            let concerned = tunnels.entries().iter().filter(|own| has_to_ask(own, told));
            concerned.for_each(|own| own.tunnel.live.send_modify(|_| ()));
        }
    }

    /// Searches this server for another process of an agent than `boot`, which is new at another server. A silent one is
    /// closed. If one answers, the configuration decides which of the two stays.
    pub async fn answer_probe(&self, agent: &AgentId, boot: BootNonce) -> ProbeOutcome {
        let others = self.earlier_here(agent, boot);
        for old in others.iter().filter(|old| old.tunnel.tunnel.health() == Health::Suspect) {
            close(&old.tunnel, CloseCode::Lost);
        }
        let serving: Vec<_> = others.into_iter().filter(|old| old.tunnel.tunnel.serves()).collect();
        let tunnels: Vec<Tunnel> = serving.iter().map(|old| old.tunnel.tunnel.clone()).collect();
        let is_alive = is_any_alive(&tunnels).await;
        if is_alive && let Some(mut tunnels) = self.0.by_cluster.get_mut(agent.cluster()) {
            for old in &serving {
                tunnels.entry_mut(old.ticket).into_iter().for_each(|entry| entry.key_copied = true);
            }
        }
        let close_all = |code| serving.iter().for_each(|old| close(&old.tunnel, code));
        let outcome = match (is_alive, self.0.copied_key) {
            (false, _) => {
                close_all(CloseCode::Lost);
                ProbeOutcome::NoDuplicate
            }
            (true, CopiedKey::RefuseNew) => ProbeOutcome::NewRefused,
            (true, CopiedKey::PreferNew) => {
                close_all(CloseCode::Replaced);
                ProbeOutcome::OldReplaced
            }
        };
        self.changed(agent.cluster());
        outcome
    }

    /// The tunnels of this server that belong to other processes of an agent, and count as earlier than `boot` elsewhere.
    fn earlier_here(&self, agent: &AgentId, boot: BootNonce) -> Vec<TunnelEntry<RegisteredTunnel>> {
        let tunnels = self.0.by_cluster.get(agent.cluster());
        let entries = tunnels.iter().flat_map(|tunnels| tunnels.entries());
        let is_earlier = |own: &&TunnelEntry<RegisteredTunnel>| {
            own.agent == *agent && own.boot != boot && !(own.on_probation && own.boot.0 < boot.0)
        };
        entries.filter(is_earlier).cloned().collect()
    }
}

/// Returns true if the server of the tunnel `own` asks the other one, which has told of a tunnel of another process.
fn has_to_ask(own: &TunnelEntry<RegisteredTunnel>, other: &RemoteTunnel) -> bool {
    is_other_process(&own.agent, own.boot, other) && counts_as_new(own.on_probation, own.boot, other)
}

fn is_other_process(agent: &AgentId, boot: BootNonce, other: &RemoteTunnel) -> bool {
    other.agent == *agent && other.boot != boot && !other.is_draining
}

/// Returns true if of two processes at two servers this one counts as the new one: it alone is on probation. If both are,
/// or neither is, the lower nonce is the new one, so that only one of the servers asks.
fn counts_as_new(on_probation: bool, boot: BootNonce, other: &RemoteTunnel) -> bool {
    if on_probation == other.is_on_probation { boot.0 < other.boot.0 } else { on_probation }
}

/// Closes a tunnel of an earlier process, unless it ends by itself.
fn close(old: &RegisteredTunnel, code: CloseCode) {
    if !old.tunnel.is_draining() {
        old.inquiry.abandon();
        old.tunnel.close(code);
    }
}

#[cfg(test)]
mod tests {
    use proto::greeting::Advertised;

    use super::*;

    #[test]
    fn of_two_processes_at_two_servers_exactly_one_counts_as_new() {
        for (one_on_probation, other_on_probation) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            for (one, other) in [(3, 7), (7, 3)] {
                let counts = |own_probation, own: u8, other_probation, other: u8| {
                    counts_as_new(own_probation, BootNonce([own; 16]), &tunnel(other, other_probation))
                };
                let at_one = counts(one_on_probation, one, other_on_probation, other);
                let at_other = counts(other_on_probation, other, one_on_probation, one);
                assert!(at_one != at_other, "{one} {one_on_probation}, {other} {other_on_probation}");
            }
        }
    }

    #[test]
    fn the_process_on_probation_counts_as_new_and_else_the_lower_nonce() {
        let counts = |on_probation, own: u8, other: RemoteTunnel| {
            counts_as_new(on_probation, BootNonce([own; 16]), &other)
        };
        assert!(counts(true, 7, tunnel(3, false)) && !counts(false, 3, tunnel(7, true)));
        assert!(counts(true, 3, tunnel(7, true)) && !counts(true, 7, tunnel(3, true)));
    }

    #[test]
    fn only_another_process_of_the_same_agent_that_stays_is_asked_for() {
        let agent = tunnel(1, false).agent;
        let is_other =
            |boot: u8, other: RemoteTunnel| is_other_process(&agent, BootNonce([boot; 16]), &other);
        assert!(is_other(1, tunnel(2, false)));
        assert!(!is_other(2, tunnel(2, false)), "its own tunnel to another server");
        assert!(!is_other(1, RemoteTunnel { is_draining: true, ..tunnel(2, false) }));
        let spare = AgentId::parse("spiffe://tombolo/cluster/edge-a/agent/y", "tombolo").unwrap();
        assert!(!is_other(1, RemoteTunnel { agent: spare, ..tunnel(2, false) }));
    }

    fn tunnel(boot: u8, is_on_probation: bool) -> RemoteTunnel {
        RemoteTunnel {
            number: 1,
            agent: AgentId::parse("spiffe://tombolo/cluster/edge-a/agent/x", "tombolo").unwrap(),
            boot: BootNonce([boot; 16]),
            sequence: 1,
            serial: "1".to_owned(),
            issued: 5,
            advertised: Advertised::default(),
            is_live: true,
            is_on_probation,
            is_draining: false,
            distance: Duration::ZERO,
            streams_open: 0,
            version: String::new(),
            since: None,
            capabilities: proto::Capabilities::default(),
        }
    }
}
