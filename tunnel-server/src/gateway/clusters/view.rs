//! A cluster as callers see it: its labels and its tunnels, without addresses of agents.

use std::time::SystemTime;

use policy::ClusterFacts;
use prost_types::Timestamp;
use proto::ClusterId;
use proto::session::Health;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::directory::UnixSeconds;
use crate::registry::{ClusterStatus, RemoteTunnelStatus, TunnelStatus};

/// The group and version of clusters and of their lists.
pub(super) const API_VERSION: &str = "tombolo.dev/v1alpha1";

/// A cluster at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::gateway) struct ClusterView {
    pub(super) name: ClusterId,
    /// The labels of the cluster, as policy takes them.
    pub(super) facts: ClusterFacts,
    pub(super) status: ClusterViewStatus,
}

/// The status of a cluster, in the form of the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClusterViewStatus {
    /// True if a new request would find a tunnel.
    pub(super) connected: bool,
    /// The last sign of life of a tunnel, as RFC 3339 in whole seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_seen: Option<String>,
    /// The version of the API server, if an agent has told it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    pub(super) tunnels: Vec<TunnelView>,
}

/// A tunnel to this or another server: callers do not see which server has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct TunnelView {
    agent: String,
    health: &'static str,
    draining: bool,
    since: Option<String>,
    endpoints: Vec<String>,
}

impl ClusterView {
    pub(super) fn of(listed: &ClusterStatus) -> Self {
        let here = listed.tunnels.iter().map(TunnelView::of);
        Self {
            name: listed.cluster.clone(),
            facts: ClusterFacts { labels: listed.record.labels.clone() },
            status: ClusterViewStatus {
                connected: listed.is_reachable(),
                last_seen: listed.last_heard().map(rfc3339),
                version: Some(listed.kubernetes_version.clone()).filter(|version| !version.is_empty()),
                tunnels: here.chain(listed.at_peers.iter().map(TunnelView::of_peer)).collect(),
            },
        }
    }

    /// Returns true if nothing differs but the last sign of life of a connected cluster, which is later each time.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        if !(self.status.connected && other.status.connected) {
            return self == other;
        }
        let last_seen = other.status.last_seen.clone();
        let status = ClusterViewStatus { last_seen, ..self.status.clone() };
        self.name == other.name && self.facts == other.facts && status == other.status
    }

    /// The cluster as an object of Kubernetes' form.
    pub(super) fn object(&self) -> Value {
        json!({
            "apiVersion": API_VERSION,
            "kind": "Cluster",
            "metadata": self.metadata(),
            "status": self.status,
        })
    }

    /// The metadata of the object.
    pub(super) fn metadata(&self) -> Value {
        let mut metadata = Map::from_iter([("name".to_owned(), json!(self.name.as_str()))]);
        if !self.facts.labels.is_empty() {
            metadata.insert("labels".to_owned(), json!(self.facts.labels));
        }
        metadata.into()
    }
}

impl TunnelView {
    fn of(tunnel: &TunnelStatus) -> Self {
        Self {
            agent: tunnel.agent.instance().to_owned(),
            health: health(tunnel.health),
            draining: tunnel.draining,
            since: Some(rfc3339(tunnel.since)),
            endpoints: tunnel.endpoints.clone(),
        }
    }

    fn of_peer(tunnel: &RemoteTunnelStatus) -> Self {
        let told = &tunnel.told;
        Self {
            agent: told.agent.instance().to_owned(),
            health: health(tunnel.health),
            draining: tunnel.draining,
            since: told.since.and_then(|since| UnixSeconds(since).time()).map(rfc3339),
            endpoints: told.advertised.endpoints.clone(),
        }
    }
}

fn health(health: Health) -> &'static str {
    match health {
        Health::Live => "Live",
        Health::Suspect => "Suspect",
        Health::Lost => "Lost",
    }
}

/// A time as Kubernetes writes it, in whole seconds.
fn rfc3339(time: SystemTime) -> String {
    Timestamp { nanos: 0, ..Timestamp::from(time) }.to_string()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A cluster with one label, and with a tunnel if it is `connected`.
    pub(in super::super) fn view(name: &str, stage: &str, connected: bool, last_seen: u64) -> ClusterView {
        let tunnel = TunnelView {
            agent: "0".to_owned(),
            health: "Live",
            draining: false,
            since: Some("2026-01-31T12:00:00Z".to_owned()),
            endpoints: vec!["192.168.1.10:6443".to_owned()],
        };
        ClusterView {
            name: name.parse().unwrap(),
            facts: ClusterFacts { labels: [("stage".to_owned(), stage.to_owned())].into() },
            status: ClusterViewStatus {
                connected,
                last_seen: UnixSeconds(last_seen).time().map(rfc3339),
                version: Some("v1.36.3".to_owned()),
                tunnels: Vec::from_iter(connected.then_some(tunnel)),
            },
        }
    }

    #[test]
    fn an_object_has_labels_version_and_the_last_sign_of_life() {
        let object = view("edge-a", "live", true, 1_769_860_800).object();
        let expected = json!({
            "apiVersion": "tombolo.dev/v1alpha1",
            "kind": "Cluster",
            "metadata": { "name": "edge-a", "labels": { "stage": "live" } },
            "status": {
                "connected": true,
                "lastSeen": "2026-01-31T12:00:00Z",
                "version": "v1.36.3",
                "tunnels": [{
                    "agent": "0", "health": "Live", "draining": false, "since": "2026-01-31T12:00:00Z",
                    "endpoints": ["192.168.1.10:6443"],
                }],
            },
        });
        assert_eq!(object, expected);
        let mut bare = view("edge-a", "live", false, 0);
        (bare.facts, bare.status.last_seen, bare.status.version) = (ClusterFacts::default(), None, None);
        assert_eq!(bare.object()["metadata"], json!({ "name": "edge-a" }));
        assert_eq!(bare.object()["status"], json!({ "connected": false, "tunnels": [] }));
    }

    #[test]
    fn the_clock_alone_changes_no_connected_cluster() {
        let connected = view("edge-a", "live", true, 5);
        assert!(connected.is_same(&view("edge-a", "live", true, 9)));
        assert!(!connected.is_same(&view("edge-a", "test", true, 5)), "another label");
        assert!(!connected.is_same(&view("edge-a", "live", false, 5)), "it is dark");
        let dark = view("edge-a", "live", false, 5);
        assert!(dark.is_same(&dark) && !dark.is_same(&view("edge-a", "live", false, 9)));
    }
}
