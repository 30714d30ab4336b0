//! Clusters as objects of Kubernetes' form, in JSON and YAML, for programs.

use std::collections::{BTreeMap, HashMap};

use prost_types::Timestamp;
use proto::admin::{Cluster, Health, ServedCertificate, Tunnel};
use serde_json::{Value, json};

use super::table::{accepted, round_trip};

/// A `ClusterList` of these clusters.
pub(super) fn list(clusters: &[Cluster]) -> Value {
    let items: Vec<Value> = clusters.iter().map(object).collect();
    json!({ "apiVersion": "tombolo.dev/v1alpha1", "kind": "ClusterList", "items": items })
}

/// A `Cluster` with its spec and status.
pub(super) fn object(cluster: &Cluster) -> Value {
    let description = cluster.description.clone().unwrap_or_default();
    json!({
        "apiVersion": "tombolo.dev/v1alpha1",
        "kind": "Cluster",
        "metadata": {
            "name": cluster.name,
            "labels": sorted(&description.labels),
            "creationTimestamp": rfc3339(cluster.created),
        },
        "spec": { "networks": description.networks, "advertise": description.advertise },
        "status": {
            "connected": cluster.connected,
            "lastSeen": rfc3339(cluster.last_seen),
            "virtualAddress": Some(&cluster.virtual_address).filter(|address| !address.is_empty()),
            "version": Some(&cluster.kubernetes_version).filter(|version| !version.is_empty()),
            "tunnels": cluster.tunnels.iter().map(|found| tunnel(cluster, found)).collect::<Vec<_>>(),
        },
    })
}

/// A time as Kubernetes writes it: `2026-01-31T12:00:00Z`.
fn rfc3339(time: Option<Timestamp>) -> Option<String> {
    time.map(|time| time.to_string())
}

fn sorted(labels: &HashMap<String, String>) -> BTreeMap<&String, &String> {
    labels.iter().collect()
}

fn tunnel(cluster: &Cluster, tunnel: &Tunnel) -> Value {
    let measured = tunnel.measurements.unwrap_or_default();
    json!({
        "agent": tunnel.agent,
        "version": Some(&tunnel.version).filter(|version| !version.is_empty()),
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
        "since": rfc3339(tunnel.since),
        "endpoints": tunnel.endpoints,
        "acceptedEndpoints": accepted(cluster, tunnel),
        "certificates": tunnel.certificates.iter().map(certificate).collect::<Vec<_>>(),
        "home": tunnel.home,
        "server": Some(&tunnel.server).filter(|server| !server.is_empty()),
        "roundTripSeconds": round_trip(&measured).map(|round_trip| round_trip.as_secs_f64()),
        "packetsSent": measured.packets_sent,
        "packetsLost": measured.packets_lost,
        "streamsOpen": measured.streams_open,
    })
}

fn certificate(certificate: &ServedCertificate) -> Value {
    let ServedCertificate { address, names, cut } = certificate;
    json!({ "address": address, "names": names, "cut": cut })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml;
    use proto::admin::Description;

    #[test]
    fn times_of_clusters_and_tunnels_are_rfc_3339() {
        let at = |seconds| Some(Timestamp { seconds, nanos: 0 });
        let tunnel = Tunnel { since: at(1_769_860_800), ..Tunnel::default() };
        let cluster = Cluster {
            created: at(0),
            last_seen: at(1_769_860_801),
            tunnels: vec![tunnel],
            ..Cluster::default()
        };

        let shown = object(&cluster);

        assert_eq!(shown["metadata"]["creationTimestamp"], "1970-01-01T00:00:00Z");
        assert_eq!(shown["status"]["lastSeen"], "2026-01-31T12:00:01Z");
        assert_eq!(shown["status"]["tunnels"][0]["since"], "2026-01-31T12:00:00Z");
        assert_eq!(object(&Cluster::default())["status"]["lastSeen"], Value::Null);
        assert!(!shown.to_string().contains("UnixSeconds"), "{shown}");
    }

    #[test]
    fn yaml_has_the_values_of_json_for_every_label() {
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let labels =
            [label("a", "no"), label("b", "1e3"), label("c", ""), label("d", "0x1f"), label("e", "null")];
        let description = Description { labels: labels.into(), ..Description::default() };
        let cluster =
            Cluster { name: "123".to_owned(), description: Some(description), ..Cluster::default() };

        let text = yaml::document(&list(std::slice::from_ref(&cluster))).unwrap();

        assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), list(&[cluster]), "{text}");
        assert!(!text.ends_with('\n') && text.lines().count() > 10, "{text}");
    }
}
