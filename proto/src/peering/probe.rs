//! The question whether another process of an agent is alive at another server, and its answer.

use super::PeerMessageError;
use crate::cluster::ClusterId;
use crate::greeting::BootNonce;
use crate::spiffe::AgentId;
use crate::wire::{Probe, Probed, probed};

/// The question for other processes of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeRequest {
    /// Identifies the question among those of its session.
    pub number: u64,
    /// The agent, as its certificate has it.
    pub agent: AgentId,
    /// The process that is new at the sender.
    pub boot: BootNonce,
}

/// The result of a search for other processes of an agent. A later one says more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeOutcome {
    /// No other process answers. Its tunnels are closed.
    NoDuplicate,
    /// Another process has answered, and its tunnels were closed in favour of the new one.
    OldReplaced,
    /// Another process answers and stays, so the new one must go.
    NewRefused,
}

/// The answer to such a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeAnswer {
    /// The number of the question.
    pub number: u64,
    /// The result; `None` if a newer server has given one that is unknown here.
    pub outcome: Option<ProbeOutcome>,
}

impl TryFrom<Probe> for ProbeRequest {
    type Error = PeerMessageError;

    fn try_from(Probe { number, cluster, agent, boot_nonce }: Probe) -> Result<Self, PeerMessageError> {
        let cluster: ClusterId = cluster.parse()?;
        let within = || cluster.to_string();
        let agent = AgentId::new(cluster.clone(), &agent).ok_or_else(|| PeerMessageError::Agent(within()))?;
        let boot = boot_nonce.as_slice().try_into().map_err(|_| PeerMessageError::BootNonce(within()))?;
        Ok(Self { number, agent, boot: BootNonce(boot) })
    }
}

impl From<ProbeRequest> for Probe {
    fn from(ProbeRequest { number, agent, boot }: ProbeRequest) -> Self {
        let (cluster, name) = (agent.cluster().to_string(), agent.instance().to_owned());
        Self { number, cluster, agent: name, boot_nonce: boot.0.to_vec() }
    }
}

impl From<Probed> for ProbeAnswer {
    fn from(probed: Probed) -> Self {
        let outcome = match probed.outcome() {
            probed::Outcome::Unspecified => None,
            probed::Outcome::NoDuplicate => Some(ProbeOutcome::NoDuplicate),
            probed::Outcome::OldReplaced => Some(ProbeOutcome::OldReplaced),
            probed::Outcome::NewRefused => Some(ProbeOutcome::NewRefused),
        };
        Self { number: probed.number, outcome }
    }
}

impl From<ProbeAnswer> for Probed {
    fn from(ProbeAnswer { number, outcome }: ProbeAnswer) -> Self {
        let outcome = match outcome {
            None => probed::Outcome::Unspecified,
            Some(ProbeOutcome::NoDuplicate) => probed::Outcome::NoDuplicate,
            Some(ProbeOutcome::OldReplaced) => probed::Outcome::OldReplaced,
            Some(ProbeOutcome::NewRefused) => probed::Outcome::NewRefused,
        };
        Self { number, outcome: outcome.into() }
    }
}
