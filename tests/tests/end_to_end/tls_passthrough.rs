//! TLS that passes through unchanged, to the API server of its server name, and to no other.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection, RootCertStore};
use rustls_pki_types::ServerName;
use serde_json::Value;
use tests::audit_log::{AuditLog, note};
use tests::caller::{SOON, status_of_connect};
use tests::dial::connect_from;
use tests::echo::Echo;
use tests::enroll::at;
use tests::fake_api::FakeApi;
use tests::rig::policy::{may_dial, user_may_dial};
use tests::rig::{Agent, ApiServer, GROUP, Rig, free_port};
use tests::targets;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const CLUSTER: &str = "edge-a";
const OTHER: &str = "edge-b";
const ENTRY_POINT: &str = "entry-point:sni";

/// The source addresses from which a connection is allowed. It is refused from `ELSEWHERE`.
const SOURCES: [&str; 2] = ["127.0.0.1", "127.0.0.3"];
const ELSEWHERE: &str = "127.0.0.2";

/// One of so many targets that are none is tried at a server that does not start; odd to the number of ports
/// of the table.
const FAULTY_STEP: usize = 9;

/// Alerts of TLS (RFC 8446, section 6.2).
const ACCESS_DENIED: u8 = 49;
const INTERNAL_ERROR: u8 = 80;
const UNRECOGNIZED_NAME: u8 = 112;

/// A server name that selects no cluster gets a TLS alert.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_passes_to_the_last_byte_to_the_cluster_of_its_server_name() {
    let (listed, canary) = (Echo::start().await, Echo::start().await);
    let unadvertised = Echo::start().await;
    let (here, unlisted) = (listed.address.to_string(), unadvertised.address.to_string());
    let servers = [
        ("api.edge-a.test", CLUSTER, here.as_str()),
        // The store lets the cluster have it, and its agent does not.
        ("unadvertised.edge-a.test", CLUSTER, &unlisted),
        // The other way round.
        ("other.edge-a.test", CLUSTER, &canary.address.to_string()),
        // No agent of it was ever there.
        ("api.edge-b.test", OTHER, &here),
        // No rule permits this target to the entry point.
        ("api.edge-c.test", "edge-c", &here),
    ];
    let edge = TlsEdge::start(&servers, (100, 100), &[&here, &canary.address.to_string()]).await;
    edge.advertise(CLUSTER, &[&here, &unlisted]).await;
    edge.advertise(OTHER, &[&here]).await;

    for (sent, output) in [
        (hello("unknown.edge-a.test"), alert(UNRECOGNIZED_NAME)),
        (hello("edge-a.test"), alert(UNRECOGNIZED_NAME)),
        // Without a server name: programs ask by an address without one.
        (hello("192.168.1.10"), alert(UNRECOGNIZED_NAME)),
        (hello("unadvertised.edge-a.test"), alert(ACCESS_DENIED)),
        (hello("other.edge-a.test"), alert(ACCESS_DENIED)),
        (hello("api.edge-c.test"), alert(ACCESS_DENIED)),
        (hello("api.edge-b.test"), alert(INTERNAL_ERROR)),
        (b"GET / HTTP/1.1\r\nHost: api.edge-a.test\r\n\r\n".to_vec(), vec![]),
        (format!("CONNECT {here} HTTP/1.1\r\n\r\n").into_bytes(), vec![]),
        (vec![0; 2_000], vec![]),
        // Half of one, and then silence.
        (hello("api.edge-a.test")[..100].to_vec(), vec![]),
    ] {
        assert_eq!(edge.answered(&sent).await, output, "{}", String::from_utf8_lossy(&sent));
    }
    assert_eq!((listed.accepted(), canary.accepted(), unadvertised.accepted()), (0, 0, 0));
    assert!(edge.refusals("ServerNameUnknown").await > 2.5 && edge.refusals("NotTls").await > 3.5);

    let mut stream = edge.dial("127.0.0.1").await.unwrap();
    let sent = hello("API.edge-A.test");
    // By pieces, and with more behind.
    let (first, rest) = sent.split_at(7);
    for piece in [first, rest, b"behind"] {
        stream.write_all(piece).await.unwrap();
        stream.flush().await.unwrap();
    }
    // Who ends before the target is there has gone: no TLS can come of it.
    let sent = [sent.as_slice(), b"behind"].concat();
    let bytes = sent.len();
    let mut echoed = vec![0; sent.len()];
    timeout(SOON, stream.read_exact(&mut echoed)).await.unwrap().expect("all of it");
    stream.shutdown().await.unwrap();
    let mut more = Vec::new();
    timeout(SOON, stream.read_to_end(&mut more)).await.unwrap().expect("a clean end");

    assert_eq!((echoed, more), (sent, Vec::new()));
    assert_eq!((listed.accepted(), canary.accepted()), (1, 0));
    let (intent, completion) = edge.recorded().await;
    for (key, value) in [
        ("mode", "dial"),
        ("listener", "passthrough"),
        ("authenticated", "false"),
        ("credential-serial", "source:127.0.0.1/32"),
        ("cluster", CLUSTER),
        ("target", &here),
    ] {
        assert_eq!(note(&intent, key), value, "{intent}");
    }
    assert_eq!(intent["user"]["username"], ENTRY_POINT);
    assert_eq!(intent["sourceIPs"][0], "127.0.0.1");
    assert_eq!(note(&completion, "bytes-up"), bytes.to_string());
    assert_eq!(note(&completion, "end-reason"), "clean");
}

/// Nothing of what it sends is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_outside_of_the_named_networks_is_reset_and_counted() {
    let listed = Echo::start().await;
    let here = listed.address.to_string();
    let edge = TlsEdge::start(&[("api.edge-a.test", CLUSTER, &here)], (100, 100), &[&here]).await;
    edge.advertise(CLUSTER, &[&here]).await;

    let received = async {
        let mut stream = edge.dial(ELSEWHERE).await?;
        stream.write_all(&hello("api.edge-a.test")).await?;
        stream.read_u8().await
    };
    let received = timeout(SOON, received).await.expect("it ends at once");

    assert_eq!(received.map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionReset));
    assert!(edge.refusals("SourceRefused").await > 0.5);
    edge.rig.measured("tombolo_server_audit_unauthenticated_total", |count| count > 0.5).await;
    assert_eq!(listed.accepted(), 0);
    for source in SOURCES {
        edge.connected(source, "api.edge-a.test").await;
    }
}

/// A running connection is reset when policy names it no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_passes_only_while_policy_names_the_entry_point() {
    let listed = Echo::start().await;
    let here = listed.address.to_string();
    let edge = TlsEdge::start(&[("api.edge-a.test", CLUSTER, &here)], (100, 100), &[&here]).await;
    edge.advertise(CLUSTER, &[&here]).await;
    let mut stream = edge.connected("127.0.0.1", "api.edge-a.test").await;

    // All authenticated callers, which an entry point does not belong to.
    edge.rig.put_policy(&[may_dial("admins", ("token", &format!("token:{GROUP}")), &["*"])]).await;

    let end = timeout(SOON, stream.read_to_end(&mut Vec::new())).await.expect("it is cut");
    // An end in good order would say that this is all.
    assert_eq!(end.map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionReset));
    assert_eq!(edge.answered(&hello("api.edge-a.test")).await, alert(ACCESS_DENIED));
    edge.rig.put_policy(&rules()).await;
    edge.connected("127.0.0.1", "api.edge-a.test").await;
    at(&edge.rig, &["user", "revoke", "--name", ENTRY_POINT]).await;
    assert_eq!(edge.answered(&hello("api.edge-a.test")).await, alert(ACCESS_DENIED));
}

/// The next connection is reset.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passed_connections_are_limited_by_address_and_in_all() {
    let listed = Echo::start().await;
    let here = listed.address.to_string();
    let edge = TlsEdge::start(&[("api.edge-a.test", CLUSTER, &here)], (3, 2), &[&here]).await;
    edge.advertise(CLUSTER, &[&here]).await;
    let [one, other] = SOURCES;
    let mut held =
        vec![edge.connected(one, "api.edge-a.test").await, edge.connected(one, "api.edge-a.test").await];

    edge.is_reset(one).await;
    held.push(edge.connected(other, "api.edge-a.test").await);
    edge.is_reset(other).await;

    for (limit, most) in [("passthrough_connections", 3.0), ("passthrough_source", 2.0)] {
        let used = format!("tombolo_server_limit_used{{limit=\"{limit}\"}}");
        assert!((edge.rig.metric(edge.rig.probes(), &used).await - most).abs() < 0.5, "{limit}");
        let limited = format!("tombolo_server_limited_total{{limit=\"{limit}\"}}");
        assert!((edge.rig.metric(edge.rig.probes(), &limited).await - 1.0).abs() < 0.5, "{limit}");
    }
    held.clear();
    edge.rig
        .measured("tombolo_server_limit_used{limit=\"passthrough_connections\"}", |used| used < 0.5)
        .await;
    edge.connected(one, "api.edge-a.test").await;
}

/// The address comes in CONNECT's target, or a server name selects it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_and_server_names_judge_an_address_alike() {
    let listed = Echo::start().await;
    let here = listed.address.to_string();
    let mut edge = TlsEdge::start(&[("api.edge-a.test", CLUSTER, &here)], (100, 100), &[&here]).await;
    edge.advertise(CLUSTER, &[&here]).await;
    let mut by_connect = Vec::new();
    for target in targets::around(listed.address) {
        // No HTTP request could contain these.
        let is_tolerated = !target.contains(' ') && !target.starts_with(':');
        let status = if is_tolerated { status_of_connect(&edge.rig, CLUSTER, &target).await } else { 400 };
        by_connect.push((target, status));
    }
    let (faulty, judged): (Vec<_>, Vec<_>) = by_connect.into_iter().partition(|(_, status)| *status == 400);
    assert!(faulty.len() > 5 && judged.len() > 5, "{faulty:?} {judged:?}");

    // What is no target to the one is none to the other, before anybody could ask for it.
    edge.rig.kill_server();
    let as_it_was = std::fs::read_to_string(edge.rig.path().join("server.yaml")).unwrap();
    let with = |servers: &[(&str, &str, &str)]| {
        let (before, _) = as_it_was.split_once("passthrough:").unwrap();
        format!("{before}{}", passthrough(edge.passthrough, (100, 100), servers))
    };
    // Some of them, with every port and many a host.
    for (target, _) in faulty.iter().step_by(FAULTY_STEP) {
        edge.rig.write_config(|_| with(&[("n.test", CLUSTER, target)]));
        assert_eq!(edge.rig.start_server_and_fail().await, Some(2), "{target}");
    }
    let names: Vec<String> = (0..judged.len()).map(|number| format!("n{number}.test")).collect();
    let servers: Vec<(&str, &str, &str)> = names
        .iter()
        .zip(&judged)
        .map(|(name, (target, _))| (name.as_str(), CLUSTER, target.as_str()))
        .collect();
    edge.rig.write_config(|_| with(&servers));
    edge.rig.start_server().await;
    edge.rig.connected(CLUSTER).await;
    for ((target, status), name) in judged.iter().zip(&names) {
        match status {
            200 => drop(edge.connected("127.0.0.1", name).await),
            403 => assert_eq!(edge.answered(&hello(name)).await, alert(ACCESS_DENIED), "{target}"),
            other => panic!("{target}: {other}"),
        }
    }
    assert!(judged.iter().any(|(_, status)| *status == 200));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hello_waits_while_its_cluster_is_away_and_passes_when_it_is_back() {
    let listed = Echo::start().await;
    let here = listed.address.to_string();
    let mut edge = TlsEdge::start(&[("api.edge-a.test", CLUSTER, &here)], (100, 100), &[&here]).await;
    edge.advertise(CLUSTER, &[&here]).await;
    let ended = Rig::ends_with(&mut edge.agent.process, rustix::process::Signal::TERM).await;
    assert_eq!(ended, Some(0));
    edge.rig.disconnected(CLUSTER).await;

    let mut waiting = edge.dial("127.0.0.1").await.unwrap();
    waiting.write_all(&hello("api.edge-a.test")).await.unwrap();
    edge.rig.measured("tombolo_server_requests_parked", |parked| parked > 0.5).await;
    let mut gone = edge.dial("127.0.0.1").await.unwrap();
    gone.write_all(&hello("api.edge-a.test")).await.unwrap();
    edge.rig.measured("tombolo_server_requests_parked", |parked| parked > 1.5).await;
    // Nobody is connected for who has hung up.
    drop(gone);
    edge.rig.measured("tombolo_server_requests_parked", |parked| parked < 1.5).await;
    let _agent = edge.agent_again(&[&here]).await;

    let mut back = vec![0; hello("api.edge-a.test").len()];
    timeout(SOON, waiting.read_exact(&mut back)).await.expect("it passes").unwrap();
    assert_eq!(listed.accepted(), 1);
}

/// Otherwise the server does not start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_passes_tls_from_anywhere_must_be_told_so_explicitly() {
    let mut rig = Rig::start().await;
    rig.kill_server();
    let listen = free_port();
    let config = |sources: &str| {
        format!(
            "passthrough: {{ name: sni, listen: \"{listen}\", {sources}servers: [{{ name: api.edge-a.test, cluster: edge-a, \
             target: \"10.0.0.1:6443\" }}] }}\n"
        )
    };
    let before = std::fs::read_to_string(rig.path().join("server.yaml")).unwrap();
    for sources in ["", "sources: [], ", "sources: [\"0.0.0.0/0\"], "] {
        rig.write_config(|_| format!("{before}{}", config(sources)));
        assert_eq!(rig.start_server_and_fail().await, Some(2), "{sources}");
        let output = rig.server_log();
        assert!(output.contains("passthrough.sources") && output.contains("[any]"), "{output}");
    }
    rig.write_config(|_| format!("{before}{}", config("sources: [any], ")));
    rig.start_server().await;
}

/// A server by which TLS passes through, and an agent of [`CLUSTER`] that dials some targets.
struct TlsEdge {
    rig: Rig,
    passthrough: SocketAddr,
    agent: Agent,
    fake: FakeApi,
}

impl TlsEdge {
    /// So many connections in all and of a source; the agent advertises `targets`.
    async fn start(servers: &[(&str, &str, &str)], limits: (usize, usize), targets: &[&str]) -> Self {
        let passthrough = free_port();
        let rig = Rig::start_with(&self::passthrough(passthrough, limits, servers)).await;
        let fake = FakeApi::start().await.unwrap();
        let agent = agent(&rig, &fake, targets).await;
        rig.put_policy(&rules()).await;
        at(&rig, &["cluster", "create", OTHER]).await;
        Self { rig, passthrough, agent, fake }
    }

    /// Starts the agent once more, with these targets.
    async fn agent_again(&self, targets: &[&str]) -> Agent {
        agent(&self.rig, &self.fake, targets).await
    }

    async fn advertise(&self, cluster: &str, targets: &[&str]) {
        let words = targets.iter().flat_map(|target| ["--advertise", target]);
        at(&self.rig, &["cluster", "update", cluster].into_iter().chain(words).collect::<Vec<_>>()).await;
    }

    /// A connection from this address.
    async fn dial(&self, source: &str) -> io::Result<TcpStream> {
        let stream = connect_from(source.parse().expect("an address"), self.passthrough).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// All that is answered, until the other side closes.
    async fn answered(&self, sent: &[u8]) -> Vec<u8> {
        let mut stream = self.dial("127.0.0.1").await.unwrap();
        stream.write_all(sent).await.unwrap();
        let mut answer = Vec::new();
        // Bytes that nobody has read make a reset of the end.
        let _ = timeout(SOON, stream.read_to_end(&mut answer)).await.expect("it is closed");
        answer
    }

    /// A connection whose ClientHello was echoed.
    async fn connected(&self, source: &str, name: &str) -> TcpStream {
        let (mut stream, sent) = (self.dial(source).await.unwrap(), hello(name));
        stream.write_all(&sent).await.unwrap();
        let mut back = vec![0; sent.len()];
        timeout(SOON, stream.read_exact(&mut back)).await.expect("it is answered").unwrap();
        assert_eq!(back, sent);
        stream
    }

    /// A connection from there is not served.
    async fn is_reset(&self, source: &str) {
        let received = async { self.dial(source).await?.read_u8().await };
        let received = timeout(SOON, received).await.expect("it ends at once");
        assert_eq!(received.map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionReset));
    }

    /// Number of connections that were refused for this reason.
    async fn refusals(&self, reason: &str) -> f64 {
        let series = format!("tombolo_server_refusals_total{{reason=\"{reason}\"}}");
        self.rig.metric(self.rig.probes(), &series).await
    }

    /// The audit lines of the one connection that was made.
    async fn recorded(&self) -> (Value, Value) {
        AuditLog::found(&self.rig, |log| {
            let clean = |line: &&&Value| {
                line["user"]["username"] == ENTRY_POINT && note(line, "end-reason") == "clean"
            };
            let completion = log.completions().iter().find(clean).map(|line| (**line).clone())?;
            let about = log.about(completion["auditID"].as_str()?);
            Some((about.intents()[0].clone(), completion))
        })
        .await
    }
}

/// The listener's section of the server's configuration: its limits of connections in all and by source, and
/// the target of each name.
fn passthrough(
    listen: SocketAddr,
    (all, of_source): (usize, usize),
    servers: &[(&str, &str, &str)],
) -> String {
    let server = |(name, cluster, target): &(&str, &str, &str)| {
        format!("{{ name: {name}, cluster: {cluster}, target: {target:?} }}")
    };
    let servers: Vec<String> = servers.iter().map(server).collect();
    let sources = SOURCES.map(|source| format!("{source}/32"));
    format!(
        "passthrough: {{ name: sni, listen: \"{listen}\", sources: {sources:?}, connections: {all}, \
         connectionsPerSource: {of_source}, servers: [{}] }}\n",
        servers.join(", ")
    )
}

async fn agent(rig: &Rig, fake: &FakeApi, targets: &[&str]) -> Agent {
    let agent =
        rig.agent_with(CLUSTER, &ApiServer::of_fake(rig, fake), &format!("targets: {targets:?}\n")).await;
    rig.connected(CLUSTER).await;
    agent
}

/// The entry point may dial in two clusters, and so may the holder of the rig's token.
fn rules() -> Vec<String> {
    vec![
        user_may_dial("sni", (ENTRY_POINT, ENTRY_POINT), &[CLUSTER, OTHER]),
        may_dial("admins", ("token", &format!("token:{GROUP}")), &["*"]),
    ]
}

/// A ClientHello that asks for this name; an address is asked for without one.
fn hello(name: &str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut bytes = Vec::new();
    ClientConnection::new(Arc::new(config), name).unwrap().write_tls(&mut bytes).unwrap();
    bytes
}

/// A fatal alert in the form before any negotiation.
fn alert(number: u8) -> Vec<u8> {
    vec![21, 3, 3, 0, 2, 2, number]
}
