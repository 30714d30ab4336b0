//! Clusters as JSON, for programs.

use std::collections::{BTreeMap, HashMap};

use proto::admin::{Cluster, Health, Tunnel};
use serde_json::{Value, json};

use super::table::{accepted, round_trip, time};

/// All of them, as a Kubernetes list.
pub(super) fn list(clusters: &[Cluster]) -> Result<String, serde_json::Error> {
    let items: Vec<Value> = clusters.iter().map(object).collect();
    let list = json!({ "apiVersion": "tombolo.dev/v1alpha1", "kind": "ClusterList", "items": items });
    serde_json::to_string_pretty(&list)
}

/// One, in one line.
pub(super) fn line(cluster: &Cluster) -> Result<String, serde_json::Error> {
    serde_json::to_string(&object(cluster))
}

fn object(cluster: &Cluster) -> Value {
    let description = cluster.description.clone().unwrap_or_default();
    json!({
        "apiVersion": "tombolo.dev/v1alpha1",
        "kind": "Cluster",
        "metadata": { "name": cluster.name, "labels": sorted(&description.labels) },
        "spec": { "networks": description.networks, "advertise": description.advertise },
        "status": {
            "connected": cluster.connected,
            "lastSeenUnixSeconds": time(cluster.last_seen),
            "tunnels": cluster.tunnels.iter().map(|found| tunnel(cluster, found)).collect::<Vec<_>>(),
        },
    })
}

fn sorted(labels: &HashMap<String, String>) -> BTreeMap<&String, &String> {
    labels.iter().collect()
}

fn tunnel(cluster: &Cluster, tunnel: &Tunnel) -> Value {
    let measured = tunnel.measurements.unwrap_or_default();
    json!({
        "agent": tunnel.agent,
        "carrier": tunnel.carrier,
        "address": tunnel.address,
        "health": match tunnel.health() {
            Health::Unspecified => "Unknown",
            Health::Live => "Live",
            Health::Suspect => "Suspect",
            Health::Lost => "Lost",
        },
        "draining": tunnel.draining,
        "keyCopied": tunnel.key_copied,
        "sinceUnixSeconds": time(tunnel.since),
        "endpoints": tunnel.endpoints,
        "acceptedEndpoints": accepted(cluster, tunnel),
        "home": tunnel.home,
        "roundTripSeconds": round_trip(&measured).map(|round_trip| round_trip.as_secs_f64()),
        "packetsSent": measured.packets_sent,
        "packetsLost": measured.packets_lost,
        "streamsOpen": measured.streams_open,
    })
}
