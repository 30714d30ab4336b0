//! Summaries that agents make at the edge: of one cluster, of a set, by people and by programs, and from agents that make none.

use std::time::Duration;

use proto::greeting::VERSIONS;
use proto::spiffe::TRUST_DOMAIN_DEFAULT;
use proto::wire::Hello;
use proto::{Capabilities, CloseCode};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tests::fake_api::{Behaviour, FakeApi};
use tests::kube::EdgeCluster;
use tests::pki::Issued;
use tests::rig::{Agent, ApiServer, GROUP, Reply, Rig};
use tests::rogue_server::spawner;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use transport::tls::{ExpectedServers, Material};
use transport::{DialTls, Dialed, Endpoint, EndpointKeys, HANDSHAKE_MAX, Tunnel};

/// The clusters: with pods, with a few of them, with an API server that forbids, and without a tunnel.
const FULL: &str = "a-full";
const SMALL: &str = "b-small";
const FORBIDDING: &str = "c-forbids";
const NAMES: [&str; 3] = [FULL, SMALL, FORBIDDING];

/// Pods of the cluster that has many, and of the small one.
const PODS: usize = 1_000;
const FEW: usize = 20;

/// Most bytes that the summary of all these pods may have in the tunnel.
const TUNNEL_BYTES_MAX: f64 = 4.0 * 1024.0;

/// The least bytes of their list, for the comparison.
const LIST_BYTES_MIN: usize = 3_000_000;

/// Most bytes by which an agent grows while it reduces 10,000 pods.
const GROWTH_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// The limit for making the pods.
const APPLY_MAX: Duration = Duration::from_secs(300);

/// Groups by the label `tier`, and adds the grace periods up. Encoded for a query.
const BY_TIER: &str = "%7B%22groupBy%22:[%22.metadata.labels.tier%22],%22values%22:[%7B%22sum%22:%22.spec.terminationGracePeriodSeconds%22%7D]%7D";

/// The rig with its clusters.
struct SummarizedFleet {
    rig: Rig,
    clusters: Vec<EdgeCluster>,
    agents: Vec<Agent>,
    alice: Issued,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_are_summarized_where_they_are() {
    let fleet = SummarizedFleet::start().await;
    a_summary_of_a_thousand_pods_is_a_few_bytes_in_the_tunnel(&fleet).await;
    a_set_is_merged_and_who_did_not_answer_is_named(&fleet).await;
    a_cluster_that_forbids_the_list_says_so(&fleet).await;
    the_command_prints_a_table_and_the_counts_of_clusters(&fleet).await;
    bad_questions_are_refused_before_anything_is_sent(&fleet).await;
}

async fn a_summary_of_a_thousand_pods_is_a_few_bytes_in_the_tunnel(fleet: &SummarizedFleet) {
    let list = fleet.ask(&format!("/clusters/{FULL}/api/v1/pods")).await;
    assert!(list.body.len() > LIST_BYTES_MIN, "the list has {} bytes", list.body.len());
    let received = format!(
        "tombolo_agent_server_stream_bytes_total{{server=\"{}\",direction=\"sent\"}}",
        fleet.rig.gateway()
    );
    let before = fleet.rig.metric(fleet.agents[0].probes, &received).await;
    let reply = fleet.ask(&format!("/clusters/{FULL}/api/v1/pods?tombolo-reduce={BY_TIER}")).await;
    let after = fleet.rig.metric(fleet.agents[0].probes, &received).await;
    println!("list: {} bytes, summary in the tunnel: {} bytes", list.body.len(), after - before);
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(after - before <= TUNNEL_BYTES_MAX, "{} bytes", after - before);
    let summary = &json_of(&reply)["summary"];
    assert_eq!(summary["items"], PODS, "{summary}");
    let half = json!({ "count": PODS / 2, "sum": (PODS / 2 * 30).to_string() });
    assert_eq!(
        summary["groups"],
        json!([
            { "key": ["even"], "count": PODS / 2, "figures": [half] },
            { "key": ["odd"], "count": PODS / 2, "figures": [half] },
        ])
    );
}

async fn a_set_is_merged_and_who_did_not_answer_is_named(fleet: &SummarizedFleet) {
    let reply = fleet
        .ask(&format!("/clustersets/global/api/v1/pods?timeoutSeconds=20&tombolo-reduce={BY_TIER}"))
        .await;
    assert!(
        reply.head.to_lowercase().contains("tombolo-clusters: asked=3, answered=2, failed=1"),
        "{reply:?}"
    );
    let body = json_of(&reply);
    assert_eq!(body["summary"]["items"], PODS + FEW, "{body}");
    let states: Vec<&str> = body["clusters"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|line| line["state"].as_str())
        .collect();
    assert_eq!(states, ["Fresh", "Fresh", "Failed"]);
    assert_eq!(body["clusters"][2]["reason"], "Forbidden");
    let merged: u64 = body["summary"]["groups"]
        .as_array()
        .expect("groups")
        .iter()
        .filter_map(|group| group["count"].as_u64())
        .sum();
    assert_eq!(merged as usize, PODS + FEW);
}

async fn a_cluster_that_forbids_the_list_says_so(fleet: &SummarizedFleet) {
    let reply = fleet.ask(&format!("/clusters/{FORBIDDING}/api/v1/pods?tombolo-reduce={BY_TIER}")).await;
    assert_eq!(reply.status, 403, "{reply:?}");
    let status = json_of(&reply);
    assert_eq!(status["reason"], "Forbidden");
    assert!(
        status["message"].as_str().is_some_and(|message| message.contains("cannot list resource \"pods\"")),
        "{status}"
    );
}

async fn the_command_prints_a_table_and_the_counts_of_clusters(fleet: &SummarizedFleet) {
    let kubeconfig = fleet.rig.kubeconfig("alice", &[GROUP], FULL).await;
    let path = kubeconfig.to_str().expect("a path");
    let words = ["summarize", "pods", "-A", "--kubeconfig", path, "--by", ".metadata.labels.tier"];
    let table = fleet
        .rig
        .tombolo(&[words.as_slice(), &["--sum", ".spec.terminationGracePeriodSeconds"]].concat())
        .await;
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    let head = vec![".metadata.labels.tier", "COUNT", "SUM(.spec.terminationGracePeriodSeconds)"];
    assert_eq!(rows, [head, vec!["even", "500", "15000"], vec!["odd", "500", "15000"]], "{table}");
    let set = [words.as_slice(), &["--cluster-set", "global", "-o", "json"]].concat();
    let document: Value = serde_json::from_str(&fleet.rig.tombolo(&set).await).expect("JSON");
    assert_eq!(document["summary"]["items"], PODS + FEW);
    let notes = fleet.rig.tombolo_writes(&[words.as_slice(), &["--cluster-set", "global"]].concat()).await;
    assert!(notes.contains("clusters: asked 3, answered 2, failed 1"), "{notes}");
    assert!(notes.contains("c-forbids: Forbidden: "), "{notes}");
}

async fn bad_questions_are_refused_before_anything_is_sent(fleet: &SummarizedFleet) {
    for path in [format!("/clusters/{FULL}"), "/clustersets/global".to_owned()] {
        let reply =
            fleet.ask(&format!("{path}/api/v1/pods?tombolo-reduce=%7B%22groupBy%22:[%22.a..b%22]%7D")).await;
        assert_eq!((reply.status, reply.cause().as_str()), (400, "NotAQuestion"), "{reply:?}");
        assert!(reply.body.contains("groupBy[0]: byte 2"), "{reply:?}");
        let watched = fleet.ask(&format!("{path}/api/v1/pods?watch=true&tombolo-reduce={BY_TIER}")).await;
        assert!(matches!(watched.status, 400 | 405), "{watched:?}");
    }
}

/// An agent of the version before has no capabilities, and would answer with the list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_makes_no_summaries_is_not_asked_for_one() {
    let (rig, edge) = (Rig::start().await, "edge-a");
    let alice = rig.caller("alice", &[GROUP]).await;
    let old = ScriptedAgent::dial(&rig, edge, Capabilities::default(), "").await;
    rig.connected(edge).await;
    let refused = ask(&rig, &alice, &format!("/clusters/{edge}/api/v1/pods?tombolo-reduce={BY_TIER}")).await;
    assert_eq!((refused.status, refused.cause().as_str()), (501, "AgentCannotReduce"), "{refused:?}");
    let of_set =
        ask(&rig, &alice, &format!("/clustersets/global/api/v1/pods?tombolo-reduce={BY_TIER}")).await;
    assert_eq!(of_set.status, 503, "{of_set:?}");
    assert!(of_set.body.contains("AgentCannotReduce"), "{of_set:?}");
    assert_eq!(old.streams(), 0, "nothing was sent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_answers_garbage_or_too_much_is_refused() {
    let (rig, edge) = (Rig::start().await, "edge-a");
    let alice = rig.caller("alice", &[GROUP]).await;
    let answer = |kind: &str, body: &str| {
        format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    let kind = "application/vnd.tombolo.summary+json";
    let large = format!("{{\"summary\":{{\"items\":1{}}}}}", " ".repeat(70_000));
    for (said, cause) in [
        (answer("application/json", "{\"kind\":\"PodList\",\"items\":[]}"), "NotASummary"),
        (answer(kind, "garbage"), "NotASummary"),
        (answer(kind, &large), "NotASummary"),
        (answer(kind, "{\"failed\":{\"reason\":\"NotAList\",\"message\":\"no list\"}}"), "NotReduced"),
    ] {
        let agent = ScriptedAgent::dial(&rig, edge, Capabilities::OWN, &said).await;
        rig.connected(edge).await;
        let refused =
            ask(&rig, &alice, &format!("/clusters/{edge}/api/v1/pods?tombolo-reduce={BY_TIER}")).await;
        assert_eq!((refused.status, refused.cause().as_str()), (502, cause), "{refused:?}");
        drop(agent);
        rig.disconnected(edge).await;
    }
}

/// A list that is garbage at the edge's own API server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_answers_garbage_has_no_summary() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    api.otherwise(Behaviour::json("{\"kind\":\"Pod\"}"));
    let _agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
    let alice = rig.caller("alice", &[GROUP]).await;
    let refused = ask(&rig, &alice, &format!("/clusters/edge-a/api/v1/pods?tombolo-reduce={BY_TIER}")).await;
    assert_eq!((refused.status, refused.cause().as_str()), (502, "NotReduced"), "{refused:?}");
    assert!(refused.body.contains("JSON that is no list of objects"), "{refused:?}");
}

/// The API server sends all 10,000 pods, 34 MB, as one page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_stays_small_while_it_reduces_ten_thousand_pods() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let list = |count: usize| {
        let pod = json!({ "metadata": { "labels": { "tier": "odd" }, "annotations": { "padding": "x".repeat(3_300) } } });
        json!({ "kind": "PodList", "metadata": {}, "items": vec![pod; count] }).to_string()
    };
    api.on("/api/v1/pods", Behaviour::json(list(10_000)));
    api.on("/api/v1/services", Behaviour::json(list(10)));
    let agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
    let alice = rig.caller("alice", &[GROUP]).await;
    let reduce = async |resource: &str| {
        let path = format!("/clusters/edge-a/api/v1/{resource}?tombolo-reduce={BY_TIER}");
        let reply = ask(&rig, &alice, &path).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        json_of(&reply)["summary"]["items"].as_u64().expect("a number")
    };
    // The first summary brings what every agent has once it has served one.
    assert_eq!(reduce("services").await, 10);
    let before = agent.process.peak_bytes();
    assert_eq!(reduce("pods").await, 10_000);
    let grown = agent.process.peak_bytes() - before;
    println!("an agent that reduces 10,000 pods grows by {} KiB", grown / 1024);
    assert!(grown <= GROWTH_BYTES_MAX, "{grown} bytes");
}

impl SummarizedFleet {
    async fn start() -> Self {
        let rig = Rig::start().await;
        let started = futures::future::join_all(NAMES.map(async |_| EdgeCluster::start().await)).await;
        let clusters: Vec<_> =
            started.into_iter().map(|started| started.expect("a cluster starts")).collect();
        let mut agents = Vec::new();
        for (name, cluster) in NAMES.into_iter().zip(&clusters) {
            let account = cluster.create_agent_account().await.expect("an account for the agent");
            if name != FORBIDDING {
                cluster.make_admins(GROUP).await;
                let pods = if name == FULL { PODS } else { FEW };
                make_pods(&rig, cluster, name, pods).await;
            }
            agents.push(rig.agent(name, &ApiServer::of(cluster, &account)).await);
        }
        let alice = rig.caller("alice", &[GROUP]).await;
        Self { rig, clusters, agents, alice }
    }

    async fn ask(&self, path: &str) -> Reply {
        assert_eq!(self.clusters.len(), NAMES.len());
        ask(&self.rig, &self.alice, path).await
    }
}

/// Makes pods of three kilobytes each, half of them of each tier.
async fn make_pods(rig: &Rig, cluster: &EdgeCluster, name: &str, count: usize) {
    let pod = |number: usize| {
        let tier = if number.is_multiple_of(2) { "even" } else { "odd" };
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("pod-{number:04}"), "namespace": "default", "labels": { "tier": tier },
                "annotations": { "padding": "x".repeat(2_500) },
            },
            "spec": { "automountServiceAccountToken": false, "containers": [{ "name": "main", "image": "web:1" }] },
        })
    };
    let pods: Vec<Value> = (0..count).map(pod).collect();
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": pods }).to_string();
    let file = rig.write(&format!("{name}-pods.json"), &list);
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default", "namespace": "default" } });
    let account = rig.write(&format!("{name}-account.json"), &account.to_string());
    let admin = cluster.admin().limit(APPLY_MAX);
    admin.run(&["create", "-f", account.to_str().expect("a path")]).await.expect("kubectl");
    admin.stdout(&["create", "-f", file.to_str().expect("a path")]).await;
}

/// An agent of this process, which answers every stream with the same bytes.
struct ScriptedAgent {
    tunnel: Tunnel,
    _endpoint: Endpoint,
    streams: std::sync::Arc<std::sync::atomic::AtomicUsize>,
}

impl ScriptedAgent {
    async fn dial(rig: &Rig, cluster: &str, capabilities: Capabilities, answer: &str) -> Self {
        let keys = EndpointKeys::generate().expect("the system has chance");
        let endpoint = Endpoint::dialing(rig.gateway(), &keys, spawner()).expect("a socket");
        let uri = format!("spiffe://{TRUST_DOMAIN_DEFAULT}/cluster/{cluster}/agent/handmade");
        let issued = rig.root_of("agent").issue_named("agent", &[], &uri);
        let material = Material {
            chain: vec![CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).expect("PEM")],
            key: PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes()).expect("PEM"),
            peer_roots: vec![CertificateDer::from_pem_slice(rig.server_ca().as_bytes()).expect("PEM")],
        };
        let expected = ExpectedServers { trust_domain: TRUST_DOMAIN_DEFAULT.to_owned(), ids: Vec::new() };
        let tls = DialTls::new(material, expected).expect("TLS");
        let hello = Hello {
            versions: VERSIONS.to_vec(),
            cluster: cluster.to_owned(),
            boot_nonce: uuid_bytes(),
            sequence: 1,
            capabilities: capabilities.words(),
            ..Hello::default()
        };
        let dialed = endpoint.dial(rig.gateway(), "127.0.0.1", &tls, hello, HANDSHAKE_MAX).await;
        let Dialed { tunnel, driver, .. } = dialed.unwrap_or_else(|error| panic!("{error}"));
        tokio::spawn(async move { drop(driver.run(|_| {}).await) });
        let streams = std::sync::Arc::default();
        tokio::spawn(answer_all(tunnel.clone(), answer.to_owned(), std::sync::Arc::clone(&streams)));
        Self { tunnel, _endpoint: endpoint, streams }
    }

    fn streams(&self) -> usize {
        self.streams.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl Drop for ScriptedAgent {
    fn drop(&mut self) {
        self.tunnel.close(CloseCode::Stopping);
    }
}

/// Answers every stream with the same bytes.
async fn answer_all(tunnel: Tunnel, answer: String, streams: std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    while let Ok(mut stream) = tunnel.accept().await {
        streams.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let answer = answer.clone();
        tokio::spawn(async move {
            stream.read_open().await.expect("a first frame");
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await;
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        });
    }
}

/// The nonce of a process: another one for each agent.
fn uuid_bytes() -> Vec<u8> {
    static NEXT: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(1);
    vec![NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed); 16]
}

async fn ask(rig: &Rig, who: &Issued, path: &str) -> Reply {
    tests::rig::ask(rig.gateway(), &rig.server_ca(), Some(who), "GET", path, &[])
        .await
        .expect("the gateway answers")
}

fn json_of(reply: &Reply) -> Value {
    serde_json::from_str(&reply.body).unwrap_or_else(|error| panic!("{error}: {reply:?}"))
}
