//! Clusters and agents that an administrator creates, describes, deletes and revokes with the shipped
//! programs.

use std::time::{Duration, SystemTime};

use serde_json::Value;
use tests::binaries::binary;
use tests::fake_api::FakeApi;
use tests::process::{Invocation, run};
use tests::rig::policy::allow_all;
use tests::rig::{ApiServer, GROUP, Rig};

/// The limit for any step of a test.
const DONE_MAX: Duration = Duration::from_secs(60);

const SOCKET: [&str; 2] = ["--socket", "admin/admin.sock"];

#[tokio::test]
async fn a_clusters_spec_is_listed_and_outlives_the_servers_death() {
    let mut rig = Rig::start().await;
    let made = ["cluster", "create", "edge-a", "--label", "region=north", "--label", "tier=gold"];
    at(&rig, &[&made, ["--network", "plant-7", "--advertise", "192.168.1.10:6443"].as_slice()].concat())
        .await;
    at(&rig, &["cluster", "label", "edge-a", "region=south", "tier-"]).await;
    rig.kill_server();
    rig.start_server().await;

    let listed: Value =
        serde_json::from_str(&at(&rig, &["cluster", "list", "-o", "json"]).await).expect("JSON");

    let cluster = &listed["items"][0];
    assert_eq!(cluster["metadata"]["labels"], serde_json::json!({ "region": "south" }), "{listed}");
    assert_eq!(cluster["spec"]["networks"][0], "plant-7", "{listed}");
    assert_eq!(cluster["spec"]["advertise"][0], "192.168.1.10:6443", "{listed}");
    assert_eq!(cluster["status"]["lastSeen"], Value::Null, "{listed}");
    for (words, says) in [
        (["cluster", "create", "edge-a"].as_slice(), "`tombolo token create --cluster edge-a -o helm`"),
        (&["cluster", "create", "console"], "reserved for the server itself"),
        (&["cluster", "delete", "edge-b", "--yes"], "there is no cluster edge-b"),
        (&["cluster", "delete", "edge-a"], "there is no terminal on which to ask. Give --yes"),
        (&["cluster", "undelete", "edge-a"], "is not deleted, so there is nothing to undelete"),
        (&["cluster", "undelete", "edge-b"], "no deleted cluster edge-b is known"),
        (&["agent", "restore", "edge-a/one"], "nothing was restored: agent edge-a/one is not revoked"),
    ] {
        let refused = at_fails(&rig, words).await;
        assert!(refused.contains(says), "{refused}");
    }
}

#[tokio::test]
async fn changed_labels_of_a_cluster_apply_to_the_next_request() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let _agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
    let holders = format!("token:{GROUP}");
    let everywhere = allow_all("by-label", ("token", &holders), &["*"]);
    let by_label = everywhere.replace("names: [\"*\"]", "labelSelector: { matchLabels: { stage: test } }");
    assert_ne!(by_label, everywhere);
    rig.put_policy(&[by_label]).await;
    assert_eq!(rig.ask_with_token("GET", "/clusters/edge-a/version", &[]).await.status, 403);
    assert!(!rig.ask_with_token("GET", "/clusters", &[]).await.body.contains("edge-a"));

    at(&rig, &["cluster", "label", "edge-a", "stage=test"]).await;

    assert!(is_served(&rig, "edge-a").await);
    assert!(rig.ask_with_token("GET", "/clusters", &[]).await.body.contains("edge-a"));
    at(&rig, &["cluster", "label", "edge-a", "stage-"]).await;
    assert_eq!(rig.ask_with_token("GET", "/clusters/edge-a/version", &[]).await.status, 403);
}

#[tokio::test]
async fn a_deleted_clusters_agent_is_disconnected_and_its_name_stays_reserved() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let _agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
    let _other = rig.agent("edge-b", &ApiServer::of_fake(&rig, &api)).await;

    at(&rig, &["cluster", "delete", "edge-a", "--yes"]).await;

    rig.logged("edge-a.log", 0, "the agent's certificate was revoked or its cluster deleted").await;
    rig.logged("edge-a.log", 0, "cluster edge-a was deleted").await;
    assert_eq!(at(&rig, &["clusters", "-o", "name"]).await, "edge-b\n");
    let refused = at_fails(&rig, &["cluster", "create", "edge-a"]).await;
    assert!(refused.contains("reserved for 90 more days"), "{refused}");
    let gone = rig.ask_with_token("GET", "/clusters/edge-a/version", &[]).await;
    assert!(gone.status == 503 && gone.body.contains("ClusterDeleted"), "{}", gone.body);
    assert!(gone.body.contains("`tombolo cluster undelete edge-a`"), "{}", gone.body);
    let never = rig.ask_with_token("GET", "/clusters/edge-z/version", &[]).await;
    assert!(never.body.contains("ClusterNeverSeen"), "{}", never.body);
    rig.put_policy(&[allow_all("other", ("token", &format!("token:{GROUP}")), &["edge-b"])]).await;
    let hidden = rig.ask_with_token("GET", "/clusters/edge-a/version", &[]).await;
    assert!(hidden.status == 403 && !hidden.body.contains("deleted"), "{}", hidden.body);
    assert!(is_served(&rig, "edge-b").await);
}

/// The name and the labels come back at once, and the certificate of before the deletion never.
#[tokio::test]
async fn an_undeleted_cluster_is_back_with_its_labels_and_without_its_agents() {
    let (mut rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let api_server = ApiServer::of_fake(&rig, &api);
    let agent = rig.agent("edge-a", &api_server).await;
    at(&rig, &["cluster", "label", "edge-a", "stage=live"]).await;
    at(&rig, &["cluster", "delete", "edge-a", "--yes"]).await;
    let deleted = SystemTime::now();
    assert_eq!(at(&rig, &["cluster", "list", "-o", "name"]).await, "");
    rig.kill_server();
    rig.start_server().await;

    let back = at(&rig, &["cluster", "undelete", "edge-a"]).await;

    assert!(back.contains("labels: stage=live") && back.contains("without the agents"), "{back}");
    assert_eq!(at(&rig, &["cluster", "list", "-l", "stage=live", "-o", "name"]).await, "edge-a\n");
    drop(agent);
    let again = rig.agent_with("edge-a", &api_server, "").await;
    rig.logged("edge-a.log", 0, "this agent's certificate was revoked; ask an operator").await;
    let restored = at_fails(&rig, &["agent", "restore", "edge-a/edge-a"]).await;
    assert!(restored.contains("cannot be taken back: enroll it again"), "{restored}");
    drop(again);
    // Revocations and certificates count whole seconds, so a new certificate is of a later second.
    let later = deleted + Duration::from_secs(1);
    tokio::time::sleep(later.duration_since(SystemTime::now()).unwrap_or_default()).await;
    rig.tombolo(&["ca", "issue", "agent", "--dir", "pki", "--cluster", "edge-a", "--force"]).await;
    let _new = rig.agent("edge-a", &api_server).await;
    assert!(is_served(&rig, "edge-a").await);
}

#[tokio::test]
async fn a_restored_agent_connects_again_with_its_old_certificate() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let api_server = ApiServer::of_fake(&rig, &api);
    let agent = rig.agent_of_id("edge-a", "one", &api_server, "").await;
    rig.connected("edge-a").await;
    at(&rig, &["agent", "revoke", "edge-a/one"]).await;
    rig.disconnected("edge-a").await;
    drop(agent);

    let restored = at(&rig, &["agent", "restore", "edge-a/one"]).await;

    assert_eq!(restored, "the revocation of agent edge-a/one is withdrawn\n");
    let _again = rig.agent_of_id("edge-a", "one", &api_server, "").await;
    rig.connected("edge-a").await;
    let twice = at_fails(&rig, &["agent", "restore", "edge-a/one"]).await;
    assert!(twice.contains("agent edge-a/one is not revoked"), "{twice}");
}

#[tokio::test]
async fn clusters_are_listed_by_label_in_the_order_of_a_column() {
    let rig = Rig::start().await;
    for (name, stage) in [("edge-c", "live"), ("edge-a", "live"), ("edge-b", "test")] {
        at(&rig, &["cluster", "create", name, "--label", &format!("stage={stage}")]).await;
    }

    let live = at(&rig, &["cluster", "list", "-l", "stage in (live)", "--show-labels"]).await;

    let rows: Vec<&str> = live.lines().collect();
    assert!(rows[0].ends_with("LABELS") && rows.len() == 3, "{live}");
    assert!(rows[1].starts_with("edge-a ") && rows[1].ends_with("stage=live"), "{live}");
    let by_name = at(&rig, &["cluster", "list", "--sort-by", "last-seen", "-o", "name"]).await;
    assert_eq!(by_name, "edge-a\nedge-b\nedge-c\n", "none was seen, so the names decide");
    let json: Value = serde_json::from_str(&at(&rig, &["clusters", "-o", "json"]).await).expect("JSON");
    let created = json["items"][0]["metadata"]["creationTimestamp"].as_str().expect("a time");
    assert!(created.starts_with("20") && created.ends_with('Z'), "{created}");
    assert!(!json.to_string().contains("UnixSeconds"), "{json}");
}

#[tokio::test]
async fn a_revoked_agent_is_disconnected_for_good_and_another_serves_on() {
    let (mut rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let api_server = ApiServer::of_fake(&rig, &api);
    let _one = rig.agent_of_id("edge-a", "one", &api_server, "").await;
    let _two = rig.agent_of_id("edge-a", "two", &api_server, "").await;
    let both = |item: &str| item.contains("\"agent\":\"one\"") && item.contains("\"agent\":\"two\"");
    rig.listed("edge-a", both).await;

    at(&rig, &["agent", "revoke", "edge-a/one"]).await;

    let only_two = |item: &str| !item.contains("\"agent\":\"one\"") && item.contains("\"agent\":\"two\"");
    rig.listed("edge-a", only_two).await;
    rig.logged("edge-a.one.log", 0, "this agent's certificate was revoked; ask an operator").await;
    assert!(is_served(&rig, "edge-a").await);

    rig.kill_server();
    rig.start_server().await;
    let from = rig.agent_log("edge-a.one").len();
    rig.logged("edge-a.one.log", from, "this agent's certificate was revoked").await;
    rig.listed("edge-a", only_two).await;
}

#[tokio::test]
async fn a_mistyped_agent_or_cluster_is_not_reported_as_revoked() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let _agent = rig.agent_of_id("edge-a", "one", &ApiServer::of_fake(&rig, &api), "").await;
    rig.connected("edge-a").await;

    for whom in [["edge-a/oen"].as_slice(), &["nosuch/one"], &["--cluster", "nosuch", "--yes"]] {
        let words = [["agent", "revoke"].as_slice(), whom].concat();
        let refused = at_fails(&rig, &words).await;
        assert!(refused.contains("nothing was revoked") && refused.contains("--unseen"), "{refused}");

        let revoked = at(&rig, &[words.as_slice(), &["--unseen"]].concat()).await;
        assert!(revoked.contains("refused"), "{revoked}");
    }
    assert!(is_served(&rig, "edge-a").await);
}

/// No enrollment has recorded them. An unknown cluster is an error, and a cluster without agents is not.
#[tokio::test]
async fn connected_agents_with_certificates_by_hand_are_listed() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let _one = rig.agent_of_id("edge-a", "one", &ApiServer::of_fake(&rig, &api), "").await;
    rig.connected("edge-a").await;
    at(&rig, &["cluster", "create", "edge-b"]).await;

    let listed = at(&rig, &["agent", "list"]).await;

    let row = listed.lines().find(|line| line.starts_with("edge-a/one ")).expect("a row of the agent");
    assert!(row.contains(" ByHand "), "{listed}");
    let json: Value =
        serde_json::from_str(&at(&rig, &["agent", "list", "edge-a", "-o", "json"]).await).expect("JSON");
    let status = &json["items"][0]["status"];
    assert_eq!((&status["state"], &status["connected"]), (&"ByHand".into(), &true.into()), "{json}");
    let serial = status["serial"].as_str().expect("a serial number");
    assert!(at(&rig, &["agent", "list", "edge-a", "-o", "wide"]).await.contains(serial));
    assert_eq!(at(&rig, &["agent", "list", "edge-b"]).await, "");
    let unknown = at_fails(&rig, &["agent", "list", "edge-z"]).await;
    assert!(unknown.contains("there is no cluster edge-z"), "{unknown}");
    // The number names the certificate.
    at(&rig, &["agent", "revoke", "--serial", serial]).await;
    rig.disconnected("edge-a").await;
    assert_eq!(at(&rig, &["agent", "list"]).await, "");
}

#[tokio::test]
async fn all_agents_of_a_revoked_cluster_are_disconnected() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let api_server = ApiServer::of_fake(&rig, &api);
    let _one = rig.agent_of_id("edge-a", "one", &api_server, "").await;
    let _other = rig.agent("edge-b", &api_server).await;
    rig.connected("edge-a").await;

    let unasked = at_fails(&rig, &["agent", "revoke", "--cluster", "edge-a"]).await;
    assert!(unasked.contains("there is no terminal on which to ask. Give --yes"), "{unasked}");
    assert!(is_served(&rig, "edge-a").await);
    at(&rig, &["agent", "revoke", "--cluster", "edge-a", "--yes"]).await;

    rig.disconnected("edge-a").await;
    rig.logged("edge-a.one.log", 0, "this agent's certificate was revoked; ask an operator").await;
    rig.connected("edge-b").await;
    let words = [["agent", "revoke"].as_slice(), &SOCKET].concat();
    let without_cluster = Invocation::of(binary("tombolo")).arguments(words).in_directory(rig.path());
    assert_eq!(
        run(&without_cluster, DONE_MAX).await.expect("tombolo runs").status.code(),
        Some(2),
        "of whom?"
    );
}

/// Returns true if a request comes as far as the cluster's API server, which knows no path.
async fn is_served(rig: &Rig, cluster: &str) -> bool {
    rig.ask_with_token("GET", &format!("/clusters/{cluster}/version"), &[]).await.status == 404
}

async fn at(rig: &Rig, words: &[&str]) -> String {
    rig.tombolo(&[words, &SOCKET].concat()).await
}

async fn at_fails(rig: &Rig, words: &[&str]) -> String {
    rig.tombolo_fails(&[words, &SOCKET].concat()).await
}
