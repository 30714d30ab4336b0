//! Services that are dialed by name: the cluster's API server gives their addresses, and forbidden ones are
//! never dialed.

use rustix::process::geteuid;
use serde_json::{Value, json};
use tests::audit_log::{AuditLog, note};
use tests::echo::Echo;
use tests::enroll::at;
use tests::fake_api::{Answer, Behaviour, FakeApi};
use tests::rig::{ApiServer, Rig};
use tests::scratch::Scratch;
use tokio::net::UnixStream;

use crate::egress::{asked, connect, rule, subject};

const CLUSTER: &str = "edge-a";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_or_forbidden_service_is_refused_with_the_reason() {
    let fake = FakeApi::start().await.unwrap();
    let canary = Echo::start().await;
    // Each in a namespace of its own. A tenant has written the addresses in the first one's slice.
    for (namespace, services, slices) in [
        ("tenant", vec![service(443)], slice("127.0.0.1", canary.address.port())),
        ("metadata", vec![service(443)], slice("169.254.169.254", 80)),
        ("gone", vec![], slice("10.42.0.2", 443)),
        ("plain", vec![service(80)], slice("10.42.0.2", 443)),
        (
            "alias",
            vec![json!({ "spec": { "type": "ExternalName", "externalName": "localhost" } })],
            slice("10.42.0.2", 443),
        ),
        (
            "idle",
            vec![service(443)],
            json!({ "addressType": "IPv4", "endpoints": [], "ports": [{ "name": "https", "port": 443 }] }),
        ),
    ] {
        list(&fake, &format!("/api/v1/namespaces/{namespace}/services"), &services);
        list(&fake, &format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"), &[slices]);
    }
    let edge =
        ServiceEdge::start(&fake, &["tenant", "metadata", "gone", "plain", "alias", "idle", "forbidden"])
            .await;

    let no_service = "has no Service with the TCP port";
    for (namespace, port, expected) in [
        ("tenant", 443, ["403 ", "special address"]),
        ("metadata", 443, ["403 ", "special address"]),
        ("gone", 443, ["502 ", no_service]),
        ("plain", 443, ["502 ", no_service]),
        ("alias", 443, ["502 ", no_service]),
        ("idle", 443, ["502 ", "no endpoint that is ready"]),
        ("forbidden", 443, ["502 ", "tombolo rbac"]),
        // What the agent's file does not name, it does not look for.
        ("tenant", 8443, ["403 ", "does not advertise"]),
        ("other", 443, ["403 ", "does not advertise"]),
    ] {
        let target = format!("hook.{namespace}.svc:{port}");
        let mut stream = UnixStream::connect(&edge.socket).await.unwrap();
        let output = asked(&mut stream, &connect(&target, "")).await;
        assert!(output.starts_with(expected[0]) && output.contains(expected[1]), "{target}: {output}");
    }

    assert_eq!(canary.accepted(), 0, "somebody was connected to loopback");
    let asked_for =
        |request: &tests::fake_api::RecordedRequest| request.target.contains("/namespaces/other/");
    assert!(!fake.requests().iter().any(asked_for));
    let log = AuditLog::of(&edge.rig);
    let intents = log.intents();
    assert!(intents.iter().any(|intent| note(intent, "target") == "hook.tenant.svc:443"), "{intents:?}");
}

/// A server with an entry point for this user, and an agent whose file names a Service in each of these
/// namespaces.
struct ServiceEdge {
    rig: Rig,
    socket: std::path::PathBuf,
    _agent: tests::rig::Agent,
    _files: Scratch,
}

impl ServiceEdge {
    async fn start(fake: &FakeApi, namespaces: &[&str]) -> Self {
        let files = Scratch::new("tombolo-services-").unwrap();
        let socket = files.path().join("own/egress.sock");
        let owner = geteuid().as_raw();
        let rig = Rig::start_with(&format!(
            "egress: [{{ name: host-a, cluster: {CLUSTER}, uds: {{ path: {socket:?}, uids: [{owner}] }} }}]\n"
        ))
        .await;
        let targets: Vec<String> = namespaces.iter().map(|one| format!("hook.{one}.svc:443")).collect();
        let agent = rig
            .agent_with(CLUSTER, &ApiServer::of_fake(&rig, fake), &format!("targets: {targets:?}\n"))
            .await;
        rig.connected(CLUSTER).await;
        rig.put_policy(&[rule(&subject("entry-point:host-a"))]).await;
        let more = ["hook.tenant.svc:8443".to_owned(), "hook.other.svc:443".to_owned()];
        let advertised: Vec<&str> =
            targets.iter().chain(&more).flat_map(|target| ["--advertise", target]).collect();
        at(&rig, &[["cluster", "update", CLUSTER].as_slice(), &advertised].concat()).await;
        Self { rig, socket, _agent: agent, _files: files }
    }
}

fn list(fake: &FakeApi, path: &str, items: &[Value]) {
    // Without a version nobody watches it.
    fake.on(path, Behaviour::Answer(Answer::json(200, json!({ "items": items }).to_string())));
}

fn service(port: u16) -> Value {
    json!({ "spec": { "type": "ClusterIP", "ports": [{ "name": "https", "port": port }] } })
}

fn slice(address: &str, port: u16) -> Value {
    json!({ "addressType": "IPv4", "endpoints": [{ "addresses": [address] }], "ports": [{ "name": "https", "port": port }] })
}
