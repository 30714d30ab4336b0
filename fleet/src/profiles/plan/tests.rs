//! Rounds against profiles as an API server has them after our writes.

use serde_json::{Value, json};

use super::*;

const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

fn access() -> Access {
    Access { gateway: "https://gateway.example".to_owned(), ca_pem: Some("PEM".to_owned()) }
}

fn cluster(name: &str, labels: Value, status: Value) -> Cluster {
    let object = json!({ "metadata": { "name": name, "labels": labels }, "status": status });
    serde_json::from_value(object).unwrap()
}

fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}

/// The object that an API server has after these writes.
fn written(steps: &[Step]) -> DynamicObject {
    let [applied, status] = steps else { panic!("{steps:?}") };
    assert_eq!((applied.kind, status.kind), (Write::Apply, Write::Status));
    let mut object = applied.object.clone();
    let labels = object["metadata"]["labels"].as_object().unwrap();
    let owned: serde_json::Map<_, _> = labels.keys().map(|key| (format!("f:{key}"), json!({}))).collect();
    object["metadata"]["managedFields"] = json!([
        { "manager": profile::FIELD_MANAGER, "operation": "Apply", "fieldsV1": { "f:metadata": { "f:labels": owned } } },
        { "manager": "somebody", "operation": "Update", "fieldsV1": { "f:metadata": { "f:labels": { "f:theirs": {} } } } },
    ]);
    object["metadata"]["labels"]["theirs"] = "kept".into();
    object["status"] = status.object["status"].clone();
    self::object(object)
}

fn round(clusters: &[Cluster], present: &[DynamicObject]) -> Round {
    compare("tombolo", &access(), clusters, present, NOW)
}

#[test]
fn a_profile_says_how_to_reach_the_cluster_and_whether_it_is_reached() {
    let status = json!({ "connected": true, "version": "v1.36.3" });
    let steps = round(&[cluster("oslo", json!({ "region": "eu" }), status)], &[]).steps;

    let profile = written(&steps);

    let labels = profile.metadata.labels.unwrap();
    assert_eq!((labels["region"].as_str(), labels["x-k8s.io/cluster-manager"].as_str()), ("eu", "tombolo"));
    assert_eq!(profile.data["spec"]["clusterManager"]["name"], "tombolo");
    let status = &profile.data["status"];
    assert_eq!(status["version"]["kubernetes"], "v1.36.3");
    assert_eq!(status["conditions"][0]["type"], "ControlPlaneHealthy");
    assert_eq!(status["conditions"][0]["status"], "True");
    assert_eq!(status["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:00Z");
    let provider = &status["accessProviders"][0];
    assert_eq!(provider["name"], "tombolo");
    assert_eq!(provider["cluster"]["server"], "https://gateway.example/clusters/oslo");
    assert_eq!(provider["cluster"]["certificate-authority-data"], "UEVN");
}

#[test]
fn nothing_is_written_if_nothing_changed() {
    let all = [
        cluster("a", json!({ "region": "eu" }), json!({ "connected": true })),
        cluster("b", json!({}), json!({ "connected": false, "lastSeen": "2026-11-28T16:00:00Z" })),
    ];
    let first = round(&all, &[]).steps;
    let present = [written(&first[..2]), written(&first[2..])];

    let second = round(&all, &present);

    assert_eq!(second.steps, []);
    assert_eq!(second.foreign.len() + second.missing.len(), 0);
}

/// Labels that others have given stay, and a label that the gateway has no more goes.
#[test]
fn a_label_that_went_is_taken_back() {
    let before = cluster("a", json!({ "region": "eu" }), json!({ "connected": true }));
    let present = written(&round(&[before], &[]).steps);
    let after = cluster("a", json!({}), json!({ "connected": true }));

    let steps = round(&[after], &[present]).steps;

    assert_eq!(steps.len(), 1);
    assert_eq!(steps[0].object["metadata"]["labels"], json!({ "x-k8s.io/cluster-manager": "tombolo" }));
}

/// A dark site may be well, so nobody says that it is not.
#[test]
fn a_dark_cluster_is_unknown_since_the_change() {
    let live = cluster("a", json!({}), json!({ "connected": true }));
    let present = written(&round(&[live], &[]).steps);
    let dark = cluster("a", json!({}), json!({ "connected": false, "lastSeen": "2026-11-28T16:00:00Z" }));
    let later = NOW + time::Duration::hours(1);

    let steps = compare("tombolo", &access(), std::slice::from_ref(&dark), &[present], later).steps;

    assert_eq!(steps.len(), 1, "{steps:?}");
    let condition = &steps[0].object["status"]["conditions"][0];
    assert_eq!(
        (condition["status"].as_str(), condition["reason"].as_str()),
        (Some("Unknown"), Some("NotConnected"))
    );
    assert_eq!(condition["lastTransitionTime"], "1970-01-01T01:00:00Z");
    assert!(condition["message"].as_str().unwrap().contains("since 2026-11-28T16:00:00Z"));
}

#[test]
fn another_message_keeps_the_time_of_the_last_transition() {
    let dark = |seen: &str| cluster("a", json!({}), json!({ "connected": false, "lastSeen": seen }));
    let present = written(&round(&[dark("2026-11-28T16:00:00Z")], &[]).steps);
    let later = NOW + time::Duration::hours(1);

    let steps = compare("tombolo", &access(), &[dark("2026-11-28T17:00:00Z")], &[present], later).steps;

    assert_eq!(steps[0].object["status"]["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:00Z");
}

#[test]
fn what_belongs_to_others_is_left_alone() {
    let named_alike = object(json!({
        "metadata": { "name": "a", "labels": { "x-k8s.io/cluster-manager": "other" } },
        "spec": { "clusterManager": { "name": "other" } },
    }));
    let unlabelled = object(json!({
        "metadata": { "name": "b" }, "spec": { "clusterManager": { "name": "tombolo" } },
    }));
    let unknown = object(json!({
        "metadata": { "name": "c", "labels": { "x-k8s.io/cluster-manager": "other" } },
        "spec": { "clusterManager": { "name": "other" } },
    }));
    let all = ["a", "b"].map(|name| cluster(name, json!({}), json!({ "connected": true })));

    let round = round(&all, &[named_alike, unlabelled, unknown]);

    assert_eq!(round.steps, []);
    assert_eq!(round.foreign, ["a", "b"]);
    assert!(round.missing.is_empty());
}

#[test]
fn a_profile_without_a_cluster_is_missing_one() {
    let live = cluster("a", json!({}), json!({ "connected": true }));
    let present = written(&round(&[live], &[]).steps);

    let round = round(&[], &[present]);

    assert_eq!((round.steps.len(), round.missing), (0, vec!["a".to_owned()]));
}
