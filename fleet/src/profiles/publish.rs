//! Writes to the host cluster what a round has found.

use futures::{StreamExt as _, stream};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use time::OffsetDateTime;
use tracing::{info, warn};

use super::access::Access;
use super::missing::Missing;
use super::plan::{self, Round, Step};
use super::profile::{API_VERSION, FIELD_MANAGER, KIND};
use crate::gateway::Cluster;
use crate::host::Host;
use crate::metrics::{self, Write};

/// Profiles of one page of a list.
const PAGE: u32 = 500;

/// Clusters whose profiles are written at the same time.
const WRITERS: usize = 8;

/// The profiles of the host cluster.
pub struct Profiles {
    api: Api<DynamicObject>,
    manager: String,
    missing: Missing,
    foreign: Vec<String>,
}

/// The profiles are not as the gateway says.
#[derive(Debug, thiserror::Error)]
pub enum ProfilesError {
    /// The host cluster has no ClusterProfile at all.
    #[error(
        "the host cluster does not know {API_VERSION} {KIND}; install the CustomResourceDefinition of kubernetes-sigs/cluster-inventory-api"
    )]
    NoResource,
    /// The profiles cannot be listed.
    #[error("the host cluster does not list its profiles")]
    List(#[source] Box<kube::Error>),
    /// The host cluster refused some writes. The log has each one.
    #[error("the host cluster refused {0} of {1} writes; the log has each one")]
    Writes(usize, usize),
}

impl ProfilesError {
    fn of_list(error: kube::Error) -> Self {
        // The path of a resource that nobody has defined.
        if matches!(&error, kube::Error::Api(status) if status.code == 404) {
            return Self::NoResource;
        }
        Self::List(Box::new(error))
    }
}

impl Profiles {
    /// The profiles of this manager.
    #[must_use]
    pub fn new(host: &Host, manager: &str) -> Self {
        let (group, version) = API_VERSION.split_once('/').unwrap_or_default();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, KIND));
        Self {
            api: Api::namespaced_with(host.client.clone(), &host.namespace, &resource),
            manager: manager.to_owned(),
            missing: Missing::default(),
            foreign: Vec::new(),
        }
    }

    /// Makes the profiles say what the gateway says. Nothing is written if nothing changed.
    ///
    /// # Errors
    /// [`ProfilesError`]
    pub async fn publish(&mut self, access: &Access, clusters: &[Cluster]) -> Result<(), ProfilesError> {
        let present = self.list().await?;
        let round = plan::compare(&self.manager, access, clusters, &present, OffsetDateTime::now_utc());
        let Round { mut steps, foreign, missing } = round;
        metrics::counted(clusters.len(), foreign.len());
        self.tell_foreign(foreign);
        let delete = |name| Step { kind: Write::Delete, name, object: serde_json::Value::Null };
        steps.extend(self.missing.note(missing).into_iter().map(delete));
        let (all, refused) = (steps.len(), self.write(steps).await);
        if refused > 0 { Err(ProfilesError::Writes(refused, all)) } else { Ok(()) }
    }

    /// All profiles of the namespace, of whatever manager.
    async fn list(&self) -> Result<Vec<DynamicObject>, ProfilesError> {
        let mut found = Vec::new();
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let list = self.api.list(&page).await.map_err(ProfilesError::of_list)?;
            found.extend(list.items);
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(found),
            }
        }
    }

    /// Says once which names are taken.
    fn tell_foreign(&mut self, foreign: Vec<String>) {
        for name in foreign.iter().filter(|name| !self.foreign.contains(name)) {
            warn!(
                cluster = name,
                "a ClusterProfile of this name belongs to another manager; it is left alone"
            );
        }
        self.foreign = foreign;
    }

    /// Makes all writes, those of one name in their order. Returns how many were refused.
    async fn write(&self, steps: Vec<Step>) -> usize {
        let by_name = steps.chunk_by(|a, b| a.name == b.name);
        let refused = stream::iter(by_name.map(|steps| self.write_one(steps)));
        refused.buffer_unordered(WRITERS).fold(0, async |sum, refused| sum + refused).await
    }

    async fn write_one(&self, steps: &[Step]) -> usize {
        for (done, step) in steps.iter().enumerate() {
            if let Err(error) = self.step(step).await {
                warn!(cluster = step.name, kind = step.kind.label(), %error, "a ClusterProfile was not written");
                return steps.len() - done;
            }
            metrics::written(step.kind);
            info!(cluster = step.name, kind = step.kind.label(), "wrote a ClusterProfile");
        }
        0
    }

    async fn step(&self, step: &Step) -> Result<(), kube::Error> {
        let apply = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(&step.object);
        match step.kind {
            Write::Apply => self.api.patch(&step.name, &apply, &patch).await.map(drop),
            Write::Status => self.api.patch_status(&step.name, &apply, &patch).await.map(drop),
            Write::Delete => self.api.delete(&step.name, &DeleteParams::default()).await.map(drop),
        }
    }
}
