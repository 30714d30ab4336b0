//! Looks up the agents that a revocation names: whether this server knows them, what else refuses them, and where the
//! revocation is in force.

use std::time::Duration;

use proto::admin::InForce;
use proto::spiffe::AgentId;
use tonic::Status;

use super::{convert, requests};
use crate::directory::{Agent, AgentCredential, Change, Directory, Revoked, ServerConfirmation};
use crate::registry::{ClusterStatus, Registry};

/// Returns true if this server knows the agents that are to be revoked. A certificate's serial number counts as
/// known, because an operator may have issued the certificate by hand.
pub(super) async fn is_known(
    revoked: &Revoked,
    registry: &Registry,
    directory: &Directory,
) -> Result<bool, Status> {
    let (cluster, instance) = match revoked {
        Revoked::Agent(cluster, instance) => (cluster, instance),
        Revoked::Agents(cluster) => return Ok(directory.entry(cluster).is_some()),
        Revoked::Serial(_) => return Ok(true),
    };
    let has_tunnel = |status: ClusterStatus| {
        let here = status.tunnels.iter().map(|tunnel| &tunnel.agent);
        let mut agents = here.chain(status.at_peers.iter().map(|tunnel| &tunnel.told.agent));
        agents.any(|agent| agent.instance() == instance)
    };
    if registry.list(|name, _| name == cluster).into_iter().any(has_tunnel) {
        return Ok(true);
    }
    let enrolled = directory.agents(Some(cluster.clone())).await;
    let enrolled = enrolled.map_err(|error| requests::store_status(&error))?;
    Ok(enrolled.iter().any(|entry| entry.instance == *instance))
}

/// The reason why a restored agent's certificate on record is refused all the same; empty if there is none.
pub(super) async fn still_refused(restored: &Revoked, directory: &Directory) -> Result<String, Status> {
    let id = match restored {
        Revoked::Agent(cluster, instance) => AgentId::new(cluster.clone(), instance),
        Revoked::Agents(_) | Revoked::Serial(_) => None,
    };
    let Some(id) = id else { return Ok(String::new()) };
    let found = directory.agent(&id).await.map_err(|error| requests::store_status(&error))?;
    let refused = found.and_then(|Agent { serial, issued, .. }| {
        directory.admits(&id, &AgentCredential { serial, issued }).err()
    });
    Ok(refused.map_or_else(String::new, |refused| refused.to_string()))
}

/// The word of each server about a change, after a moment; none if this server shares its records with nobody.
pub(super) async fn in_force(change: Change, directory: &Directory, own_id: &str) -> Vec<InForce> {
    let confirmations = directory.in_force(change, own_id).await.into_iter();
    let word = |ServerConfirmation { server_id, refuses_from }| {
        // Rounded up, because it is a limit.
        let whole = |time| convert::whole_seconds(time + Duration::from_secs(1));
        InForce { server_id, refuses_from: refuses_from.map(whole) }
    };
    confirmations.map(word).collect()
}
