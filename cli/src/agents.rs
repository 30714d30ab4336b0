//! `tombolo agent`: lists the agents of a server, and revokes and restores their certificates.

mod table;

use std::io;

use proto::admin::restore_agent_request::Restored;
use proto::admin::revoke_agent_request::Revoked;
use proto::admin::{Agent, RestoreAgentRequest, RevokeAgentRequest};
use serde_saphyr::SerializeError;

use crate::admin::{Admin, AdminError};
use crate::args::{AgentList, AgentRestore, AgentRevoke, AgentsOutput};
use crate::confirm::{self, ConfirmError};
use crate::in_force::RevokeOutput;
use crate::print;
use crate::runtime::{self, RuntimeError};
use crate::yaml;

/// The error if no agents were listed, revoked or restored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentsError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error(transparent)]
    Confirm(#[from] ConfirmError),
    #[error("the agents could not be written as JSON")]
    Json(#[from] serde_json::Error),
    #[error("the agents could not be written as YAML")]
    Yaml(#[from] SerializeError),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

/// Lists the agents of one cluster or of all: those that were enrolled, and those that are connected.
pub(crate) fn list(args: &AgentList) -> Result<Vec<String>, AgentsError> {
    let cluster = args.cluster.as_ref().map(ToString::to_string).unwrap_or_default();
    let agents = runtime::run(async |scope| {
        Admin::connect(args.server.endpoint(), scope).await?.agents(cluster).await
    })??;
    if agents.is_empty() && args.output.is_none_or(|output| output == AgentsOutput::Wide) {
        print::note("there is no agent; `tombolo token create` prints the commands that start one")?;
        return Ok(Vec::new());
    }
    Ok(match args.output {
        None => table::usual(&agents),
        Some(AgentsOutput::Wide) => table::wide(&agents),
        Some(AgentsOutput::Json) => vec![serde_json::to_string_pretty(&table::objects(&agents))?],
        Some(AgentsOutput::Yaml) => vec![yaml::document(&table::objects(&agents))?],
    })
}

/// Revokes one agent, all agents of a cluster, or one certificate.
pub(crate) fn revoke(args: AgentRevoke) -> Result<RevokeOutput, AgentsError> {
    let AgentRevoke { agent, cluster, serial, unseen, yes, server } = args;
    if let Some(cluster) = &cluster {
        let warning = format!(
            "Every agent that cluster {cluster} has up to now is refused for ever, and has to enroll again."
        );
        confirm::by_name(&warning, cluster.as_str(), yes)?;
    }
    let (revoked, message) = match (agent, cluster, serial) {
        (Some(agent), ..) => {
            let message = format!("agent {}/{} is refused from now on", agent.cluster, agent.instance);
            let (cluster, instance) = (agent.cluster.to_string(), agent.instance);
            (Some(Revoked::Agent(Agent { cluster, instance })), message)
        }
        (None, Some(cluster), _) => {
            let message = format!("all agents that cluster {cluster} has had up to now are refused");
            (Some(Revoked::Cluster(cluster.to_string())), message)
        }
        // clap requires one of the three.
        (None, None, serial) => {
            let message = "the certificate is refused from now on".to_owned();
            (serial.map(Revoked::Serial), message)
        }
    };
    let request = RevokeAgentRequest { revoked, unseen };
    let servers = runtime::run(async |scope| {
        Admin::connect(server.endpoint(), scope).await?.revoke_agent(request).await
    })??;
    Ok(RevokeOutput::new(message, &servers))
}

/// Withdraws the revocation of one agent or of one certificate.
pub(crate) fn restore(args: AgentRestore) -> Result<Vec<String>, AgentsError> {
    let AgentRestore { agent, serial, server } = args;
    let (restored, whom) = match agent {
        Some(agent) => {
            let whom = format!("agent {}/{}", agent.cluster, agent.instance);
            let (cluster, instance) = (agent.cluster.to_string(), agent.instance);
            (Some(Restored::Agent(Agent { cluster, instance })), whom)
        }
        // clap requires one of the two.
        None => (serial.map(Restored::Serial), "the certificate".to_owned()),
    };
    let request = RestoreAgentRequest { restored };
    let answer = runtime::run(async |scope| {
        Admin::connect(server.endpoint(), scope).await?.restore_agent(request).await
    })??;
    let mut lines = vec![format!("the revocation of {whom} is withdrawn")];
    if !answer.still_refused.is_empty() {
        lines.push(format!("it is refused all the same: {}", answer.still_refused));
    }
    Ok(lines)
}
