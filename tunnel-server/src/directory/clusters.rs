//! Creates, updates and deletes clusters.

use std::time::{Duration, SystemTime};

use proto::ClusterId;

use super::cluster_spec::{self, ClusterSpecError};
use super::records::{Agent, Attestation, Cluster, Revocation, Revoked, Seen, Tombstone, UnixSeconds};
use super::tombstones::{ClusterError, NAMES_REFUSED, existing_cluster};
use super::{Directory, agents};

/// Default time for which a deleted cluster's name is reserved. It is as long as the longest certificate of
/// its agents can still be in use.
pub const NAME_RESERVED: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// Changes to a cluster's description.
#[derive(Debug, Clone, Default)]
pub struct ClusterSpecUpdate {
    /// Labels to set, by name and value.
    pub set_labels: Vec<(String, String)>,
    /// Names of labels to remove.
    pub remove_labels: Vec<String>,
    /// All networks, in place of the old ones.
    pub networks: Option<Vec<String>>,
    /// All addresses that can be advertised, in place of the old ones.
    pub advertise: Option<Vec<String>>,
}

impl Directory {
    /// Creates a cluster with a description.
    ///
    /// # Errors
    /// [`ClusterError`].
    pub async fn create_cluster(
        &self,
        cluster: ClusterId,
        update: ClusterSpecUpdate,
        now: SystemTime,
    ) -> Result<(), ClusterError> {
        if NAMES_REFUSED.contains(&cluster.as_str()) {
            return Err(ClusterError::Refused(cluster));
        }
        let most = self.clusters_max();
        let is_full = self.cache().clusters.len() >= most;
        let this = self.clone();
        self.change(move |transaction| {
            let now = UnixSeconds::from(now);
            match transaction.get::<Cluster>(cluster.as_str())?.map(|found| found.tombstone) {
                Some(None) => return Err(ClusterError::Exists(cluster.clone())),
                Some(Some(Tombstone { reserved_until, .. })) if now < reserved_until => {
                    let days = (reserved_until.0 - now.0).div_ceil(24 * 60 * 60);
                    return Err(ClusterError::Reserved { cluster: cluster.clone(), days });
                }
                None if is_full => return Err(ClusterError::Full(most)),
                Some(Some(_)) | None => {}
            }
            let mut record = Cluster::new(now);
            update.clone().amend(&mut record)?;
            this.full_network(&record.networks, &cluster)
                .map_or(Ok(()), |full| Err(ClusterError::NetworkFull(full)))?;
            // A deleted one of this name leaves nothing to the new one.
            transaction.remove::<Cluster>(cluster.as_str())?;
            transaction.remove::<Seen>(cluster.as_str())?;
            Ok(transaction.put(cluster.as_str(), &record)?)
        })
        .await
    }

    /// Changes the description of a cluster.
    ///
    /// # Errors
    /// [`ClusterError`].
    pub async fn update_cluster(
        &self,
        cluster: ClusterId,
        update: ClusterSpecUpdate,
    ) -> Result<(), ClusterError> {
        let (this, cached) = (self.clone(), self.record(&cluster));
        self.change(move |transaction| {
            let mut record = existing_cluster(transaction, &cluster, cached.clone())?;
            update.clone().amend(&mut record)?;
            this.full_network(&record.networks, &cluster)
                .map_or(Ok(()), |full| Err(ClusterError::NetworkFull(full)))?;
            Ok(transaction.put(cluster.as_str(), &record)?)
        })
        .await
    }

    /// Deletes a cluster: its agents are refused from now on, and its name is reserved for the time
    /// `reserved`. Only the store keeps its description, for [`Directory::undelete_cluster`].
    ///
    /// # Errors
    /// [`ClusterError`].
    pub async fn delete_cluster(
        &self,
        cluster: ClusterId,
        now: SystemTime,
        reserved: Duration,
    ) -> Result<Tombstone, ClusterError> {
        let cached = self.record(&cluster);
        self.change(move |transaction| {
            let found = existing_cluster(transaction, &cluster, cached.clone())?;
            let now = UnixSeconds::from(now);
            let tombstone = Tombstone { deleted: now, reserved_until: now + reserved };
            let record = Cluster { tombstone: Some(tombstone), ..found };
            transaction.put(cluster.as_str(), &record)?;
            transaction.remove::<Seen>(cluster.as_str())?;
            transaction.remove_all::<Agent>(&agents::prefix(&cluster));
            transaction.remove::<Attestation>(cluster.as_str())?;
            // Certificates can outlive the reservation, and tokens are void by this. The next cluster of this name must
            // not accept them.
            transaction.put(&Revoked::Agents(cluster.clone()).key(), &Revocation { at: now })?;
            Ok(tombstone)
        })
        .await
    }

    /// Brings a deleted cluster back with its description, while its name is reserved. Returns its record.
    ///
    /// Its agents, tokens and attestation are gone, and the revocation of its agents' certificates stays: the
    /// deletion may have been meant for a stolen one.
    ///
    /// # Errors
    /// [`ClusterError`].
    pub async fn undelete_cluster(
        &self,
        cluster: ClusterId,
        now: SystemTime,
    ) -> Result<Cluster, ClusterError> {
        let (this, cached) = (self.clone(), self.record(&cluster));
        self.change(move |transaction| {
            let Some(found) = transaction.get::<Cluster>(cluster.as_str())? else {
                // It may be a cluster that is not in the store yet.
                return Err(match &cached {
                    Some(_) => ClusterError::NotDeleted(cluster.clone()),
                    None => ClusterError::NeverDeleted(cluster.clone()),
                });
            };
            let Some(Tombstone { deleted, reserved_until }) = found.tombstone else {
                return Err(ClusterError::NotDeleted(cluster.clone()));
            };
            if UnixSeconds::from(now) >= reserved_until {
                let days = reserved_until.0.saturating_sub(deleted.0) / (24 * 60 * 60);
                return Err(ClusterError::TooLate { cluster: cluster.clone(), days });
            }
            this.full_network(&found.networks, &cluster)
                .map_or(Ok(()), |full| Err(ClusterError::NetworkFull(full)))?;
            let record = Cluster { tombstone: None, ..found };
            transaction.put(cluster.as_str(), &record)?;
            Ok(record)
        })
        .await
    }
}

impl ClusterSpecUpdate {
    fn amend(self, record: &mut Cluster) -> Result<(), ClusterSpecError> {
        let Self { set_labels, remove_labels, networks, advertise } = self;
        record.labels.retain(|key, _| !remove_labels.contains(key));
        record.labels.extend(set_labels);
        if let Some(networks) = networks {
            record.networks = networks;
        }
        if let Some(advertise) = advertise {
            record.advertise = advertise;
        }
        cluster_spec::validate(record)
    }
}
