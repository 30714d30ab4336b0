//! An API server that serves a cluster below a path, as Rancher, kcp and other gateways do.

use std::fs;

use tests::fake_api::{Answer, Behaviour, FakeApi};
use tests::rig::{AGENT_TOKEN, ApiServer, Rig};

/// The path of the cluster at its API server.
const BASE: &str = "/k8s/clusters/c-1";

/// The agent's own requests, which find the API servers' addresses, have the path, too.
#[tokio::test]
async fn an_api_server_below_a_base_path_is_served_as_one_at_its_root() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let path = rig.path().join("base.kubeconfig");
    api.write_kubeconfig(&path, AGENT_TOKEN).expect("a kubeconfig can be written");
    let text = fs::read_to_string(&path).expect("it was written");
    // A second document does not count.
    let text = text.replace(&api.url(), &format!("{}{BASE}/", api.url())) + "\n---\nkind: Other\n";
    fs::write(&path, text).expect("it can be changed");
    let location = |location: String| {
        let headers = vec![("Location".to_owned(), location)];
        Behaviour::Answer(Answer { status: 201, headers, body: "{}".into() })
    };
    api.otherwise(Behaviour::Answer(Answer::json(200, "{}")));
    api.on(&format!("{BASE}/api/v1/a"), location(format!("{BASE}/api/v1/a/1?x=y")));
    api.on(&format!("{BASE}/api/v1/b"), location(format!("{}{BASE}/api/v1/b/1", api.url())));
    let _agent = rig.agent("edge-a", &ApiServer::Kubeconfig(path)).await;

    for (asked, expected) in [
        ("/clusters/edge-a/version", None),
        ("/clusters/edge-a/api/v1/a", Some("location: /clusters/edge-a/api/v1/a/1?x=y")),
        ("/clusters/edge-a/api/v1/b", Some("location: /clusters/edge-a/api/v1/b/1")),
    ] {
        let reply = rig.ask_with_token("GET", asked, &[]).await;
        assert!([200, 201].contains(&reply.status), "{asked}: {reply:?}");
        let head = reply.head.to_lowercase();
        assert!(
            expected.is_none_or(|line| head.lines().any(|found| found.trim() == line)),
            "{asked}: {head}"
        );
    }

    let paths: Vec<String> = api.requests().iter().map(|request| request.target.clone()).collect();
    assert!(paths.iter().all(|path| path.starts_with(BASE)), "{paths:?}");
    assert!(paths.contains(&format!("{BASE}/version")), "{paths:?}");
}
