//! Revocations of agents, which are checked at each handshake and on live tunnels.

use std::time::SystemTime;

use proto::ClusterId;
use proto::spiffe::AgentId;

use super::records::{Revocation, Revoked, UnixSeconds};
use super::store::StoreError;
use super::tombstones::NAMES_REFUSED;
use super::{Change, Directory, attestations};

/// Most revocations of agents that are kept.
pub const REVOCATIONS_MAX: usize = 100_000;

/// The credential of an agent, as far as revocations need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCredential {
    /// The certificate's serial number in lower-case hexadecimal.
    pub serial: String,
    /// The time at which it was issued.
    pub issued: UnixSeconds,
}

/// The reason why an agent is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    /// Its cluster was deleted by an administrator.
    #[error(
        "cluster {0} was deleted; bring it back by `tombolo cluster undelete {0}`, or create a cluster of another name"
    )]
    Deleted(ClusterId),
    /// Its cluster has a reserved name.
    #[error("no cluster may be called {0}, which is reserved for the server itself; choose another name")]
    Refused(ClusterId),
    /// It, all agents of its cluster, or its certificate are revoked.
    #[error(
        "this agent's certificate was revoked; ask an operator to restore it or to issue another, or enroll again"
    )]
    Revoked,
}

/// The reason why no agents were revoked.
#[derive(Debug, thiserror::Error)]
pub enum RevokeError {
    /// The limit of revocations is reached.
    #[error("{max} revocations are kept, which is the most", max = REVOCATIONS_MAX)]
    Full,
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Directory {
    /// Checks that an agent is admitted and can stay.
    ///
    /// # Errors
    /// [`NotAdmitted`], in words for the agent's log.
    pub fn admits(&self, agent: &AgentId, credential: &AgentCredential) -> Result<(), NotAdmitted> {
        if NAMES_REFUSED.contains(&agent.cluster().as_str()) {
            return Err(NotAdmitted::Refused(agent.cluster().clone()));
        }
        let cache = self.cache();
        let is_deleted = |cluster| {
            let member = cache.clusters.get(cluster)?;
            member.record.tombstone
        };
        if is_deleted(agent.cluster()).is_some() {
            return Err(NotAdmitted::Deleted(agent.cluster().clone()));
        }
        let revocation = |revoked| cache.revocations.get(&revoked);
        let issued_before = |revocation: &Revocation| credential.issued <= revocation.at;
        let is_revoked = revocation(Revoked::agent(agent)).is_some()
            || revocation(Revoked::Serial(credential.serial.clone())).is_some()
            || revocation(Revoked::Agents(agent.cluster().clone())).is_some_and(issued_before);
        if is_revoked { Err(NotAdmitted::Revoked) } else { Ok(()) }
    }

    /// Revokes credentials. Live tunnels are not disconnected by this function. [`Directory::in_force`] says which servers
    /// know of the change.
    ///
    /// # Errors
    /// [`RevokeError`].
    pub async fn revoke(&self, revoked: Revoked, now: SystemTime) -> Result<Change, RevokeError> {
        let is_full = self.cache().revocations.len() >= REVOCATIONS_MAX;
        let revoked = self.change_at(move |transaction| {
            let key = revoked.key();
            if is_full && transaction.get::<Revocation>(&key)?.is_none() {
                return Err(RevokeError::Full);
            }
            if let Revoked::Agents(cluster) = &revoked {
                // Unused tokens are void by this revocation, and the records of pods would enroll further agents.
                attestations::close(transaction, cluster, now.into())?;
            }
            Ok(transaction.put(&key, &Revocation { at: now.into() })?)
        });
        revoked.await.map(|((), change)| change)
    }

    /// Withdraws a revocation. Returns whether there was one.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn restore(&self, revoked: Revoked) -> Result<bool, StoreError> {
        self.change(move |transaction| transaction.remove::<Revocation>(&revoked.key())).await
    }

    /// Returns true if the agents that a cluster once had are revoked together, perhaps by its deletion.
    #[must_use]
    pub fn are_agents_revoked(&self, cluster: &ClusterId) -> bool {
        self.cache().revocations.contains_key(&Revoked::Agents(cluster.clone()))
    }
}
