//! The content of a ClusterProfile, and the comparison with the one that is there.

use std::collections::BTreeMap;

use kube::core::DynamicObject;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::access::{Access, PROVIDER};
use crate::gateway::Cluster;

/// The `apiVersion` of profiles. <https://github.com/kubernetes-sigs/cluster-inventory-api>, v0.1.0
pub(super) const API_VERSION: &str = "multicluster.x-k8s.io/v1alpha1";

/// The `kind` of all profiles.
pub(super) const KIND: &str = "ClusterProfile";

/// The label with the name of the cluster manager.
const MANAGER_LABEL: &str = "x-k8s.io/cluster-manager";

/// The condition that says whether the control plane of a cluster is well.
const HEALTHY: &str = "ControlPlaneHealthy";

/// The field manager of all writes: fields of others stay as they are.
pub(super) const FIELD_MANAGER: &str = "tombolo-fleet-controller";

/// The content that a profile is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Profile {
    pub(super) name: String,
    manager: String,
    labels: BTreeMap<String, String>,
    healthy: Health,
    version: Option<String>,
    provider: Value,
}

/// The content of the condition.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Health {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Profile {
    pub(super) fn of(cluster: &Cluster, manager: &str, access: &Access) -> Self {
        let name = cluster.metadata.name.clone();
        let mut labels = cluster.metadata.labels.clone();
        labels.insert(MANAGER_LABEL.to_owned(), manager.to_owned());
        Self {
            healthy: health(cluster),
            version: cluster.status.version.clone(),
            provider: access.provider(&name),
            manager: manager.to_owned(),
            labels,
            name,
        }
    }

    /// Labels and spec, for a server-side apply.
    pub(super) fn object(&self) -> Value {
        json!({
            "apiVersion": API_VERSION, "kind": KIND, "metadata": { "name": self.name, "labels": self.labels },
            "spec": { "displayName": self.name, "clusterManager": { "name": self.manager } },
        })
    }

    /// The status, for a server-side apply. The time of the last transition stays unless the condition has another status.
    pub(super) fn status(&self, present: Option<&DynamicObject>, now: OffsetDateTime) -> Value {
        let before = present.map(condition_of).filter(|before| before["status"] == self.healthy.status);
        let since = before.and_then(|before| before["lastTransitionTime"].as_str().map(str::to_owned));
        let since = since.unwrap_or_else(|| whole_seconds(now));
        let mut status = json!({
            "conditions": [{
                "type": HEALTHY, "status": self.healthy.status, "reason": self.healthy.reason,
                "message": self.healthy.message, "lastTransitionTime": since,
            }],
            "accessProviders": [self.provider],
        });
        if let Some(version) = &self.version {
            status["version"] = json!({ "kubernetes": version });
        }
        json!({ "apiVersion": API_VERSION, "kind": KIND, "metadata": { "name": self.name }, "status": status })
    }

    /// Returns true if labels and spec are there, and we own no other label of it.
    pub(super) fn is_applied(&self, present: &DynamicObject) -> bool {
        let labels = present.metadata.labels.clone().unwrap_or_default();
        let ours = own_labels(present);
        self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && ours.iter().eq(self.labels.keys())
            && present.data["spec"]["displayName"] == self.name.as_str()
    }

    /// Returns true if the status says this, whenever it began.
    pub(super) fn is_told(&self, present: &DynamicObject) -> bool {
        let Health { status, reason, message } = &self.healthy;
        let condition = condition_of(present);
        let providers = present.data["status"]["accessProviders"].as_array();
        let provider = providers.into_iter().flatten().find(|provider| provider["name"] == PROVIDER);
        let version = present.data["status"]["version"]["kubernetes"].as_str();
        condition["status"] == *status
            && condition["reason"] == *reason
            && condition["message"] == message.as_str()
            && provider == Some(&self.provider)
            && version == self.version.as_deref()
    }
}

/// Returns true if a profile of the host cluster is one of this manager.
pub(super) fn is_of(present: &DynamicObject, manager: &str) -> bool {
    let label = present.metadata.labels.as_ref().and_then(|labels| labels.get(MANAGER_LABEL));
    let spec = present.data["spec"]["clusterManager"]["name"].as_str();
    label.is_some_and(|label| label == manager) && spec == Some(manager)
}

/// A dark cluster may be well: nobody knows. So the condition is never `False`.
fn health(cluster: &Cluster) -> Health {
    if cluster.status.connected {
        let message = "The gateway reaches the cluster through a tunnel.".to_owned();
        return Health { status: "True", reason: "Connected", message };
    }
    let message = match &cluster.status.last_seen {
        Some(time) => format!("The gateway has no tunnel to the cluster since {time}."),
        None => "The gateway has no tunnel to the cluster.".to_owned(),
    };
    Health { status: "Unknown", reason: "NotConnected", message }
}

/// The condition of a profile that is there; null if it has none.
fn condition_of(present: &DynamicObject) -> Value {
    let conditions = present.data["status"]["conditions"].as_array();
    let ours = conditions.into_iter().flatten().find(|condition| condition["type"] == HEALTHY);
    ours.cloned().unwrap_or_default()
}

/// The labels that the controller owns by the record of server-side apply, ordered.
fn own_labels(present: &DynamicObject) -> Vec<String> {
    let entries = present.metadata.managed_fields.iter().flatten();
    let ours = entries.filter(|entry| {
        entry.manager.as_deref() == Some(FIELD_MANAGER)
            && entry.subresource.as_deref().unwrap_or_default().is_empty()
    });
    let mut labels: Vec<String> = ours
        .filter_map(|entry| entry.fields_v1.as_ref())
        .filter_map(|fields| fields.0["f:metadata"]["f:labels"].as_object())
        .flat_map(|labels| labels.keys().filter_map(|key| key.strip_prefix("f:")).map(str::to_owned))
        .collect();
    labels.sort();
    labels
}

/// The time as Kubernetes writes it.
fn whole_seconds(now: OffsetDateTime) -> String {
    // A time of this century always has this form.
    now.replace_nanosecond(0).unwrap_or(now).format(&Rfc3339).unwrap_or_default()
}
