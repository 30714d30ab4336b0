//! The limits of one server for everything together, as its configuration has them.

use tests::fake_api::{Behaviour, FakeApi};
use tests::rig::{ApiServer, Rig};

const LIMITS: &str = "limits:\n  server: { requests: 8, clusters: 1, tunnels: 1 }\n";

/// An agent with one carrier has one tunnel.
const ONE_TUNNEL: &str = "carrier: http2\n";

#[tokio::test]
async fn every_limit_of_a_server_is_the_configured_one() {
    let (rig, api) = (Rig::start_with(LIMITS).await, FakeApi::start().await.expect("a fake starts"));
    api.otherwise(Behaviour::json("{}"));
    let api_server = ApiServer::of_fake(&rig, &api);
    let _first = rig.agent_with("edge-a", &api_server, ONE_TUNNEL).await;
    rig.connected("edge-a").await;

    let _second = rig.agent_with("edge-b", &api_server, ONE_TUNNEL).await;
    rig.logged("edge-b.log", 0, "the server is full: it has 1 tunnels").await;
    let created = rig.tombolo_fails(&["cluster", "create", "edge-c", "--socket", "admin/admin.sock"]).await;
    assert!(created.contains("1 clusters are known, which is the most"), "{created}");

    assert_eq!(rig.ask_with_token("GET", "/clusters/edge-a/version", &[]).await.status, 200);
    for (series, value) in [
        ("tombolo_server_requests_max", 8.0),
        ("tombolo_server_clusters_max", 1.0),
        ("tombolo_server_tunnels_max", 1.0),
        ("tombolo_server_limit{limit=\"caller_exchanges\"}", 2.0),
    ] {
        assert_eq!(rig.metric(rig.probes(), series).await, value, "{series}");
    }
}
