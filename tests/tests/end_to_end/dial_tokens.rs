//! The listeners for dial tokens: owners of dial tokens are connected to targets of their clusters, and
//! nobody else reaches any.

mod proxied;
mod socks;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;
use rustls_pki_types::ServerName;
use serde_json::Value;
use tests::audit_log::{AuditLog, note};
use tests::caller::SOON;
use tests::clock::Shift;
use tests::dial::{self, dial_name};
use tests::echo::Echo;
use tests::enroll::at;
use tests::fake_api::FakeApi;
use tests::rig::policy::{allow_all, user_may_dial};
use tests::rig::{Agent, ApiServer, GROUP, Rig, ask, free_port};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const CLUSTER: &str = "edge-a";
const OTHER: &str = "edge-b";
const USER: &str = "corp:ci";
/// The DNS name in the proxy's certificate.
const NAME: &str = "localhost";
/// The CA that issued it.
const CA: &str = "pki/proxy-ca.crt";

/// A refused request reaches no agent and no target.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dial_token_reaches_only_its_clusters_targets() {
    let (listed, canary) = (Echo::start().await, Echo::start().await);
    let edge = DialTokenEdge::start(&[listed.address]).await;
    // The store lets the other cluster have it, and the token is not for that one.
    edge.advertise(OTHER, &[canary.address]).await;
    let (token, id) = edge.token("one", &[CLUSTER]).await;
    let others = edge.token_of("alice", "alices", &[CLUSTER]).await.0;
    let (secretless, wrong) = (token.split_once('.').unwrap().0, format!("{}0", &token[..token.len() - 1]));
    let wrong = if wrong == token { format!("{}1", &token[..token.len() - 1]) } else { wrong };
    let right = basic(USER, &token);

    let (at_listed, at_canary) = (listed.address.to_string(), canary.address.to_string());
    for (request, header, status) in [
        (format!("CONNECT {at_listed}"), String::new(), 407),
        (format!("CONNECT {at_listed}"), basic(USER, &wrong), 407),
        (format!("CONNECT {at_listed}"), basic(USER, secretless), 407),
        (format!("CONNECT {at_listed}"), basic("ci", &token), 407),
        (format!("CONNECT {at_listed}"), basic("", &token), 407),
        (format!("CONNECT {at_listed}"), basic(USER, &others), 407),
        (format!("CONNECT {at_listed}"), basic(USER, tests::rig::TOKEN), 407),
        (format!("CONNECT {at_listed}"), format!("Proxy-Authorization: Bearer {token}\r\n"), 407),
        (format!("CONNECT {at_listed}"), right.replace("Proxy-", ""), 407),
        (format!("CONNECT {at_listed}"), format!("{right}{right}"), 407),
        (format!("GET http://{at_listed}/"), String::new(), 407),
        (format!("GET http://{at_listed}/"), right.clone(), 405),
        ("GET /clusters".to_owned(), right.clone(), 405),
        (format!("CONNECT user@{at_listed}"), right.clone(), 400),
        ("CONNECT 127.1:80".to_owned(), right.clone(), 400),
        (format!("CONNECT {at_canary}"), right.clone(), 403),
        (format!("CONNECT {at_canary}"), format!("{right}Tombolo-Cluster: {OTHER}\r\n"), 403),
        ("CONNECT 169.254.169.254:80".to_owned(), right.clone(), 403),
        // Whose token it is may not dial.
        (format!("CONNECT {at_listed}"), basic("alice", &others), 403),
    ] {
        let answer =
            edge.response_to(&format!("{request} HTTP/1.1\r\nHost: {at_listed}\r\n{header}\r\n")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request} {header}: {answer}");
        let asks = answer.to_ascii_lowercase().contains("proxy-authenticate: basic");
        assert_eq!(asks, status == 407, "{answer}");
        assert!(!answer.contains(OTHER), "a cluster that is not the token's: {answer}");
    }
    // No other listener accepts it.
    let bearer = format!("Bearer {token}");
    for (method, path) in [("GET", "/clusters"), ("GET", "/clusters/edge-a/version"), ("CONNECT", &at_listed)]
    {
        let headers = [("Authorization", bearer.as_str()), ("Tombolo-Cluster", CLUSTER)];
        let headers = if method == "GET" { &headers[..1] } else { &headers };
        let reply =
            ask(edge.rig.gateway(), &edge.rig.server_ca(), None, method, path, headers).await.unwrap();
        assert_eq!(reply.status, 401, "{method} {path}: {reply:?}");
    }
    assert_eq!((listed.accepted(), canary.accepted()), (0, 0));
    let refused = edge.response_to(&format!("CONNECT {at_canary} HTTP/1.1\r\nHost: a\r\n{right}\r\n")).await;
    assert!(refused.lines().next().unwrap().contains("may advertise"), "the status line says why: {refused}");

    let mut connected = edge.connected(&token, listed.address).await;

    echoes(&mut connected, b"hello").await;
    assert_eq!((listed.accepted(), canary.accepted()), (1, 0));
    // Each direction ends on its own.
    connected.shutdown().await.unwrap();
    let mut rest = Vec::new();
    timeout(SOON, connected.read_to_end(&mut rest)).await.unwrap().expect("a clean end");
    assert!(rest.is_empty());
    let (intent, completion) = edge.recorded(&id).await;
    for (key, value) in
        [("mode", "dial"), ("listener", "proxy"), ("cluster", CLUSTER), ("target", at_listed.as_str())]
    {
        assert_eq!(note(&intent, key), value, "{intent}");
    }
    assert_eq!(intent["user"]["username"], USER);
    assert_eq!((note(&completion, "bytes-up"), note(&completion, "end-reason")), ("5", "clean"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_proxy_speaks_http1_alone_and_asks_for_no_certificate() {
    let edge = DialTokenEdge::start(&[]).await;
    for (offered, agreed) in
        [(&["h2", "http/1.1"][..], Some("http/1.1")), (&["http/1.1"], Some("http/1.1")), (&[], None)]
    {
        let stream = edge.dial(offered).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), agreed.map(str::as_bytes), "{offered:?}");
    }
    assert!(edge.dial(&["h2"]).await.is_err(), "a client of HTTP/2 alone is told at once");

    let asked = Arc::new(AtomicBool::new(false));
    let mut config = dial::config(&edge.ca, None).unwrap();
    config.client_auth_cert_resolver = Arc::new(CertificateRequestProbe(Arc::clone(&asked)));
    let socket = TcpStream::connect(edge.proxy).await.unwrap();
    let name = ServerName::try_from(NAME).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, socket).await.unwrap();
    assert!(!asked.load(Ordering::SeqCst), "it asked for a certificate");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dial_tokens_connections_end_when_it_is_revoked_or_expires() {
    let listed = Echo::start().await;
    let edge = DialTokenEdge::start(&[listed.address]).await;
    let (token, id) = edge.token("lost", &[CLUSTER]).await;
    let (other, other_id) = edge.token("kept", &[CLUSTER]).await;
    let (running, mut kept) =
        (edge.connected(&token, listed.address).await, edge.connected(&other, listed.address).await);
    let shown = at(&edge.rig, &["user", "dial-token", "list"]).await;
    assert!(shown.contains(&id) && shown.contains(USER) && !shown.contains(&token), "{shown}");

    at(&edge.rig, &["user", "dial-token", "revoke", &id]).await;

    is_cut(running).await;
    assert!(edge.asked(&token, listed.address).await.starts_with("HTTP/1.1 407 "));
    let shown = at(&edge.rig, &["user", "dial-token", "list"]).await;
    assert!(!shown.contains(&id) && shown.contains(&other_id), "{shown}");
    echoes(&mut kept, b"still here").await;

    edge.rig.set_clocks(Shift::hours(2));

    is_cut(kept).await;
    assert!(edge.asked(&other, listed.address).await.starts_with("HTTP/1.1 407 "));
    let (token, _) = edge.token("next", &[CLUSTER]).await;
    let running = edge.connected(&token, listed.address).await;
    at(&edge.rig, &["user", "revoke", "--name", USER]).await;
    is_cut(running).await;
    assert!(edge.asked(&token, listed.address).await.starts_with("HTTP/1.1 407 "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_selects_one_of_a_tokens_clusters_or_is_refused() {
    let listed = Echo::start().await;
    let edge = DialTokenEdge::start(&[listed.address]).await;
    at(&edge.rig, &["cluster", "create", "edge-c"]).await;
    for cluster in [OTHER, "edge-c"] {
        edge.advertise(cluster, &[listed.address]).await;
    }
    let (token, _) = edge.token("both", &[CLUSTER, OTHER]).await;

    let refused = edge.asked(&token, listed.address).await;

    let line = refused.lines().next().unwrap();
    assert!(line.starts_with("HTTP/1.1 403 ") && line.contains("ambiguous among edge-a, edge-b"), "{line}");
    assert!(!refused.contains("edge-c"), "not one of the token's: {refused}");
    assert_eq!(listed.accepted(), 0);
    let nowhere = edge.asked(&token, "10.9.9.9:443".parse().unwrap()).await;
    assert!(
        nowhere.starts_with("HTTP/1.1 403 ")
            && nowhere.contains("none of this network's or this token's clusters"),
        "{nowhere}"
    );
    // What its owner may not dial there is no reason to doubt.
    edge.rig.put_policy(&[user_may_dial("ci", ("dial-token", USER), &[CLUSTER])]).await;
    let mut connected = edge.connected(&token, listed.address).await;
    echoes(&mut connected, b"a").await;
    assert_eq!(listed.accepted(), 1);
}

/// This holds for both protocols of the proxy listener.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_token_reaches_the_one_cluster_that_has_the_address() {
    let listed = Echo::start().await;
    let edge = DialTokenEdge::start(&[listed.address]).await;
    let join =
        async |cluster, network| at(&edge.rig, &["cluster", "update", cluster, "--network", network]).await;
    join(CLUSTER, "plant-1").await;
    join(OTHER, "plant-2").await;
    edge.advertise(OTHER, &[listed.address]).await;
    let (token, id) = edge.token_for(USER, "network", &["--network", "plant-1"]).await;
    let shown = at(&edge.rig, &["user", "dial-token", "list"]).await;
    assert!(shown.lines().any(|line| line.contains(&id) && line.contains("plant-1")), "{shown}");

    let mut connected = edge.connected(&token, listed.address).await;
    echoes(&mut connected, b"hello").await;
    connected.shutdown().await.unwrap();
    let (intent, _) = edge.recorded(&id).await;
    assert_eq!(note(&intent, "cluster"), CLUSTER, "{intent}");
    edge.reaches_by_socks(&token, listed.address).await;

    join(OTHER, "plant-1").await;

    let refused = edge.asked(&token, listed.address).await;
    let line = refused.lines().next().unwrap();
    assert!(line.starts_with("HTTP/1.1 403 ") && line.contains("ambiguous among edge-a, edge-b"), "{line}");
    edge.is_refused_by_socks(&token, listed.address, 2).await;
    let lines = AuditLog::of(&edge.rig);
    let is_listed = |listener: &str| {
        lines.completions().into_iter().any(|line| {
            note(line, "listener") == listener
                && note(line, "among") == "edge-a, edge-b"
                && line["responseStatus"]["reason"] == "TargetAmbiguous"
        })
    };
    assert!(is_listed("proxy") && is_listed("socks"), "{lines:?}");
    // What its owner may not dial there is no reason to doubt.
    edge.rig.put_policy(&[user_may_dial("ci", ("dial-token", USER), &[CLUSTER])]).await;
    let mut connected = edge.connected(&token, listed.address).await;
    echoes(&mut connected, b"a").await;
    edge.reaches_by_socks(&token, listed.address).await;
    // And no more when the cluster has left the network.
    join(CLUSTER, "plant-2").await;
    let nowhere = edge.asked(&token, listed.address).await;
    assert!(nowhere.starts_with("HTTP/1.1 403 ") && !nowhere.contains("edge-"), "{nowhere}");
    edge.is_refused_by_socks(&token, listed.address, 2).await;
    assert_eq!(listed.accepted(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_at_the_proxy_is_limited() {
    let edge = DialTokenEdge::start(&[]).await;
    let head = |lines: String| format!("CONNECT 10.0.0.1:443 HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    for (lines, status) in [
        (format!("A: {}\r\n", "a".repeat(15_000)), 407),
        (format!("A: {}\r\n", "a".repeat(17_000)), 431),
        ("A: a\r\n".repeat(49), 407),
        ("A: a\r\n".repeat(50), 431),
    ] {
        let answer = edge.response_to(&head(lines)).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_client_of_the_proxy_is_closed() {
    let edge = DialTokenEdge::start(&[]).await;
    let mut stream = edge.dial(&["http/1.1"]).await.unwrap();
    // Half a head.
    stream.write_all(b"CONNECT 10.0.0.1:443 HTTP/1.1\r\n").await.unwrap();
    let mut rest = Vec::new();
    let _ = timeout(SOON, stream.read_to_end(&mut rest)).await.expect("it is closed");
    assert!(!rest.starts_with(b"HTTP/1.1 2"), "{}", String::from_utf8_lossy(&rest));
}

/// All of them come from the same address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_tokens_are_throttled_and_a_good_one_is_not() {
    let listed = Echo::start().await;
    let edge = DialTokenEdge::start_guessed(3, &[listed.address]).await;
    let (token, _) = edge.token("good", &[CLUSTER]).await;

    let mut statuses = Vec::new();
    for _ in 0..4 {
        let answer = edge.asked("tombolo-dial-0.0", listed.address).await;
        statuses.push(answer.split(' ').nth(1).unwrap().to_owned());
    }

    assert_eq!(statuses, ["407", "407", "407", "429"]);
    let mut connected = edge.connected(&token, listed.address).await;
    echoes(&mut connected, b"hello").await;
}

/// Remembers whether a server has asked for a certificate.
#[derive(Debug)]
struct CertificateRequestProbe(Arc<AtomicBool>);

impl ResolvesClientCert for CertificateRequestProbe {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.store(true, Ordering::SeqCst);
        None
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// A server with a proxy listener, and an agent of [`CLUSTER`] that dials some targets.
struct DialTokenEdge {
    rig: Rig,
    proxy: SocketAddr,
    /// The address of the SOCKS5 listener.
    socks: SocketAddr,
    /// The CA that issued the proxy's certificate, PEM.
    ca: String,
    _fake: FakeApi,
    _agent: Agent,
}

impl DialTokenEdge {
    /// All lists have `targets`, and [`USER`] may dial.
    async fn start(targets: &[SocketAddr]) -> Self {
        Self::start_guessed(100_000, targets).await
    }

    /// The same where one address may fail so often in a minute.
    async fn start_guessed(failures: u32, targets: &[SocketAddr]) -> Self {
        let (rig, ProxyListeners { proxy, socks, ca }) = rig_with_listeners(failures).await;
        let fake = FakeApi::start().await.unwrap();
        let listed: Vec<String> = targets.iter().map(ToString::to_string).collect();
        let api = ApiServer::of_fake(&rig, &fake);
        let agent = rig.agent_with(CLUSTER, &api, &format!("targets: {listed:?}\n")).await;
        rig.connected(CLUSTER).await;
        rig.put_policy(&[
            user_may_dial("ci", ("dial-token", USER), &["*"]),
            // The same name by another method is somebody else.
            user_may_dial("alice", ("client-certificate", "alice"), &["*"]),
            allow_all("admins", ("client-certificate", GROUP), &["*"]),
        ])
        .await;
        at(&rig, &["cluster", "create", OTHER]).await;
        let edge = Self { rig, proxy, socks, ca, _fake: fake, _agent: agent };
        edge.advertise(CLUSTER, targets).await;
        edge
    }

    async fn advertise(&self, cluster: &str, targets: &[SocketAddr]) {
        let targets: Vec<String> = targets.iter().map(ToString::to_string).collect();
        if !targets.is_empty() {
            let words = targets.iter().flat_map(|target| ["--advertise", target]);
            at(&self.rig, &["cluster", "update", cluster].into_iter().chain(words).collect::<Vec<_>>()).await;
        }
    }

    async fn token(&self, name: &str, clusters: &[&str]) -> (String, String) {
        self.token_of(USER, name, clusters).await
    }

    /// A token that holds for an hour, and its id.
    async fn token_of(&self, user: &str, name: &str, clusters: &[&str]) -> (String, String) {
        let words: Vec<&str> = clusters.iter().flat_map(|cluster| ["--cluster", cluster]).collect();
        self.token_for(user, name, &words).await
    }

    /// The same for these places.
    async fn token_for(&self, user: &str, name: &str, places: &[&str]) -> (String, String) {
        // Its file name marks it as a secret, which no log may contain.
        let file = format!("{name}.token");
        let words = ["user", "dial-token", "create", "--user", user, "--ttl", "1h", "--out", &file];
        let message = at(&self.rig, &[words.as_slice(), places].concat()).await;
        let token = std::fs::read_to_string(self.rig.path().join(&file)).unwrap().trim().to_owned();
        let id = token.strip_prefix("tombolo-dial-").unwrap().split_once('.').unwrap().0.to_owned();
        assert!(message.contains(&id) && !message.contains(&token), "{message}");
        (token, id)
    }

    async fn dial(&self, protocols: &[&str]) -> std::io::Result<TlsStream<TcpStream>> {
        dial_name(self.proxy, NAME, &self.ca, protocols, None).await
    }

    /// All that is answered to one request.
    async fn response_to(&self, request: &str) -> String {
        let mut stream = self.dial(&["h2", "http/1.1"]).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // Whether TLS ends with a word is not what is asked here.
        let _ = timeout(SOON, stream.read_to_end(&mut answer)).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The answer to a token's owner for this target.
    async fn asked(&self, token: &str, target: SocketAddr) -> String {
        let header = basic(USER, token);
        self.response_to(&format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{header}\r\n")).await
    }

    async fn connected(&self, token: &str, target: SocketAddr) -> TlsStream<TcpStream> {
        let mut stream = self.dial(&["http/1.1"]).await.unwrap();
        let header = basic(USER, token);
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{header}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(timeout(SOON, stream.read_u8()).await.unwrap().unwrap());
        }
        assert!(head.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head));
        stream
    }

    /// The two audit lines of the one connection that used a token: its intent and its completion.
    async fn recorded(&self, token: &str) -> (Value, Value) {
        AuditLog::found(&self.rig, |log| {
            let intents = log.intents();
            let intent = *intents.iter().find(|line| note(line, "credential-serial") == token)?;
            let of_it = log.about(intent["auditID"].as_str()?);
            of_it.completions().first().map(|ended| (intent.clone(), (*ended).clone()))
        })
        .await
    }
}

/// The listeners of a server for dial tokens.
struct ProxyListeners {
    proxy: SocketAddr,
    socks: SocketAddr,
    /// The CA of the proxy's certificate, PEM.
    ca: String,
}

/// A server that is reached by them.
async fn rig_with_listeners(failures: u32) -> (Rig, ProxyListeners) {
    let mut rig = Rig::start().await;
    rig.tombolo(&["ca", "issue", "proxy", "--dir", "pki", "--name", NAME]).await;
    rig.kill_server();
    rig.take_clocks();
    let (proxy, socks) = (free_port(), free_port());
    let listeners = format!(
        "proxy: {{ listen: \"{proxy}\", certificateFile: pki/proxy.crt, keyFile: pki/proxy.key }}\n\
         socks: {{ listen: \"{socks}\" }}\n"
    );
    let failures = format!("failedLoginsPerMinute: {failures} ");
    rig.write_config(|config| {
        format!("{}{listeners}", config.replace("failedLoginsPerMinute: 100000 ", &failures))
    });
    rig.start_server().await;
    let ca = std::fs::read_to_string(rig.path().join(CA)).unwrap();
    (rig, ProxyListeners { proxy, socks, ca })
}

fn basic(user: &str, token: &str) -> String {
    format!("Proxy-Authorization: Basic {}\r\n", STANDARD.encode(format!("{user}:{token}")))
}

async fn echoes(stream: &mut TlsStream<TcpStream>, bytes: &[u8]) {
    stream.write_all(bytes).await.unwrap();
    let mut echoed = vec![0; bytes.len()];
    timeout(SOON, stream.read_exact(&mut echoed)).await.unwrap().unwrap();
    assert_eq!(echoed, bytes);
}

/// The connection breaks off, and does not end as if it were over.
async fn is_cut(mut stream: TlsStream<TcpStream>) {
    let end = timeout(SOON, stream.read_to_end(&mut Vec::new())).await.expect("it ends");
    assert!(end.is_err(), "a connection that may not go on ended as if it were over");
}
