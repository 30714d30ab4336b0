//! Denials of policy, seen from outside; and a policy that changes while the server runs.

use tests::fake_api::{Behaviour, HttpVersion};
use tests::fake_edge::FakeEdge;
use tests::rig::policy::{allow_all, rule};
use tests::rig::{GROUP, Reply, Rig, TOKEN, ask};

/// The holder of the rig's token.
const HOLDERS: (&str, &str) = ("token", "token:tombolo:admins");

const READ: &str = "{ verbs: [get, list, watch], apiGroups: [\"*\"], resources: [\"*\"], namespaces: [\"*\"], \
                    nonResourceURLs: [\"*\"] }";

const FAILURES: &str = "tombolo_server_policy_reload_failures_total";
const IS_CURRENT: &str = "tombolo_server_policy_reload_last_successful";

/// The API server sees nothing of the refused requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_caller_reaches_no_workload() {
    assert_eq!(HOLDERS.1, format!("token:{GROUP}"));
    let edge = FakeEdge::start(HttpVersion::Http1).await;
    edge.fake.otherwise(Behaviour::json("{}"));
    edge.rig.put_policy(&[rule("readers", "Allow", HOLDERS, &["*"], READ)]).await;
    let web_socket: &[(&str, &str)] = &[
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Protocol", "v5.channel.k8s.io"),
    ];
    let spdy: &[(&str, &str)] = &[
        ("Connection", "Upgrade"),
        ("Upgrade", "SPDY/3.1"),
        ("X-Stream-Protocol-Version", "v4.channel.k8s.io"),
    ];
    for path in [
        "/api/v1/namespaces/a/pods/x/exec?command=id",
        "/api/v1/namespaces/a/pods/x/attach?stdin=1",
        "/api/v1/namespaces/a/pods/x/portforward?ports=80",
        "/api/v1/namespaces/a/pods/x:80/proxy/y",
        "/api/v1/namespaces/a/services/x/proxy/",
        "/api/v1/nodes/n/proxy/exec/a/b/c?command=id",
        "/api/v1/proxy/nodes/n/exec/a/b/c",
        "/api/v1/namespaces/a/pods/x/%65xec?command=id",
    ] {
        for (method, upgrade) in
            [("GET", web_socket), ("POST", spdy), ("GET", &[]), ("POST", &[]), ("HEAD", &[])]
        {
            let reply = ask_with(&edge.rig, method, path, upgrade).await;
            assert_eq!(reply.status, 403, "{method} {path}: {reply:?}");
            assert!(method == "HEAD" || reply.body.contains("ForbiddenByPolicy"), "{reply:?}");
        }
    }
    let patch = ask_with(&edge.rig, "PATCH", "/api/v1/namespaces/a/pods/x/ephemeralcontainers", &[]).await;
    assert_eq!(patch.status, 403);
    assert_eq!(edge.fake.requests().len(), 0);

    let read = ask_with(&edge.rig, "GET", "/api/v1/namespaces/a/pods/x", &[]).await;
    assert_eq!((read.status, edge.fake.requests().len()), (200, 1));
    // A watch by WebSocket is a watch: policy lets it pass, and the API server decides.
    ask_with(&edge.rig, "GET", "/api/v1/namespaces/a/pods?watch=1", web_socket).await;
    assert_eq!(edge.fake.requests().len(), 2);
}

/// A broken policy never applies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_policy_applies_to_the_next_request() {
    let edge = FakeEdge::start(HttpVersion::Http2).await;
    let rig = &edge.rig;
    edge.fake.otherwise(Behaviour::json("{}"));
    assert_eq!(get(rig).await, (200, true));

    let deny = rule("not-now", "Deny", HOLDERS, &["edge-*"], &everything());
    rig.put_policy(&[allow_all("holders", HOLDERS, &["*"]), deny]).await;
    assert_eq!(get(rig).await, (403, false));

    let path = rig.path().join("policy.yaml");
    let good = std::fs::read_to_string(&path).unwrap();
    let widened = good.replace("- { name: not-now", "- { nam: not-now");
    let mut failures = rig.metric(rig.probes(), FAILURES).await;
    for broken in ["", "rules: [", "kind: Policy", &good.replace("kind: Policy", "kind: Polcy"), &widened] {
        std::fs::write(&path, broken).unwrap();
        rig.measured(FAILURES, |now| now > failures).await;
        failures = rig.metric(rig.probes(), FAILURES).await;
        assert_eq!(rig.metric(rig.probes(), IS_CURRENT).await, 0.0);
        assert_eq!(get(rig).await, (403, false), "{broken}");
    }
    std::fs::remove_file(&path).unwrap();
    rig.measured(FAILURES, |now| now > failures).await;
    assert_eq!(get(rig).await, (403, false));
    assert!(rig.server_log().contains("the last good one stays in force"));

    rig.put_policy(&[allow_all("holders", HOLDERS, &["*"])]).await;
    assert_eq!(get(rig).await, (200, true));
    assert_eq!(rig.metric(rig.probes(), IS_CURRENT).await, 1.0);
}

/// The status that the token's holder gets from its cluster, and whether the list of clusters names it.
async fn get(rig: &Rig) -> (u16, bool) {
    let reply = ask_with(rig, "GET", "/version", &[]).await;
    let list = rig.ask_with_token("GET", "/clusters", &[]).await;
    assert_eq!(list.status, 200);
    (reply.status, list.body.contains("\"edge-a\""))
}

async fn ask_with(rig: &Rig, method: &str, path: &str, headers: &[(&str, &str)]) -> Reply {
    let authorization = format!("Bearer {TOKEN}");
    let headers = [headers, &[("Authorization", authorization.as_str())]].concat();
    let path = format!("/clusters/edge-a{path}");
    ask(rig.gateway(), &rig.server_ca(), None, method, &path, &headers).await.expect("the gateway answers")
}

fn everything() -> String {
    READ.replace("[get, list, watch]", "[\"*\"]")
}
