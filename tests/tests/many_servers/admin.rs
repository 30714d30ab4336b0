//! Administrators of several servers: any one of them answers for all.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;
use tests::etcd::EtcdCluster;
use tests::members::{join_first, join_with};
use tests::rig::Rig;

use crate::hop::HopTrial;
use crate::{SOCKET, until};

const OTHER_SOCKET: [&str; 2] = ["--socket", "other.admin/admin.sock"];
const THIRD_SOCKET: [&str; 2] = ["--socket", "third.admin/admin.sock"];

#[tokio::test]
async fn every_server_lists_all_and_one_that_was_killed_is_gone_and_removed() {
    let (etcd, mut rig) = (EtcdCluster::start().await, Rig::start().await);
    join_first(&mut rig, &etcd).await;
    let _other = join_with(&rig, &etcd, "other", "admin: { socket: other.admin/admin.sock }\n").await;
    let mut third = join_with(&rig, &etcd, "third", "admin: { socket: third.admin/admin.sock }\n").await;
    let all = [("first", "Ready", 2), ("other", "Ready", 2), ("third", "Ready", 2)];
    for socket in [SOCKET, OTHER_SOCKET, THIRD_SOCKET] {
        until("it lists three servers", async || states(&listed(&rig, socket).await) == all).await;
    }
    let servers = listed(&rig, OTHER_SOCKET).await;
    let distinct = |key: &str| {
        let values = servers.iter().map(|server| server["status"][key].to_string());
        values.collect::<BTreeSet<_>>().len()
    };
    assert_eq!((distinct("policyDigest"), distinct("epoch")), (1, 3), "{servers:?}");
    let doctor = rig.tombolo_writes(&["doctor", "server", "--config", "server.yaml"]).await;
    assert!(doctor.contains("3 servers are registered, and each has a session with every other"), "{doctor}");
    assert!(doctor.contains("all servers have the same policy"), "{doctor}");
    let alive = rig.tombolo_fails(&[&["server", "remove", "third"], SOCKET.as_slice()].concat()).await;
    assert!(
        alive.contains(
            "the server third has a session with this one, or is this one, so it runs: stop it first"
        ),
        "{alive}"
    );

    third.kill();

    let left = [("first", "Ready", 1), ("other", "Ready", 1), ("third", "Gone", 0)];
    for socket in [SOCKET, OTHER_SOCKET] {
        until("the third is gone", async || states(&listed(&rig, socket).await) == left).await;
    }
    rig.tombolo(&[&["server", "remove", "third"], SOCKET.as_slice()].concat()).await;
    let names = rig.tombolo(&[&["server", "list", "-o", "name"], SOCKET.as_slice()].concat()).await;
    assert_eq!(names, "first\nother\n");
    let unknown =
        rig.tombolo_fails(&[&["server", "remove", "third"], OTHER_SOCKET.as_slice()].concat()).await;
    assert!(unknown.contains("there is no server \"third\""), "{unknown}");
}

#[tokio::test]
async fn a_server_lists_tunnels_and_agents_of_another_one_with_its_id() {
    let trial = HopTrial::start().await;
    let list = async |words: &[&str]| trial.rig.tombolo(&[words, SOCKET.as_slice()].concat()).await;

    let clusters = list(&["cluster", "list"]).await;
    let wide = list(&["cluster", "list", "-o", "wide"]).await;
    let agents = list(&["agent", "list", "-o", "wide"]).await;

    let [header, row] = clusters.lines().collect::<Vec<_>>()[..] else { panic!("{clusters}") };
    assert!(header.ends_with("   SERVER") && row.ends_with("   other"), "{clusters}");
    assert_eq!(row.split_whitespace().take(3).collect::<Vec<_>>(), ["edge-a", "Live", "1"]);
    let version = env!("CARGO_PKG_VERSION");
    let row = wide.lines().nth(1).expect("a row");
    assert!(row.contains(version) && row.ends_with("   other"), "{wide}");
    let row = agents.lines().nth(1).expect("a row");
    assert!(row.contains("True") && row.contains(version), "{agents}");
    trial.rig.connected("edge-a").await;
}

#[tokio::test]
async fn servers_with_different_policies_are_measured() {
    let mut trial = HopTrial::start().await;
    let differing = "tombolo_server_peers_differing{file=\"policy\"}";
    let connected = "tombolo_server_peers{state=\"connected\"}";
    let (rig, own, probes) = (&trial.rig, trial.rig.probes(), trial.other.probes);
    until("they are connected", async || {
        rig.metric(own, connected).await == 1.0 && rig.metric(probes, connected).await == 1.0
    })
    .await;
    assert_eq!(rig.metric(own, differing).await, 0.0);
    let path = |file: &str| rig.path().join(file);
    let policy = fs::read_to_string(path("policy.yaml")).expect("a policy");
    fs::write(path("other-policy.yaml"), format!("{policy}# as before\n")).expect("it is written");
    let config = fs::read_to_string(path("other.yaml")).expect("a configuration");
    fs::write(path("other.yaml"), config.replace("policy.yaml", "other-policy.yaml")).expect("it is written");

    trial.other.kill();
    trial.other.start(&trial.rig).await;

    until("they differ", async || trial.rig.metric(own, differing).await == 1.0).await;
    until("both see it", async || trial.rig.metric(probes, differing).await == 1.0).await;
}

/// The servers that one of them lists.
async fn listed(rig: &Rig, socket: [&str; 2]) -> Vec<Value> {
    let text = rig.tombolo(&[&["server", "list", "-o", "json"], socket.as_slice()].concat()).await;
    let list: Value = serde_json::from_str(&text).expect("JSON");
    list["items"].as_array().expect("items").clone()
}

/// The ID, the state and the connected peers of each.
fn states(servers: &[Value]) -> Vec<(&str, &str, u64)> {
    let mut states = Vec::new();
    for server in servers {
        let id = server["metadata"]["name"].as_str().expect("an ID");
        let state = server["status"]["state"].as_str().expect("a state");
        states.push((id, state, server["status"]["peersConnected"].as_u64().unwrap_or_default()));
    }
    states
}
