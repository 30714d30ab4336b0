//! The accounts by which further pods of clusters enroll, and the pods that have enrolled so.

use std::time::SystemTime;

use proto::ClusterId;
use proto::spiffe::AgentId;

use super::records::{Agent, Attestation, IssuedChain, UnixSeconds, Workload};
use super::store::{StoreError, Transaction};
use super::tombstones::existing_cluster;
use super::{Directory, agents};

/// The reason why a pod that has proved itself was not recorded.
#[derive(Debug, thiserror::Error)]
pub enum AttestError {
    /// The records against which it was verified have changed.
    #[error("what is recorded of its cluster has changed meanwhile")]
    Changed,
    /// The cluster has as many agents as it can have.
    #[error("its cluster has as many agents as it may")]
    Full,
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The reason why an attestation record was not changed.
#[derive(Debug, thiserror::Error)]
pub enum AttestationUpdateError {
    /// The record has changed since it was read.
    #[error("what is recorded of cluster {0} was changed meanwhile; look at it again")]
    Changed(ClusterId),
    /// There is no such cluster.
    #[error("there is no cluster {0}; `tombolo cluster list` shows those that there are")]
    Unknown(ClusterId),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Directory {
    /// The account by which further pods of `cluster` can enroll.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn attestation(&self, cluster: &ClusterId) -> Result<Attestation, StoreError> {
        let key = cluster.to_string();
        self.with_store(move |store| Ok(store.get::<Attestation>(&key)?.unwrap_or_default())).await
    }

    /// Records a pod that was verified against the record `seen`. There is one agent for each pod's UID, and
    /// a later use of its previous key is by a copy.
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
            let answer = agents::put(transaction, (cluster, id.instance()), &agent, now)?;
            answer.ok_or(AttestError::Full)
        })
        .await
    }

    /// Replaces the attestation record `seen` of a cluster with `next`.
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
            existing_cluster(transaction, &cluster, cached.clone())
                .map_err(|_| AttestationUpdateError::Unknown(cluster.clone()))?;
            if transaction.get::<Attestation>(cluster.as_str())?.unwrap_or_default() != seen {
                return Err(AttestationUpdateError::Changed(cluster.clone()));
            }
            Ok(transaction.put(cluster.as_str(), &next)?)
        })
        .await
    }
}

/// Records the account of a cluster's agents, if none is recorded.
pub(super) fn record(
    transaction: &mut Transaction<'_>,
    cluster: &ClusterId,
    workload: &Workload,
) -> Result<(), StoreError> {
    let found = transaction.get::<Attestation>(cluster.as_str())?.unwrap_or_default();
    if found.workload.is_some() {
        return Ok(());
    }
    transaction.put(cluster.as_str(), &Attestation { workload: Some(workload.clone()), ..found })
}

/// Closes a cluster to further pods until an administrator reopens it, whether pods could enroll before or
/// not.
pub(super) fn close(
    transaction: &mut Transaction<'_>,
    cluster: &ClusterId,
    now: UnixSeconds,
) -> Result<(), StoreError> {
    let found = transaction.get::<Attestation>(cluster.as_str())?.unwrap_or_default();
    transaction.put(cluster.as_str(), &Attestation { closed: found.closed.or(Some(now)), ..found })
}
