//! `tombolo agent`: whose certificates the server of this machine takes.

use proto::admin::revoke_agent_request::Revoked;
use proto::admin::{Agent, RevokeAgentRequest};

use crate::admin::{Admin, AdminError};
use crate::args::AgentRevoke;
use crate::runtime::{self, NoRuntime};

/// Why nothing was revoked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentsError {
    #[error(transparent)]
    Runtime(#[from] NoRuntime),
    #[error(transparent)]
    Admin(#[from] AdminError),
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
    runtime::run(async |scope| Admin::connect(&server.socket, scope).await?.revoke_agent(request).await)??;
    Ok(vec![told])
}
