//! Publishes assigned addresses in a host cluster: each cluster is a Service there as long as a server knows it.
//!
//! Foreign objects are never touched. Our objects stay when a server ends that has no others beside it, so that a restart
//! makes no gap. Of several servers each keeps EndpointSlices with its own addresses, and the elected one keeps the Services
//! and removes the slices of servers that run no more.

mod host;
mod kind;
mod objects;
mod owner;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use daemon::{Scope, error_chain};
use futures::FutureExt as _;
use policy::Network;
use proto::ClusterId;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::assigned::ClusterAddress;
use crate::directory::{Directory, Election, ServerRanges};
use crate::identity::HostApi;
use crate::metrics::{self, ElectionName};
use host::{ActionResult, HostObjects, PublishError, WriteRight};
use kind::ObjectKind;
use objects::{SyncAction, plan};
use owner::{Owner, server_of};

pub use host::LIST_BYTES_MAX;

/// The interval between two synchronizations without a change.
pub const SYNC_INTERVAL: Duration = Duration::from_secs(60);

/// The shortest pause between two synchronizations, so that many changes become one. After a failure the
/// pause doubles each time, up to [`SYNC_INTERVAL`].
pub const SYNC_GAP: Duration = Duration::from_secs(1);

/// The time until another server has surely recorded its ranges after its registration, or made the Services of a new range.
const OTHERS_TAKE: Duration = Duration::from_secs(5);

/// The time between two looks at the election, and at the servers that run.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A namespace of a host cluster, and the server that publishes there.
pub struct HostNamespace {
    /// The API server of the host cluster.
    pub api: Arc<HostApi>,
    /// The name of the namespace.
    pub name: String,
    /// The name of this server, which labels its objects.
    pub server: String,
    /// The trust domain, which labels the objects of servers that share their records.
    pub trust_domain: String,
    /// The mark of the host cluster and the namespace. Servers with the same one elect a leader.
    pub mark: String,
}

/// Keeps a Service for each assigned address.
pub(super) struct Publisher {
    host: HostObjects,
    mark: String,
    election: Election,
    assigned: Vec<ClusterAddress>,
    directory: Directory,
    /// Foreign objects that have one of our names, as they were last seen.
    foreign: BTreeSet<(ObjectKind, String)>,
    is_failing: bool,
}

/// The result of one synchronization.
#[derive(Debug, Default)]
struct SyncResult {
    /// The number of clusters that are Services.
    published: usize,
    foreign: BTreeSet<(ObjectKind, String)>,
    /// The first error that left an object unlike it should be.
    lacking: Option<PublishError>,
}

/// The state that a synchronization depends on, beside the directory's records. When it differs, the next one begins.
#[derive(Debug, PartialEq, Eq)]
struct Situation {
    is_registered: bool,
    /// The servers that run, if this one leads.
    running: Option<BTreeSet<String>>,
}

/// The Services, as far as slices depend on them.
#[derive(Debug, Default)]
struct SyncedServices {
    /// The names of Services that are not as they should be.
    lacking: BTreeSet<String>,
    /// Services that nobody needs any more. Their slices go first.
    unwanted: Vec<SyncAction>,
}

impl Publisher {
    pub(super) fn new(at: HostNamespace, assigned: Vec<ClusterAddress>, directory: Directory) -> Self {
        let HostNamespace { api, name: namespace, server, trust_domain, mark } = at;
        let election = directory.election(&format!("publisher/{mark}"), &server);
        let owner = Owner::new(server, directory.is_shared().then_some(&*trust_domain));
        let host = HostObjects { api, namespace, owner, directory: directory.clone() };
        Self { host, mark, election, assigned, directory, foreign: BTreeSet::new(), is_failing: false }
    }

    /// Keeps the objects in step until the drain, or until this server leaves others behind.
    pub(super) async fn run(mut self, scope: Scope) {
        let end =
            if self.host.owner.is_shared() { scope.stopping().boxed() } else { scope.draining().boxed() };
        // Both arms are cancel-safe: the next process completes an interrupted synchronization.
        tokio::select! {
            () = end => {}
            () = self.keep() => {}
        }
        self.leave().await;
    }

    async fn keep(&mut self) {
        let mut changes = self.directory.changes();
        let (mut pause, mut interval) = (SYNC_GAP, SYNC_INTERVAL);
        self.campaign().await;
        loop {
            changes.mark_unchanged();
            let seen = self.situation();
            let result = self.sync().await;
            let waits_for_leader =
                matches!(&result, Ok(SyncResult { lacking: Some(PublishError::NotMadeYet(_)), .. }));
            let is_other = if self.report(result) {
                pause = SYNC_GAP;
                sleep(SYNC_GAP).await;
                self.wait(interval - SYNC_GAP, &seen, Some(&mut changes)).await
            } else {
                let most = if waits_for_leader { OTHERS_TAKE } else { SYNC_INTERVAL };
                let waited = self.wait(pause.min(most), &seen, None).await;
                pause = (pause * 2).min(SYNC_INTERVAL);
                waited
            };
            interval = if is_other { OTHERS_TAKE } else { SYNC_INTERVAL };
        }
    }

    /// Waits for this time at most, until the situation is another one or the directory has changed. Returns whether it is.
    async fn wait(
        &mut self,
        most: Duration,
        seen: &Situation,
        mut changes: Option<&mut watch::Receiver<()>>,
    ) -> bool {
        let until = Instant::now() + most;
        while Instant::now() < until {
            let look = LOOK_EVERY.min(until - Instant::now());
            match &mut changes {
                Some(changes) => {
                    if timeout(look, changes.changed()).await.is_ok() {
                        return false;
                    }
                }
                None => sleep(look).await,
            }
            self.campaign().await;
            if self.situation() != *seen {
                return true;
            }
        }
        false
    }

    async fn campaign(&mut self) {
        // An error is the same as another leader: the next look is soon.
        let leads = self.election.campaign().await.unwrap_or(false);
        metrics::leads(ElectionName::Publisher, leads);
    }

    fn leads(&self) -> bool {
        self.election.leads_until().is_some()
    }

    fn situation(&self) -> Situation {
        let running = self.leads().then(|| self.directory.servers().into_keys().collect());
        Situation { is_registered: self.election.registered_until().is_some(), running }
    }

    /// Lets another server lead, and removes this server's slices, if another one is there for the callers.
    async fn leave(&mut self) {
        if !self.host.owner.is_shared() {
            return;
        }
        if let Err(error) = self.election.resign().await {
            warn!(error = %error_chain(&error), "another server keeps the Services of clusters some seconds later");
        }
        metrics::leads(ElectionName::Publisher, false);
        if !self.directory.has_another_server(self.host.owner.server()) {
            return;
        }
        if let Err(error) = self.remove_own_slices().await {
            warn!(error = %error_chain(&error), "this server's addresses could not be removed from the host cluster");
        }
    }

    async fn remove_own_slices(&self) -> Result<(), PublishError> {
        let mut result = SyncResult::default();
        let slices = self.own_slices().await?;
        let right = WriteRight::Registered(&self.election);
        self.apply_all(ObjectKind::Slice, plan(&slices, &BTreeMap::new()), right, &mut result).await?;
        result.lacking.map_or(Ok(()), Err)
    }

    /// Brings the objects in step with the directory, as far as possible.
    async fn sync(&self) -> Result<SyncResult, PublishError> {
        if self.election.registered_until().is_none() {
            return Err(PublishError::LeaseOver);
        }
        let mut result = SyncResult::default();
        let services =
            self.host.list(ObjectKind::Service, &self.host.owner.selector(ObjectKind::Service)).await?;
        let slices = self.own_slices().await?;
        let leads = self.leads();
        let SyncedServices { lacking, unwanted } = if leads {
            self.sync_services(&services, &mut result).await?
        } else {
            self.await_services(&services, &mut result).await?
        };
        let mut wanted = self.assigned(ObjectKind::Slice);
        // A slice of ours beside a foreign Service would redirect that Service's clients here.
        wanted.retain(|cluster, _| !result.foreign.contains(&(ObjectKind::Service, cluster.clone())));
        let (clusters, wanted): (Vec<String>, BTreeMap<String, Value>) = wanted
            .into_iter()
            .map(|(cluster, slice)| (cluster.clone(), (self.host.owner.slice_name(&cluster), slice)))
            .unzip();
        let lacking: BTreeSet<String> =
            lacking.iter().map(|cluster| self.host.owner.slice_name(cluster)).collect();
        let actions = plan(&slices, &wanted).into_iter().filter(|action| {
            // While a Service is not in step, its existing slice stays.
            !lacking.contains(action.name()) || matches!(action, SyncAction::Remove(_))
        });
        let right = WriteRight::Registered(&self.election);
        let mut lacking_too =
            self.apply_all(ObjectKind::Slice, actions.collect(), right, &mut result).await?;
        lacking_too.extend(lacking);
        let is_published = |cluster: &&String| !lacking_too.contains(&self.host.owner.slice_name(cluster));
        result.published = clusters.iter().filter(is_published).count();
        if leads {
            self.remove_slices_of_gone_servers(&mut result).await?;
            let right = WriteRight::Leader(&self.election);
            self.apply_all(ObjectKind::Service, unwanted, right, &mut result).await?;
        }
        Ok(result)
    }

    async fn own_slices(&self) -> Result<Vec<Value>, PublishError> {
        let selector = self.host.owner.selector(ObjectKind::Slice);
        let mut slices = self.host.list(ObjectKind::Slice, &selector).await?;
        // A fake or an old API server may ignore a part of the selector.
        slices.retain(|slice| server_of(slice).is_none_or(|server| server == self.host.owner.server()));
        Ok(slices)
    }

    /// Makes and changes Services, as the leader.
    async fn sync_services(
        &self,
        services: &[Value],
        result: &mut SyncResult,
    ) -> Result<SyncedServices, PublishError> {
        let wanted = if self.host.owner.is_shared() {
            self.services(&self.directory.server_ranges().await?)
        } else {
            self.assigned(ObjectKind::Service)
        };
        let (unwanted, actions): (Vec<_>, Vec<_>) =
            plan(services, &wanted).into_iter().partition(|action| matches!(action, SyncAction::Remove(_)));
        let right = WriteRight::Leader(&self.election);
        let lacking = self.apply_all(ObjectKind::Service, actions, right, result).await?;
        Ok(SyncedServices { lacking, unwanted })
    }

    /// Looks which Services the leader has made already.
    async fn await_services(
        &self,
        services: &[Value],
        result: &mut SyncResult,
    ) -> Result<SyncedServices, PublishError> {
        let made: BTreeSet<&str> =
            services.iter().filter_map(|service| service["metadata"]["name"].as_str()).collect();
        let mut synced = SyncedServices::default();
        for cluster in self.assigned(ObjectKind::Service).into_keys() {
            if made.contains(&*cluster) {
                continue;
            }
            // If one is not made yet, the others are not either. A foreign one is no reason to wait.
            let is_ours = match result.lacking {
                Some(_) => None,
                None => self.host.has(ObjectKind::Service, &cluster).await?,
            };
            match is_ours {
                Some(true) => continue,
                Some(false) => {
                    result.foreign.insert((ObjectKind::Service, cluster.clone()));
                }
                None => {
                    result.lacking.get_or_insert_with(|| PublishError::NotMadeYet(cluster.clone()));
                }
            }
            synced.lacking.insert(cluster);
        }
        Ok(synced)
    }

    /// Removes the slices of servers that run no more, as the leader.
    async fn remove_slices_of_gone_servers(&self, result: &mut SyncResult) -> Result<(), PublishError> {
        if !self.host.owner.is_shared() {
            return Ok(());
        }
        let known: BTreeSet<String> = self.directory.servers().into_keys().collect();
        let slices = self.host.list(ObjectKind::Slice, &Owner::selector_of_gone(&known)).await?;
        if slices.is_empty() {
            return Ok(());
        }
        // A server registers before it makes a slice. So one whose slice was listed, and that runs, is here.
        let running = self.directory.registered_servers().await?;
        let is_gone = |slice: &Value| server_of(slice).is_some_and(|server| !running.contains(server));
        let gone: Vec<Value> = slices.into_iter().filter(is_gone).collect();
        let right = WriteRight::Leader(&self.election);
        self.apply_all(ObjectKind::Slice, plan(&gone, &BTreeMap::new()), right, result).await?;
        Ok(())
    }

    /// The objects for this server's addresses, by cluster.
    fn assigned(&self, kind: ObjectKind) -> BTreeMap<String, Value> {
        let is_known = |assigned: &&ClusterAddress| is_known(&self.directory, &assigned.cluster);
        let object = |ClusterAddress { cluster, address, .. }: &ClusterAddress| {
            (cluster.to_string(), kind.object(&self.host.owner, cluster.as_str(), *address))
        };
        self.assigned.iter().filter(is_known).map(object).collect()
    }

    /// The Services of all servers that publish here, by cluster. If servers differ in port or family, the first one counts.
    fn services(&self, servers: &BTreeMap<String, ServerRanges>) -> BTreeMap<String, Value> {
        let here = servers.values().filter(|server| server.published_at.as_ref() == Some(&self.mark));
        let mut wanted = BTreeMap::new();
        for range in here.flat_map(|server| &server.ranges) {
            let Ok(network) = range.network.parse::<Network>() else { continue };
            let example = SocketAddr::new(network.address(), range.port);
            for cluster in &range.clusters {
                let is_known =
                    cluster.parse().is_ok_and(|cluster: ClusterId| is_known(&self.directory, &cluster));
                if is_known && !wanted.contains_key(cluster) {
                    let service = ObjectKind::Service.object(&self.host.owner, cluster, example);
                    wanted.insert(cluster.clone(), service);
                }
            }
        }
        wanted
    }

    /// Performs all actions, even if some fail. Returns the names of objects that are not as they should be.
    async fn apply_all(
        &self,
        kind: ObjectKind,
        actions: Vec<SyncAction>,
        right: WriteRight<'_>,
        result: &mut SyncResult,
    ) -> Result<BTreeSet<String>, PublishError> {
        let mut lacking = BTreeSet::new();
        for action in actions {
            let name = action.name().to_owned();
            match self.host.apply(kind, action, right).await {
                Ok(ActionResult::Done) => continue,
                Ok(ActionResult::Unsettled) => {
                    let what = format!("{} {name}", kind.as_str());
                    result.lacking.get_or_insert(PublishError::Unsettled(what));
                }
                Ok(ActionResult::Foreign) => {
                    result.foreign.insert((kind, name.clone()));
                }
                Err(lacking @ (PublishError::Refused { .. } | PublishError::Unsettled(_))) => {
                    result.lacking.get_or_insert(lacking);
                }
                Err(
                    away @ (PublishError::HostApiError(_)
                    | PublishError::NotMadeYet(_)
                    | PublishError::LeaseOver
                    | PublishError::Store(_)),
                ) => return Err(away),
            }
            lacking.insert(name);
        }
        Ok(lacking)
    }

    /// Logs each problem once, updates metrics, and returns whether everything is in step.
    fn report(&mut self, result: Result<SyncResult, PublishError>) -> bool {
        let SyncResult { published, foreign, lacking } = result.unwrap_or_else(|away| SyncResult {
            foreign: self.foreign.clone(),
            lacking: Some(away),
            ..SyncResult::default()
        });
        for (kind, name) in foreign.difference(&self.foreign) {
            warn!(
                kind = kind.as_str(),
                name,
                namespace = self.host.namespace,
                "the host cluster has an object of this name that is not this server's, and it is left alone: the cluster is no \
                 Service there until it is gone"
            );
        }
        let was_failing = std::mem::replace(&mut self.is_failing, lacking.is_some());
        match &lacking {
            Some(error) => {
                metrics::publishing_failed();
                if !was_failing {
                    warn!(error = %error_chain(error), "not all Services of clusters could be kept, trying again");
                }
            }
            None => {
                metrics::published(published, foreign.len());
                if was_failing {
                    info!("all Services of clusters are kept again");
                }
            }
        }
        self.foreign = foreign;
        lacking.is_none()
    }
}

/// Returns true if a cluster exists.
fn is_known(directory: &Directory, cluster: &ClusterId) -> bool {
    directory.record(cluster).is_some_and(|record| record.tombstone.is_none())
}
