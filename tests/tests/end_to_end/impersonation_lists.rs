//! The server's own list of the identities that it may assert at a cluster.

use serde_json::Value;
use tests::fake_api::{Behaviour, FakeApi};
use tests::rig::{ApiServer, GROUP, Rig, ask};

/// The clusters in the server's configuration. The agents let every identity pass.
const CLUSTERS: &str =
    "clusters: [{ name: edge-a, impersonation: { users: [\"ann\"], groups: [\"tombolo:admins\"] } }]";
const ANYBODY: &str =
    "impersonation: { users: [\"*\"], groups: [\"*\"] }\nadvertise: [\"192.168.1.10:6443\"]";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_asserts_nobody_outside_of_the_clusters_allow_list() {
    let rig = Rig::start_with(CLUSTERS).await;
    let fake = FakeApi::start().await.unwrap();
    fake.otherwise(Behaviour::json("{}"));
    let api_server = ApiServer::of_fake(&rig, &fake);
    let _agents = [
        rig.agent_with("edge-a", &api_server, ANYBODY).await,
        rig.agent_with("edge-b", &api_server, ANYBODY).await,
    ];
    rig.connected("edge-a").await;
    rig.connected("edge-b").await;

    for (cluster, user, status) in [
        ("edge-a", "ann", 200),
        ("edge-a", "bob", 403),
        ("edge-a", "tombolo:ann", 403),
        // Of which nothing is said.
        ("edge-b", "ann", 403),
        ("edge-b", "tombolo:ann", 200),
    ] {
        let before = fake.requests().len();
        let caller = rig.caller(user, &[GROUP]).await;
        let path = format!("/clusters/{cluster}/api/v1/pods");
        let reply = ask(rig.gateway(), &rig.server_ca(), Some(&caller), "GET", &path, &[]).await.unwrap();

        assert_eq!(reply.status, status, "{user} at {cluster}: {}", reply.body);
        let arrived = fake.requests().split_off(before);
        if status == 200 {
            assert_eq!(arrived.len(), 1);
            assert_eq!(arrived[0].header("impersonate-user"), [user]);
        } else {
            assert!(arrived.is_empty(), "{user} at {cluster}: {arrived:?}");
            let status: Value = serde_json::from_str(&reply.body).unwrap();
            assert_eq!(status["details"]["causes"][0]["reason"], "NotAsserted");
            assert!(status["message"].as_str().unwrap().contains("clusters[].impersonation"), "{status}");
        }
    }
}
