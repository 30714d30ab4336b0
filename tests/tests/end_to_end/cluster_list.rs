//! The list of clusters, read and watched by an unmodified kubectl while a cluster goes dark and comes back.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tests::kube::EdgeCluster;
use tests::kube::kubectl::Kubectl;
use tests::lb_cluster::until;
use tests::rig::policy::allow_all;
use tests::rig::{ApiServer, GROUP, Rig};

/// The limit for any step of a test.
const DONE_MAX: Duration = Duration::from_secs(60);

/// The form in which kubectl asks for tables.
const TABLE: (&str, &str) = ("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json");

#[tokio::test]
async fn kubectl_sees_a_cluster_go_dark_and_come_back() {
    let cluster = EdgeCluster::start().await.expect("a cluster starts");
    let account = cluster.create_agent_account().await.expect("an account for the agent");
    let (rig, api) = (Rig::start().await, ApiServer::of(&cluster, &account));
    let mut agent = rig.agent("edge-a", &api).await;
    at(&rig, &["cluster", "label", "edge-a", "stage=live"]).await;
    at(&rig, &["cluster", "create", "edge-b", "--label", "stage=test"]).await;
    let alice = cluster.kubectl_with(rig.kubeconfig("alice", &[GROUP], "edge-a").await).limit(DONE_MAX);
    let version = cluster.admin().stdout(&["get", "--raw", "/version"]).await;
    let version: Value = serde_json::from_str(&version).expect("JSON");

    // The list is of the gateway, and not of the cluster that the kubeconfig names.
    let server = format!("--server=https://{}", rig.gateway());
    labels_version_and_last_sign_of_life_are_listed(&alice, &server, &version["gitVersion"]).await;
    a_table_has_the_same(&rig, &version["gitVersion"]).await;

    let (all, live) = (rig.path().join("all.events"), rig.path().join("live.events"));
    let mut watch =
        alice.start(&[&server, "get", "--raw", "/clusters?watch=true"], &all).await.expect("kubectl");
    let selected = "/clusters?watch=true&labelSelector=stage%3Dlive";
    let _watch = alice.start(&[&server, "get", "--raw", selected], &live).await.expect("kubectl");
    seen(&all, "ADDED", "edge-a", json!(true)).await;
    seen(&all, "ADDED", "edge-b", json!(false)).await;
    seen(&live, "ADDED", "edge-a", json!(true)).await;

    Rig::ends_with(&mut agent.process, Signal::TERM).await;
    let dark = seen(&all, "MODIFIED", "edge-a", json!(false)).await;
    assert_eq!(dark["status"]["version"], version["gitVersion"], "it is remembered: {dark}");
    assert!(dark["status"]["lastSeen"].is_string(), "{dark}");
    seen(&live, "MODIFIED", "edge-a", json!(false)).await;

    let _agent = rig.agent("edge-a", &api).await;
    seen(&all, "MODIFIED", "edge-a", json!(true)).await;
    let back = seen(&live, "MODIFIED", "edge-a", json!(true)).await;
    assert_eq!(back["metadata"], json!({ "name": "edge-a", "labels": { "stage": "live" } }));

    at(&rig, &["cluster", "label", "edge-a", "stage=test"]).await;
    seen(&live, "DELETED", "edge-a", json!(true)).await;
    let only_b = allow_all("only-b", ("client-certificate", GROUP), &["edge-b"]);
    rig.put_policy(&[only_b]).await;
    seen(&all, "DELETED", "edge-a", json!(true)).await;
    assert!(!text_of(&live).contains("edge-b"), "it was never selected");

    at(&rig, &["user", "revoke", "--name", "alice"]).await;
    watch.wait(DONE_MAX).await.expect("the watch ends with its credential");
    let last = events(&all).pop().expect("an event");
    assert_eq!(last["type"], "ERROR", "{last}");
    assert_eq!(last["object"]["details"]["causes"][0]["reason"], "CredentialRevoked", "{last}");
}

async fn labels_version_and_last_sign_of_life_are_listed(alice: &Kubectl, server: &str, version: &Value) {
    let list = async |path: &str| -> Value {
        serde_json::from_str(&alice.stdout(&[server, "get", "--raw", path]).await).expect("JSON")
    };
    let item = until("the agent has told the version", DONE_MAX, async || {
        let item = list("/clusters").await["items"][0].take();
        item["status"]["version"].is_string().then_some(item)
    })
    .await;
    assert_eq!(item["metadata"], json!({ "name": "edge-a", "labels": { "stage": "live" } }));
    assert_eq!((&item["status"]["version"], &item["status"]["connected"]), (version, &json!(true)));
    assert!(item["status"]["lastSeen"].as_str().is_some_and(|seen| seen.ends_with('Z')), "{item}");
    for (selector, names) in [
        ("stage%3Dlive", vec!["edge-a"]),
        ("stage%21%3Dlive", vec!["edge-b"]),
        ("stage", vec!["edge-a", "edge-b"]),
        ("stage%3Dold", vec![]),
    ] {
        let selected = list(&format!("/clusters?labelSelector={selector}")).await;
        let items = selected["items"].as_array().expect("items");
        let found: Vec<&str> = items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect();
        assert_eq!(found, names, "{selector}");
    }
    let refused = alice.refusal(&[server, "get", "--raw", "/clusters?labelSelector=a%20b"]).await;
    assert!(refused.contains("labelSelector"), "{refused}");
}

async fn a_table_has_the_same(rig: &Rig, version: &Value) {
    let alice = rig.caller("alice", &[GROUP]).await;
    let (gateway, ca) = (rig.gateway(), rig.server_ca());
    let reply =
        tests::rig::ask(gateway, &ca, Some(&alice), "GET", "/clusters", &[TABLE]).await.expect("an answer");
    let table: Value = serde_json::from_str(&reply.body).expect("JSON");
    assert_eq!(table["kind"], "Table", "{reply:?}");
    let cells = &table["rows"][0]["cells"];
    assert_eq!(
        (&cells[0], &cells[1], &cells[2], &cells[3]),
        (&json!("edge-a"), &json!(true), &json!(1), version)
    );
    assert_eq!(cells[5], "stage=live");
}

/// Waits for an event of this type about a cluster, and returns its object.
async fn seen(events_of: &Path, kind: &str, cluster: &str, connected: Value) -> Value {
    until(&format!("{kind} of {cluster}, connected {connected}"), DONE_MAX, async || {
        events(events_of)
            .into_iter()
            .map(|mut event| (event["type"].take(), event["object"].take()))
            .find_map(|(found, object)| {
                let is_it = found == kind
                    && object["metadata"]["name"] == cluster
                    && object["status"]["connected"] == connected;
                is_it.then_some(object)
            })
    })
    .await
}

/// The complete events that a watch has written so far.
fn events(file: &Path) -> Vec<Value> {
    text_of(file).lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn text_of(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

async fn at(rig: &Rig, words: &[&str]) {
    let socket = rig.admin_socket().display().to_string();
    rig.tombolo(&[words, &["--socket", &socket]].concat()).await;
}
