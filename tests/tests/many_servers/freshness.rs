//! A server without news from etcd: the requests that go on, and those that are refused.

use std::time::Duration;

use tests::etcd::{EtcdCluster, MEMBERS};
use tests::fake_api::FakeApi;
use tests::rig::{ApiServer, Rig};
use tokio::time::timeout;

use crate::{PATH, SERVED, SOCKET, until};

/// A limit that tests can wait for: the shortest that can be configured.
const SHORT_LIMIT: &str = "staleLimitSeconds: 10";

/// Longest wait for changes to be made again once etcd is back.
const CHANGED_MAX: Duration = Duration::from_secs(30);

#[tokio::test]
async fn without_etcd_requests_go_on_until_the_limit_and_changes_are_refused() {
    let (mut etcd, api) = (EtcdCluster::start().await, FakeApi::start().await.expect("a fake starts"));
    let rig = Rig::start_with(&etcd.section(SHORT_LIMIT)).await;
    let agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
    assert_eq!(rig.ask_with_token("GET", PATH, &[]).await.status, SERVED);

    (0..MEMBERS).for_each(|member| etcd.kill_member(member));
    rig.logged("server.log", 0, "changes and new clusters are refused").await;

    assert_eq!(rig.ask_with_token("GET", PATH, &[]).await.status, SERVED);
    let refused = rig.tombolo_fails(&create("edge-b")).await;
    assert!(refused.contains("no news from etcd"), "{refused}");
    rig.not_ready("[-]directory not ready: no news from etcd").await;
    let refused = rig.ask_with_token("GET", PATH, &[]).await;
    assert!(refused.status == 503 && refused.body.contains("ServerStale"), "{}", refused.body);
    assert!(refused.head.to_ascii_lowercase().contains("retry-after:"), "{}", refused.head);

    etcd.start_members().await;
    rig.ready(rig.probes()).await;
    rig.ready(agent.probes).await;
    assert_eq!(rig.ask_with_token("GET", PATH, &[]).await.status, SERVED);
    // As the error says: etcd may be slow once more while its members find each other on a busy machine.
    let created = async {
        loop {
            let said = rig.tombolo_writes(&create("edge-b")).await;
            if !said.contains("no news from etcd") {
                return said;
            }
        }
    };
    let said = timeout(CHANGED_MAX, created).await.expect("changes are made again");
    assert!(!said.contains("error:"), "{said}");
}

/// Its memory is behind, and no one can say whether the cluster was deleted.
#[tokio::test]
async fn without_etcd_an_agent_of_a_cluster_never_met_is_refused() {
    let (mut etcd, api) = (EtcdCluster::start().await, FakeApi::start().await.expect("a fake starts"));
    let rig = Rig::start_with(&etcd.section("")).await;
    (0..MEMBERS).for_each(|member| etcd.kill_member(member));
    rig.logged("server.log", 0, "changes and new clusters are refused").await;

    let agent = rig.agent_with("edge-a", &ApiServer::of_fake(&rig, &api), "").await;

    rig.logged("edge-a.log", 0, "no news from etcd").await;
    etcd.start_members().await;
    rig.ready(agent.probes).await;
}

#[tokio::test]
async fn a_server_that_starts_without_etcd_waits_for_it() {
    let (mut etcd, mut rig) = (EtcdCluster::prepare(), Rig::start().await);
    rig.kill_server();
    rig.write_config(|text| format!("{text}\n{}", etcd.section("")));

    rig.launch_server().await;
    rig.not_ready("[-]directory not ready: etcd does not answer").await;
    etcd.start_members().await;

    rig.ready(rig.probes()).await;
}

#[tokio::test]
async fn another_etcd_at_the_same_addresses_makes_a_server_not_ready() {
    let mut etcd = EtcdCluster::start().await;
    let rig = Rig::start_with(&etcd.section("")).await;

    etcd.replace_by_an_empty_one().await;

    rig.not_ready("[-]directory not ready: another etcd cluster answers").await;
}

#[tokio::test]
async fn a_record_that_cannot_be_read_makes_servers_not_ready() {
    let etcd = EtcdCluster::start().await;
    let mut rig = Rig::start_with(&etcd.section("")).await;

    etcd.put("/tombolo/tombolo/w/revocations/agents/edge-a", b"no record").await;

    rig.not_ready("[-]directory not ready: a record in etcd is not in our form").await;
    rig.kill_server();
    assert_eq!(rig.start_server_and_fail().await, Some(1));
    rig.logged("server.log", 0, "the records in etcd below /tombolo/tombolo/ are damaged").await;
}

#[tokio::test]
async fn no_caller_notices_that_members_are_killed_in_turn() {
    let (mut etcd, api) = (EtcdCluster::start().await, FakeApi::start().await.expect("a fake starts"));
    let rig = Rig::start_with(&etcd.section("")).await;
    let _agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;

    for (member, cluster) in ["edge-b", "edge-c", "edge-d"].into_iter().enumerate() {
        etcd.kill_member(member);
        until("the change is made", async || {
            assert_eq!(rig.ask_with_token("GET", PATH, &[]).await.status, SERVED);
            rig.tombolo_writes(&create(cluster)).await.contains("is created")
        })
        .await;
        etcd.start_member(member).await;
    }
}

#[tokio::test]
async fn the_doctor_of_a_server_names_members_that_do_not_answer() {
    let mut etcd = EtcdCluster::start().await;
    let rig = Rig::start_with(&etcd.section("")).await;
    let endpoints: Vec<String> = etcd.endpoints().iter().map(ToString::to_string).collect();
    let doctor = async || {
        let words = ["doctor", "server", "--config", "server.yaml"];
        rig.tombolo_writes(&words)
            .await
            .lines()
            .filter(|line| line.contains("etcd"))
            .collect::<Vec<_>>()
            .join("\n")
    };

    let all = doctor().await;
    assert!(endpoints.iter().all(|endpoint| all.contains(&format!("{endpoint} is etcd 3."))), "{all}");
    assert!(all.contains("a quorum of etcd's members answers"), "{all}");

    etcd.kill_member(0);
    let one_is_gone = doctor().await;
    assert!(one_is_gone.contains(&format!("{}: it cannot be reached", endpoints[0])), "{one_is_gone}");
    assert!(one_is_gone.contains("a quorum of etcd's members answers"), "{one_is_gone}");

    etcd.kill_member(1);
    let none = doctor().await;
    assert!(none.contains("no member of etcd answered"), "{none}");
    assert!(!none.contains("a quorum of etcd's members answers"), "{none}");
}

fn create(cluster: &str) -> Vec<&str> {
    [["cluster", "create", cluster].as_slice(), &SOCKET].concat()
}
