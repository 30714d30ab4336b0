//! `tombolo agent`: whose certificates the server of this machine takes.

use proto::admin::revoke_agent_request::Revoked;
use proto::admin::{Agent, RevokeAgentRequest};

use crate::admin::{Admin, AdminError};
use crate::args::{AgentList, AgentRevoke};
use crate::print;
use crate::runtime::{self, NoRuntime};

/// Why nothing was shown or revoked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentsError {
    #[error(transparent)]
    Runtime(#[from] NoRuntime),
    #[error(transparent)]
    Admin(#[from] AdminError),
}

/// The agents that were enrolled, one line each.
pub(crate) fn list(order: &AgentList) -> Result<Vec<String>, AgentsError> {
    let cluster = order.cluster.as_ref().map(ToString::to_string).unwrap_or_default();
    let agents = runtime::run(async |scope| {
        Admin::connect(order.server.place(), scope).await?.agents(cluster).await
    })??;
    if agents.is_empty() {
        return Ok(Vec::new());
    }
    let mut rows = vec![["AGENT", "EXPIRES", "SERIAL", "STATE", "POD"].map(str::to_owned)];
    rows.extend(agents.into_iter().map(|agent| {
        let expires = agent.expires.map_or_else(print::none, |expires| expires.to_string());
        let state = if agent.revoked { "Revoked" } else { "Enrolled" };
        let pod = if agent.pod.is_empty() { print::none() } else { agent.pod };
        [format!("{}/{}", agent.cluster, agent.instance), expires, agent.serial, state.to_owned(), pod]
    }));
    Ok(print::columns(&rows))
}

/// Refuses agents from now on.
pub(crate) fn revoke(order: AgentRevoke) -> Result<Vec<String>, AgentsError> {
    let AgentRevoke { agent, cluster, serial, server } = order;
    let (revoked, told) = match (agent, cluster, serial) {
        (Some(agent), ..) => {
            let told = format!("agent {}/{} is refused from now on", agent.cluster, agent.instance);
            let (cluster, instance) = (agent.cluster.to_string(), agent.instance);
            (Some(Revoked::Agent(Agent { cluster, instance })), told)
        }
        (None, Some(cluster), _) => {
            let told = format!("all agents that cluster {cluster} has had up to now are refused");
            (Some(Revoked::Cluster(cluster.to_string())), told)
        }
        // One of the three is there, or the server says what is missing.
        (None, None, serial) => {
            let told = "the certificate is refused from now on".to_owned();
            (serial.map(Revoked::Serial), told)
        }
    };
    let request = RevokeAgentRequest { revoked };
    runtime::run(async |scope| Admin::connect(server.place(), scope).await?.revoke_agent(request).await)??;
    Ok(vec![told])
}
