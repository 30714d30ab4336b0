//! CONNECT to targets of a cluster: three lists must agree on a target, and bytes pass unchanged or not at
//! all.

use std::net::SocketAddr;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::Signal;
use tests::audit_log::{AuditLog, note};
use tests::caller::{Disconnect, Http1Caller, head};
use tests::dial::dial;
use tests::enroll::at;
use tests::fake_api::FakeApi;
use tests::listener::{
    BROKE, GREETING_BYTES, Listener, break_off, count, echo, read_all, speak, uploads_arrive_complete,
};
use tests::rig::policy::{allow_all, may_dial};
use tests::rig::{Agent, ApiServer, GROUP, Reply, Rig, TOKEN, ask};
use tokio::net::TcpListener;

const CLUSTER: &str = "edge-a";
const OTHER: &str = "edge-b";

/// Uploads that are closed at once.
const UPLOADS: usize = 300;

/// Connections that are begun and broken.
const BROKEN: usize = 20;

/// A refused request reaches no agent and no target.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_is_dialed_only_where_policy_store_and_agent_agree() {
    let (listed, canary) = (Listener::start(echo).await, Listener::start(echo).await);
    let edge = ConnectEdge::start(&[listed.address]).await;
    let (listed_at, canary_at) = (listed.address.to_string(), canary.address.to_string());
    // What the store lets the cluster advertise and its agent does not, and the other way round.
    let unadvertised = Listener::start(echo).await;
    edge.advertise(CLUSTER, &[&listed_at, &unadvertised.address.to_string(), "127.0.0.1/32"]).await;
    let alice = edge.rig.caller("alice", &["tombolo:readers"]).await;
    let authorization = format!("Bearer {TOKEN}");
    let (token, name) = (("Authorization", authorization.as_str()), ("Tombolo-Cluster", CLUSTER));
    let other = ("Tombolo-Cluster", OTHER);
    let unknown = ("Tombolo-Cluster", "edge-c");

    for (target, headers, status, cause) in [
        (canary_at.as_str(), [name].as_slice(), 401, "NotAuthenticated"),
        (&canary_at, &[("Proxy-Authorization", authorization.as_str()), name], 401, "NotAuthenticated"),
        (&canary_at, &[token], 400, "NotARequest"),
        (&canary_at, &[token, name, name], 400, "NotARequest"),
        (&canary_at, &[token, ("Tombolo-Cluster", "Edge_A")], 400, "NotARequest"),
        (&canary_at, &[token, name], 403, "TargetRefused"),
        (&listed_at, &[token, other], 403, "TargetRefused"),
        (&listed_at, &[token, unknown], 403, "ForbiddenByPolicy"),
        (&unadvertised.address.to_string(), &[token, name], 403, "TargetRefused"),
        ("user@127.0.0.1:80", &[token, name], 400, "NotARequest"),
        ("127.1:80", &[token, name], 400, "NotARequest"),
        ("localhost:80", &[token, name], 403, "TargetRefused"),
    ] {
        let reply = edge.ask(target, headers).await;
        assert_eq!(
            (reply.status, reply.cause().as_str()),
            (status, cause),
            "{target} {headers:?}: {reply:?}"
        );
    }
    // Who may not dial, though it may ask the cluster's API.
    let gateway = edge.rig.gateway();
    let reply = ask(gateway, &edge.rig.server_ca(), Some(&alice), "CONNECT", &listed_at, &[name]).await;
    let reply = reply.unwrap();
    assert_eq!((reply.status, reply.cause().as_str()), (403, "ForbiddenByPolicy"));
    // The status line says why, which is all that Go's programs show.
    let line = reply.head.lines().next().unwrap();
    assert!(line.contains("alice") && line.contains("ask the operator"), "{line}");
    assert_eq!((listed.accepted(), canary.accepted(), unadvertised.accepted()), (0, 0, 0));

    let mut caller = edge.connect(&listed_at).await;
    caller.write("hello").await;
    assert_eq!(caller.read_exactly(5).await, b"hello");
    assert_eq!((listed.accepted(), canary.accepted()), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_over_http2_is_refused_with_a_hint_to_http1() {
    let listed = Listener::start(echo).await;
    let edge = ConnectEdge::start(&[listed.address]).await;
    let stream = dial(edge.rig.gateway(), &edge.rig.server_ca(), &["h2"], None).await.unwrap();
    let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.unwrap();
    let request = Request::connect(listed.address.to_string())
        .header("Authorization", format!("Bearer {TOKEN}"))
        .header("Tombolo-Cluster", CLUSTER)
        .body(Empty::<Bytes>::new())
        .unwrap();

    let answered = async {
        let answer = sender.send_request(request).await.unwrap();
        let status = answer.status().as_u16();
        (status, answer.into_body().collect().await.unwrap().to_bytes())
    };
    let (status, output) = tokio::select! {
        answered = answered => answered,
        ended = connection => panic!("{ended:?}"),
    };

    assert_eq!(status, 505);
    let output = String::from_utf8(output.to_vec()).unwrap();
    assert!(output.contains("HTTP/1.1 alone"), "{output}");
    assert_eq!(listed.accepted(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agents_own_allow_list_holds_against_any_server() {
    let (listed, canary) = (Listener::start(echo).await, Listener::start(echo).await);
    let edge = ConnectEdge::start(&[listed.address]).await;
    // An agent that advertises more than it dials.
    let canary_at = canary.address.to_string();
    edge.advertise(OTHER, &["127.0.0.0/8", "169.254.169.254/32"]).await;
    let more = format!(
        "advertise: [\"169.254.169.254:80\"]\ntargets: [\"127.0.0.0/8:{}\"]\n",
        canary.address.port()
    );
    let api = ApiServer::of_fake(&edge.rig, &edge.fake);
    let other = edge.rig.agent_with(OTHER, &api, &more).await;
    edge.rig.connected(OTHER).await;

    // A network never means loopback.
    let reply = edge
        .ask(&canary_at, &[("Authorization", &format!("Bearer {TOKEN}")), ("Tombolo-Cluster", OTHER)])
        .await;

    assert_eq!((reply.status, reply.cause().as_str()), (403, "ForbiddenByAgent"), "{reply:?}");
    assert_eq!(canary.accepted(), 0);
    let refused = "tombolo_agent_target_dials_total{outcome=\"guard\"}";
    assert!((edge.rig.metric(other.probes, refused).await - 1.0).abs() < f64::EPSILON);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_after_a_connect_pass_only_once_it_is_accepted() {
    let listed = Listener::start(echo).await;
    let edge = ConnectEdge::start(&[listed.address]).await;
    let nobody = free_address().await;
    edge.advertise(CLUSTER, &["127.0.0.1/32"]).await;

    for (target, accepted) in [(listed.address, true), (nobody, false)] {
        let mut caller = Http1Caller::dial(&edge.rig).await;
        let behind = head("GET", "/clusters", "");
        caller.write(format!("{}{behind}", connect(&target.to_string()))).await;
        let answer = caller.read_head().await;
        assert_eq!(answer.starts_with("HTTP/1.1 200"), accepted, "{answer}");
        if accepted {
            assert_eq!(caller.read_exactly(behind.len()).await, behind.as_bytes());
        } else {
            // One answer, and then the end: what came behind is no second request.
            let (rest, _) = caller.read_to_end().await;
            assert!(!String::from_utf8_lossy(&rest).contains("HTTP/1.1"), "{answer}{rest:?}");
        }
    }
}

/// The answer to it comes back after the upload's end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_closed_at_once_arrives_complete() {
    uploads(UPLOADS, 3_000_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: ten thousand uploads"]
async fn ten_thousand_uploads_closed_at_once_arrive_complete() {
    uploads(10_000, 300_000).await;
}

async fn uploads(rounds: usize, bytes_max: usize) {
    let counting = Listener::start(count).await;
    let edge = ConnectEdge::start(&[counting.address]).await;
    let target = counting.address.to_string();
    uploads_arrive_complete(rounds, bytes_max, async || edge.connect(&target).await.into_stream()).await;
}

/// All of what such a target sends arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_speaks_first_and_ends_first_still_receives() {
    let speaking = Listener::start(speak).await;
    let edge = ConnectEdge::start(&[speaking.address]).await;

    let mut caller = edge.connect(&speaking.address.to_string()).await;

    let (greeting, end) = caller.read_to_end().await;
    end.unwrap();
    assert_eq!(greeting.len(), GREETING_BYTES);
    assert!(greeting.iter().all(|byte| *byte == b'g'));
    // Its other direction is still open.
    caller.write("and you").await;
    caller.shut_down().await;
    assert_eq!(speaking.received().await, b"and you");
}

/// This holds for a break at the caller, at the target, and in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_break_at_one_end_is_never_a_clean_end_at_the_other() {
    let breaking = Listener::start(break_off).await;
    let edge = ConnectEdge::start(&[breaking.address]).await;
    let target = breaking.address.to_string();

    for round in 0..BROKEN {
        let mut caller = edge.connect(&target).await;
        caller.write("x").await;
        let (came, end) = caller.read_to_end().await;
        assert!(end.is_err(), "round {round}: {} bytes and a clean end", came.len());
    }
    let reading = Listener::start(read_all).await;
    let more = format!("targets: [{:?}, {:?}]\n", target, reading.address.to_string());
    let edge = edge.restarted(&more).await;
    let reading_at = reading.address.to_string();
    edge.advertise(CLUSTER, &[&target, &reading_at]).await;
    for round in 0..BROKEN {
        let mut caller = edge.connect(&reading_at).await;
        caller.write(vec![1; 100_000]).await;
        caller.leave(Disconnect::Reset).await;
        assert_eq!(reading.received().await, BROKE, "round {round}: half an upload looked whole");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_ends_when_policy_store_or_revocation_forbids_it() {
    let listed = Listener::start(echo).await;
    let edge = ConnectEdge::start(&[listed.address]).await;
    let target = listed.address.to_string();

    let caller = edge.echoing(&target).await;
    edge.advertise(CLUSTER, &["10.0.0.0/8"]).await;
    is_cut(caller).await;

    edge.advertise(CLUSTER, &[&target]).await;
    let caller = edge.echoing(&target).await;
    edge.rig.put_policy(&edge.rules()[1..]).await;
    is_cut(caller).await;

    edge.rig.put_policy(&edge.rules()).await;
    let caller = edge.echoing(&target).await;
    at(&edge.rig, &["user", "revoke", "--name", "token:tess"]).await;
    is_cut(caller).await;
}

/// Its connection breaks off, and does not end as if it were over.
async fn is_cut(mut caller: Http1Caller) {
    let (_, end) = caller.read_to_end().await;
    assert!(end.is_err(), "a connection that may not go on ended as if it were over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_log_has_caller_target_and_bytes_of_each_connection() {
    let listed = Listener::start(echo).await;
    let edge = ConnectEdge::start(&[listed.address]).await;
    let target = listed.address.to_string();

    let mut caller = Http1Caller::dial(&edge.rig).await;
    caller
        .write(head("CONNECT", &target, &format!("Tombolo-Cluster: {CLUSTER}\r\nAudit-ID: a-dial\r\n")))
        .await;
    assert!(caller.read_head().await.starts_with("HTTP/1.1 200"));
    caller.write("hello").await;
    caller.shut_down().await;
    let (echoed, end) = caller.read_to_end().await;
    assert_eq!((echoed.as_slice(), end.is_ok()), (b"hello".as_slice(), true));

    let (intent, completion) = AuditLog::found(&edge.rig, |log| {
        let log = log.about("a-dial");
        log.completions().first().map(|end| (log.intents()[0].clone(), (*end).clone()))
    })
    .await;
    assert_eq!(
        (intent["verb"].as_str(), intent["user"]["username"].as_str()),
        (Some("dial"), Some("token:tess"))
    );
    for (key, value) in
        [("mode", "dial"), ("target", target.as_str()), ("cluster", CLUSTER), ("decision", "allow")]
    {
        assert_eq!(note(&intent, key), value, "{intent}");
    }
    for (key, value) in
        [("address", target.as_str()), ("bytes-up", "5"), ("bytes-down", "5"), ("end-reason", "clean")]
    {
        assert_eq!(note(&completion, key), value, "{completion}");
    }
}

/// A server, and an agent of [`CLUSTER`] that dials some targets.
struct ConnectEdge {
    rig: Rig,
    fake: FakeApi,
    agent: Agent,
}

impl ConnectEdge {
    /// Starts an edge whose three lists all have `targets`.
    async fn start(targets: &[SocketAddr]) -> Self {
        let rig = Rig::start().await;
        let fake = FakeApi::start().await.unwrap();
        let targets: Vec<String> = targets.iter().map(ToString::to_string).collect();
        let more = format!("targets: {targets:?}\n");
        let agent = rig.agent_with(CLUSTER, &ApiServer::of_fake(&rig, &fake), &more).await;
        rig.connected(CLUSTER).await;
        let edge = Self { rig, fake, agent };
        edge.rig.put_policy(&edge.rules()).await;
        // The agent's has been met already.
        at(&edge.rig, &["cluster", "create", OTHER]).await;
        edge.advertise(CLUSTER, &targets.iter().map(String::as_str).collect::<Vec<_>>()).await;
        edge
    }

    /// The same with another agent's configuration.
    async fn restarted(mut self, more: &str) -> Self {
        let ended = Rig::ends_with(&mut self.agent.process, Signal::TERM).await;
        assert_eq!(ended, Some(0));
        self.rig.disconnected(CLUSTER).await;
        self.agent = self.rig.agent_with(CLUSTER, &ApiServer::of_fake(&self.rig, &self.fake), more).await;
        self.rig.connected(CLUSTER).await;
        self
    }

    /// The holder of [`TOKEN`] may dial, and readers may only ask.
    fn rules(&self) -> Vec<String> {
        let dialers = format!("token:{GROUP}");
        vec![
            may_dial("dialers", ("token", &dialers), &["edge-a", "edge-b"]),
            allow_all("readers", ("client-certificate", "tombolo:readers"), &["*"]),
        ]
    }

    async fn advertise(&self, cluster: &str, addresses: &[&str]) {
        let mut words = vec!["cluster", "update", cluster];
        for address in addresses {
            words.extend(["--advertise", address]);
        }
        at(&self.rig, &words).await;
    }

    async fn ask(&self, target: &str, headers: &[(&str, &str)]) -> Reply {
        ask(self.rig.gateway(), &self.rig.server_ca(), None, "CONNECT", target, headers).await.unwrap()
    }

    /// The same, once a byte has come back.
    async fn echoing(&self, target: &str) -> Http1Caller {
        let mut caller = self.connect(target).await;
        caller.write("x").await;
        caller.read_exactly(1).await;
        caller
    }

    /// A connection of the holder of [`TOKEN`] to a target of [`CLUSTER`].
    async fn connect(&self, target: &str) -> Http1Caller {
        let mut caller = Http1Caller::dial(&self.rig).await;
        caller.write(connect(target)).await;
        let answer = caller.read_head().await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        caller
    }
}

fn connect(target: &str) -> String {
    head("CONNECT", target, &format!("Tombolo-Cluster: {CLUSTER}\r\n"))
}

/// An address at which nobody listens.
async fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}
