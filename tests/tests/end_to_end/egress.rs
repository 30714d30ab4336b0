//! The egress of an API server: a listener for one principal and one cluster, by TLS and at a Unix socket.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use rustix::process::geteuid;
use tests::audit_log::{AuditLog, note};
use tests::caller::SOON;
use tests::dial::dial;
use tests::enroll::at;
use tests::fake_api::FakeApi;
use tests::listener::{Listener, count, uploads_arrive_complete};
use tests::pki::{Authority, Issued};
use tests::rig::{Agent, ApiServer, Rig, free_port};
use tests::scratch::Scratch;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const CLUSTER: &str = "edge-a";

/// The name in the API server's client certificate.
const NAME: &str = "kube-apiserver-egress";

/// The names of the two entry points in policy.
const BY_TLS: &str = "entry-point:host-a";
const BY_SOCKET: &str = "entry-point:host-b";

/// Uploads that are closed at once.
const UPLOADS: usize = 50;

/// The limit of connections of the first entry point.
const CONNECTIONS: usize = 3;

/// The client is an API server that uses the entry point for its egress.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn egress_reaches_only_what_policy_store_and_agent_agree_on() {
    let edge = EgressEdge::start().await;
    let (listed, unlisted) = (edge.listed, edge.unlisted);

    for mut stream in [edge.by_tls().await, edge.by_socket().await] {
        assert_eq!(asked(&mut stream, &connect(&listed.to_string(), "")).await, "200 OK");
        echoes(&mut stream).await;
    }
    let listed = listed.to_string();
    for (request, expected) in [
        (connect(&unlisted.to_string(), ""), "403 "),
        (connect("169.254.169.254:80", ""), "403 "),
        (connect("nothing", ""), "400 "),
        (connect(&listed, "Tombolo-Cluster: edge-b\r\n"), "421 "),
        (format!("GET http://{listed}/ HTTP/1.1\r\nHost: {listed}\r\n\r\n"), "405 "),
        ("GET /clusters HTTP/1.1\r\nHost: gateway.test\r\n\r\n".to_owned(), "405 "),
        (format!("GET /clusters/{CLUSTER}/api HTTP/1.1\r\nHost: gateway.test\r\n\r\n"), "405 "),
    ] {
        for mut stream in [edge.by_tls().await, edge.by_socket().await] {
            let output = asked(&mut stream, &request).await;
            assert!(output.starts_with(expected), "{request}: {output}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_point_is_for_its_own_name_and_its_own_users() {
    let edge = EgressEdge::start().await;
    let request = connect(&edge.listed.to_string(), "");
    let other_authority = Authority::new("another");
    let alice = edge.rig.caller("alice", &["tombolo:admins"]).await;

    for (whose, identity) in [
        ("nobody's", None),
        ("another's of the same authority", Some(edge.authority.issue_user("kubelet", &[]))),
        ("another authority's", Some(other_authority.issue_user(NAME, &[]))),
        ("a caller's", Some(alice)),
    ] {
        // TLS 1.3 says so behind its handshake.
        if let Ok(mut stream) = edge.shaken(identity.as_ref()).await {
            assert_eq!(answered(&mut stream, &request).await, None, "{whose} certificate");
        }
    }
    let mut stream = UnixStream::connect(&edge.closed_socket).await.unwrap();
    assert_eq!(answered(&mut stream, &request).await, None, "the socket is not for this user");

    let mode = |path: &PathBuf| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&edge.socket), mode(&edge.closed_socket)), (0o600, 0o666));
    // Its certificate is unknown at the callers' listener.
    let own = edge.authority.issue_user(NAME, &[]);
    if let Ok(mut stream) = dial(edge.rig.gateway(), &edge.rig.server_ca(), &["http/1.1"], Some(&own)).await {
        assert_eq!(answered(&mut stream, "GET /clusters HTTP/1.1\r\nHost: a\r\n\r\n").await, None);
    }
}

/// Nobody arrives by an entry point that policy does not name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_point_that_policy_no_longer_names_is_cut_off() {
    let edge = EgressEdge::start().await;
    let request = connect(&edge.listed.to_string(), "");
    let mut stream = edge.by_tls().await;
    assert_eq!(asked(&mut stream, &request).await, "200 OK");
    echoes(&mut stream).await;

    // All authenticated callers, which no entry point belongs to.
    edge.rig.put_policy(&[rule("{ method: \"*\", user: \"*\" }"), rule(&subject(BY_SOCKET))]).await;

    let mut rest = Vec::new();
    let end = timeout(SOON, stream.read_to_end(&mut rest)).await.expect("it is cut");
    assert!(end.is_err(), "a connection that may not go on ended as if it were over");
    let output = asked(&mut edge.by_tls().await, &request).await;
    assert!(output.starts_with("403 ") && output.contains(BY_TLS), "{output}");
    assert_eq!(asked(&mut edge.by_socket().await, &request).await, "200 OK");
    at(&edge.rig, &["user", "revoke", "--name", BY_SOCKET]).await;
    let output = asked(&mut edge.by_socket().await, &request).await;
    assert!(output.starts_with("401 "), "{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_closed_at_once_arrives_complete_by_an_egress() {
    let edge = EgressEdge::start().await;
    let request = connect(&edge.counting.address.to_string(), "");

    uploads_arrive_complete(UPLOADS, 3_000_000, async || {
        let mut stream = edge.by_socket().await;
        assert_eq!(asked(&mut stream, &request).await, "200 OK");
        stream
    })
    .await;
    uploads_arrive_complete(UPLOADS, 3_000_000, async || {
        // It has few places, and the one before may have its own still.
        let used = "tombolo_server_limit_used{limit=\"egress_connections\"}";
        edge.rig.measured(used, |used| used < 1.5).await;
        let mut stream = edge.by_tls().await;
        assert_eq!(asked(&mut stream, &request).await, "200 OK");
        stream
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_points_connections_are_limited_and_audited() {
    let edge = EgressEdge::start().await;
    let request = connect(&edge.listed.to_string(), "Audit-ID: by-egress\r\n");
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = edge.by_tls().await;
        assert_eq!(asked(&mut stream, &request).await, "200 OK");
        held.push(stream);
    }

    let output = asked(&mut edge.by_tls().await, &request).await;

    assert!(output.starts_with("429 ") && output.contains("3 connections"), "{output}");
    let used = "tombolo_server_limit_used{limit=\"egress_connections\"}";
    edge.rig.measured(used, |used| (used - 3.0).abs() < 0.5).await;
    assert_eq!(asked(&mut edge.by_socket().await, &request).await, "200 OK");
    held.clear();
    edge.rig.measured(used, |used| used < 0.5).await;
    assert_eq!(asked(&mut edge.by_tls().await, &request).await, "200 OK");

    let log = AuditLog::of(&edge.rig).about("by-egress");
    let of = |user: &str| {
        let intents = log.intents().into_iter();
        intents.filter(|intent| intent["user"]["username"] == user).cloned().collect::<Vec<_>>()
    };
    assert_eq!((of(BY_TLS).len(), of(BY_SOCKET).len()), (CONNECTIONS + 1, 1));
    let (tls, socket) = (&of(BY_TLS)[0], &of(BY_SOCKET)[0]);
    for (key, value) in [
        ("mode", "dial"),
        ("listener", "egress"),
        ("cluster", CLUSTER),
        ("target", edge.listed.to_string().as_str()),
    ] {
        assert_eq!((note(tls, key), note(socket, key)), (value, value));
    }
    assert_eq!(note(socket, "source"), "unix");
    assert_eq!(note(socket, "credential-serial"), format!("uid:{}", geteuid().as_raw()));
    assert!(socket["sourceIPs"].as_array().is_none_or(Vec::is_empty), "{socket}");
    assert!(note(tls, "source").starts_with("127.0.0.1:"));
}

/// A server with three entry points to [`CLUSTER`], and its agent.
struct EgressEdge {
    rig: Rig,
    authority: Authority,
    tls: SocketAddr,
    socket: PathBuf,
    /// One that is for another user.
    closed_socket: PathBuf,
    listed: SocketAddr,
    counting: Listener,
    unlisted: SocketAddr,
    _agent: Agent,
    _fake: FakeApi,
    _files: Scratch,
    _listeners: Vec<JoinHandle<()>>,
}

impl EgressEdge {
    async fn start() -> Self {
        let (files, authority) = (Scratch::new("tombolo-egress-").unwrap(), Authority::new("egress-ca"));
        let path = |name: &str| files.path().join(name);
        std::fs::write(path("ca.crt"), authority.certificate_pem()).unwrap();
        let (tls, owner) = (free_port(), geteuid().as_raw());
        let [socket, closed_socket] = [path("own/egress.sock"), path("others/egress.sock")];
        let more = format!(
            "egress:\n\
             - {{ name: host-a, cluster: {CLUSTER}, connections: {CONNECTIONS}, tcp: {{ listen: \"{tls}\", clientCAFile: {:?}, \
             clientName: {NAME} }} }}\n\
             - {{ name: host-b, cluster: {CLUSTER}, uds: {{ path: {socket:?}, uids: [{owner}] }} }}\n\
             - {{ name: host-c, cluster: {CLUSTER}, uds: {{ path: {closed_socket:?}, uids: [{}] }} }}\n",
            path("ca.crt"),
            owner + 1,
        );
        let rig = Rig::start_with(&more).await;
        let (listed, first) = echo().await;
        let (unlisted, second) = echo().await;
        let counting = Listener::start(count).await;
        let fake = FakeApi::start().await.unwrap();
        let targets = format!("targets: [\"{listed}\", \"{}\"]\n", counting.address);
        let agent = rig.agent_with(CLUSTER, &ApiServer::of_fake(&rig, &fake), &targets).await;
        rig.connected(CLUSTER).await;
        // The rig's own rules, so that its own questions are answered.
        rig.put_policy(&[
            rule(&subject(BY_TLS)),
            rule(&subject(BY_SOCKET)),
            rule(&subject("entry-point:host-c")),
        ])
        .await;
        at(&rig, &["cluster", "update", CLUSTER, "--advertise", "127.0.0.1/32"]).await;
        Self {
            rig,
            authority,
            tls,
            socket,
            closed_socket,
            listed,
            counting,
            unlisted,
            _agent: agent,
            _fake: fake,
            _files: files,
            _listeners: vec![first, second],
        }
    }

    /// A connection of the API server by TLS.
    async fn by_tls(&self) -> Box<dyn Stream> {
        let identity = self.authority.issue_user(NAME, &[]);
        Box::new(self.shaken(Some(&identity)).await.expect("the handshake is done"))
    }

    async fn shaken(
        &self,
        identity: Option<&Issued>,
    ) -> std::io::Result<impl AsyncRead + AsyncWrite + Unpin + Send + use<>> {
        // kube-apiserver offers no protocol.
        dial(self.tls, &self.rig.server_ca(), &[], identity).await
    }

    /// The same at its socket.
    async fn by_socket(&self) -> Box<dyn Stream> {
        Box::new(UnixStream::connect(&self.socket).await.expect("the socket is there"))
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A CONNECT as kube-apiserver sends it.
pub(crate) fn connect(target: &str, lines: &str) -> String {
    format!("CONNECT {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}\r\n")
}

pub(crate) fn subject(entry_point: &str) -> String {
    format!("{{ method: \"{entry_point}\", user: \"*\" }}")
}

/// A rule that lets a subject dial everything there is.
pub(crate) fn rule(subject: &str) -> String {
    let name: String =
        subject.chars().map(|letter| if letter.is_ascii_lowercase() { letter } else { '-' }).collect();
    format!(
        "{{ name: r{name}r, effect: Allow, subjects: [{subject}], clusters: {{ names: [\"*\"] }}, mode: dial, \
         targets: [{{ hosts: [\"*\"], ports: [\"*\"] }}] }}"
    )
}

/// Status and reason of the answer to a request, and not a byte behind an answer that is no refusal.
pub(crate) async fn asked(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin + ?Sized),
    request: &str,
) -> String {
    answered(stream, request).await.expect("an answer comes")
}

/// The same, or `None` where the connection ends without an answer.
async fn answered(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin + ?Sized),
    request: &str,
) -> Option<String> {
    let exchange = async {
        stream.write_all(request.as_bytes()).await.ok()?;
        stream.flush().await.ok()?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.ok()?);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        head.lines().next().and_then(|line| line.strip_prefix("HTTP/1.1 ")).map(str::to_owned)
    };
    timeout(SOON, exchange).await.expect("an answer or an end comes")
}

async fn echoes(stream: &mut (impl AsyncRead + AsyncWrite + Unpin + ?Sized)) {
    let exchange = async {
        stream.write_all(b"hello").await?;
        stream.flush().await?;
        let mut back = [0; 5];
        stream.read_exact(&mut back).await?;
        std::io::Result::Ok(back)
    };
    assert_eq!(&timeout(SOON, exchange).await.expect("bytes come back").unwrap(), b"hello");
}

async fn echo() -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    (address, serving)
}
