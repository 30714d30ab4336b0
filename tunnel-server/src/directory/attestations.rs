//! By what further pods of a cluster prove themselves, and which of them have.

use std::time::SystemTime;

use proto::ClusterId;
use proto::spiffe::AgentId;

use super::records::{Agent, Attestation, IssuedChain, UnixSeconds, Workload};
use super::store::{StoreError, Transaction};
use super::tombstones::existing_cluster;
use super::{Directory, agents};

/// Why a pod that has proved itself was not recorded.
#[derive(Debug, thiserror::Error)]
pub enum AttestError {
    /// What it was judged by is not what is recorded any more.
    #[error("what is recorded of its cluster has changed meanwhile")]
    Changed,
    /// As many agents as a cluster may have.
    #[error("its cluster has as many agents as it may")]
    Full,
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why what is recorded was not changed.
#[derive(Debug, thiserror::Error)]
pub enum AttestationUpdateError {
    /// It is not what it was looked at as.
    #[error("what is recorded of cluster {0} was changed meanwhile; look at it again")]
    Changed(ClusterId),
    /// There is no such cluster.
    #[error("there is no cluster {0}; `tombolo cluster list` shows those that there are")]
    Unknown(ClusterId),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Directory {
    /// By what further pods of `cluster` may prove themselves.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn attestation(&self, cluster: &ClusterId) -> Result<Attestation, StoreError> {
        let key = cluster.to_string();
        self.read(move |store| Ok(store.get::<Attestation>(&key)?.unwrap_or_default())).await
    }

    /// Records a pod that has proved itself by what was `seen` of its cluster's records. There is one agent for a pod's UID:
    /// whoever comes with the key that it had before is somebody with a copy.
    ///
    /// # Errors
    /// [`AttestError`].
    pub async fn attest(
        &self,
        id: &AgentId,
        seen: Attestation,
        agent: Agent,
        now: SystemTime,
    ) -> Result<IssuedChain, AttestError> {
        let id = id.clone();
        self.change(move |transaction| {
            let cluster = id.cluster();
            let found = transaction.get::<Attestation>(cluster.as_str())?.unwrap_or_default();
            if found != seen
                || found.closed.is_some()
                || existing_cluster(transaction, cluster, None).is_err()
            {
                return Err(AttestError::Changed);
            }
            let answer = agents::put(transaction, (cluster, id.instance()), agent, now)?;
            answer.ok_or(AttestError::Full)
        })
        .await
    }

    /// Puts `next` in the place of what was `seen` of a cluster.
    ///
    /// # Errors
    /// [`AttestationUpdateError`].
    pub async fn update_attestation(
        &self,
        cluster: &ClusterId,
        seen: Attestation,
        next: Attestation,
    ) -> Result<(), AttestationUpdateError> {
        let (cluster, cached) = (cluster.clone(), self.record(cluster));
        self.change(move |transaction| {
            existing_cluster(transaction, &cluster, cached)
                .map_err(|_| AttestationUpdateError::Unknown(cluster.clone()))?;
            if transaction.get::<Attestation>(cluster.as_str())?.unwrap_or_default() != seen {
                return Err(AttestationUpdateError::Changed(cluster));
            }
            Ok(transaction.put(cluster.as_str(), &next)?)
        })
        .await
    }
}

/// Records whose pods a cluster's agents are, if nothing is recorded.
pub(super) fn record(
    transaction: &mut Transaction<'_>,
    cluster: &ClusterId,
    workload: Workload,
) -> Result<(), StoreError> {
    let found = transaction.get::<Attestation>(cluster.as_str())?.unwrap_or_default();
    if found.workload.is_some() {
        return Ok(());
    }
    transaction.put(cluster.as_str(), &Attestation { workload: Some(workload), ..found })
}

/// Lets no further pod in until an administrator reopens it, whether any could come in by now or not.
pub(super) fn close(
    transaction: &mut Transaction<'_>,
    cluster: &ClusterId,
    now: UnixSeconds,
) -> Result<(), StoreError> {
    let found = transaction.get::<Attestation>(cluster.as_str())?.unwrap_or_default();
    transaction.put(cluster.as_str(), &Attestation { closed: found.closed.or(Some(now)), ..found })
}
