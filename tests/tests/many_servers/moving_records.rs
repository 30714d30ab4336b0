//! Records that move from the file of one server into etcd, and back.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::SystemTime;

use daemon::{Scope, StateDir};
use etcd::Write;
use rcgen::KeyPair;
use tests::enroll::{self, AttestationClient, at, token};
use tests::etcd::EtcdCluster;
use tests::fake_api::FakeApi;
use tests::rig::{ApiServer, GROUP, Rig, ask};
use tunnel_server::directory::{AddressRange, Callers, ClusterSpecUpdate, Directory, Revoked};

use crate::directory::{TTL, agent, cluster, open};
use crate::{PATH, SERVED, until};

/// More clusters than a transaction of etcd can write, and than one answer of it has.
const CLUSTERS: usize = 700;

const DOMAIN: &str = "example.org";
const TAKEN: &str = "2026-11-27T09:04:17Z";

/// The records that a server writes about itself and about its agents while it runs.
const OF_THE_RUN: [&str; 2] = [r#"{"key":"w/numbers/"#, r#"{"key":"w/seen/"#];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_are_the_same_text_from_a_file_from_etcd_and_from_a_file_again() {
    let (etcd, rig) = (EtcdCluster::start().await, Rig::start().await);
    let of = |section: &str| format!("kind: ServerConfig\ntrustDomain: {DOMAIN}\n{section}\n");
    rig.write("shared.yaml", &of(&etcd.section("")));
    rig.write("alone.yaml", &of("stateDir: back"));
    let first = exported(&described(&rig.path().join("first")).await).await;
    rig.write("first.jsonl", &first);

    import(&rig, "first.jsonl", "shared.yaml").await;
    let shared = exported(&open(&etcd).await).await;
    rig.write("shared.jsonl", &shared);
    import(&rig, "shared.jsonl", "alone.yaml").await;
    let back = exported(&Directory::open(&StateDir::open(&rig.path().join("back")).unwrap()).unwrap()).await;

    assert!(first.lines().count() > 2 * CLUSTERS);
    assert!(shared == first, "{}", difference(&first, &shared));
    assert!(back == first, "{}", difference(&first, &back));
}

#[tokio::test]
async fn agents_and_tokens_go_on_after_the_move_from_a_file_to_etcd() {
    let (etcd, api) = (EtcdCluster::start().await, FakeApi::start().await.expect("a fake starts"));
    let (mut rig, listener) = enroll::start("").await;
    let _ = token(&rig, "edge-a").await;
    let agent = enroll::agent(&rig, &listener, "one", "edge-a", &ApiServer::of_fake(&rig, &api)).await;
    rig.ready(agent.probes).await;
    let ann = rig.caller("ann", &[GROUP]).await;
    at(&rig, &["user", "revoke", "--name", "ann"]).await;
    let (unused, _) = token(&rig, "edge-a").await;
    let agents = at(&rig, &["agent", "list"]).await;

    at(&rig, &["server", "export", "--out", "before.jsonl"]).await;
    rig.kill_server();
    rig.write_config(|text| format!("{text}\n{}", etcd.section("")));
    import(&rig, "before.jsonl", "server.yaml").await;
    rig.start_server().await;

    rig.ready(agent.probes).await;
    until("its cluster is served", async || rig.ask_with_token("GET", PATH, &[]).await.status == SERVED)
        .await;
    let refused =
        ask(rig.gateway(), &rig.server_ca(), Some(&ann), "GET", PATH, &[]).await.expect("an answer");
    assert!(refused.body.contains("CredentialRevoked"), "{}", refused.body);
    let listed = at(&rig, &["agent", "list"]).await;
    assert!(agents.lines().all(|line| listed.contains(line)), "{agents}{listed}");
    at(&rig, &["server", "export", "--out", "after.jsonl"]).await;
    let [before, after] =
        ["before.jsonl", "after.jsonl"].map(|name| of_administrators(&rig.path().join(name)));
    assert_eq!(after, before);
    let mut client = AttestationClient::connect(&rig, &listener).await;
    client.enroll(&unused, &KeyPair::generate().expect("a key")).await.expect("an unused token is good");
}

#[tokio::test]
async fn a_server_waits_while_an_import_goes_on_or_did_not_end() {
    let (etcd, mut rig) = (EtcdCluster::start().await, Rig::start().await);
    at(&rig, &["server", "export", "--out", "records.jsonl"]).await;
    rig.kill_server();
    rig.write_config(|text| format!("{text}\n{}", etcd.section("")));
    // As after a crash in its middle.
    etcd.put("/tombolo/tombolo/import", b"of somebody").await;
    etcd.put("/tombolo/tombolo/w/clusters/edge-a", b"{}").await;

    rig.launch_server().await;
    rig.not_ready("[-]directory not ready: an import into etcd below /tombolo/tombolo/ goes on").await;
    let words = ["server", "import", "records.jsonl", "--config", "server.yaml"];
    let refused = rig.tombolo_fails(&words).await;
    assert!(refused.contains("goes on, or did not end"), "{refused}");

    let removed = Write::RemoveAll(etcd::KeyRange::prefix("/tombolo/tombolo/"));
    etcd.client(&Scope::here()).commit(Vec::new(), vec![removed]).await.expect("it is removed");
    rig.ready(rig.probes()).await;
    let refused = rig.tombolo_fails(&words).await;
    assert!(refused.contains("an import is for an empty prefix"), "{refused}");
}

/// A directory in this folder with records of every kind that an administrator or an agent makes.
async fn described(state: &Path) -> Directory {
    let (directory, now) = (Directory::open(&StateDir::open(state).unwrap()).unwrap(), SystemTime::now());
    for number in 0..CLUSTERS {
        let _ = directory.mark_seen(&cluster(&format!("edge-{number}")), now);
    }
    directory.create_cluster(cluster("edge-a"), ClusterSpecUpdate::default(), now).await.unwrap();
    let (used, _) = directory.create_token(cluster("edge-a"), TTL, now).await.unwrap();
    directory.enroll(used, ("pin".to_owned(), "one".to_owned()), agent("one"), None, now).await.unwrap();
    let _ = directory.create_token(cluster("edge-a"), TTL, now).await.unwrap();
    directory.revoke(Revoked::Serial("abc".to_owned()), now).await.unwrap();
    directory.revoke_callers(Callers::Named("ann \u{e9}/\"".to_owned()), None, now).await.unwrap();
    let range =
        AddressRange { network: "100.100.0.0/29".parse().unwrap(), clusters: [cluster("edge-a")].into() };
    let given = directory.assign_addresses(vec![range], now).await.unwrap();
    assert!(matches!(given[&cluster("edge-a")].address, IpAddr::V4(_)));
    directory
}

async fn exported(directory: &Directory) -> String {
    let mut export = directory.export(DOMAIN.to_owned(), TAKEN.to_owned(), ()).await.expect("it begins");
    let mut text = Vec::new();
    while let Some(piece) = export.next().await {
        text.extend(piece.expect("a piece"));
    }
    String::from_utf8(text).expect("a text")
}

async fn import(rig: &Rig, file: &str, config: &str) {
    rig.tombolo(&["server", "import", file, "--config", config, "--keep-tokens"]).await;
}

/// The lines of the records that only administrators and enrollments change.
fn of_administrators(export: &Path) -> Vec<String> {
    let text = fs::read_to_string(export).expect("an export");
    let records = text.lines().filter(|line| line.starts_with(r#"{"key":"#));
    let kept = records.filter(|line| !OF_THE_RUN.iter().any(|begin| line.starts_with(begin)));
    kept.map(str::to_owned).collect()
}

/// The first line that differs.
fn difference(one: &str, other: &str) -> String {
    let found = one.lines().zip(other.lines()).find(|(one, other)| one != other);
    format!("{found:?}; {} and {} lines", one.lines().count(), other.lines().count())
}
