//! `tombolo proxy`: a local listener for one cluster's targets. Its secret is in the kubeconfig that it
//! writes.

mod network;
mod socks;

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::process::{Signal, geteuid};
use tests::binaries::binary;
use tests::caller::SOON;
use tests::enroll::at;
use tests::fake_api::FakeApi;
use tests::process::{Invocation, Process};
use tests::rig::policy::may_dial;
use tests::rig::{Agent, ApiServer, GROUP, Rig};
use tests::skip::skip;
use tests::socks5::GREETING;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// The kubeconfig that the proxy writes.
const COPY: &str = "copy.conf";
/// The log of the proxy.
const LOG: &str = "proxy.log";
/// The network that the cluster is in.
const NETWORK: &str = "plant-1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_secret_the_local_proxy_refuses_everything() {
    let edge = LocalProxyEdge::start().await;
    let (address, secret) = edge.listener();
    let target = edge.fake.address();
    // The proxy tries the way once by itself.
    edge.connected(1.0).await;

    let wrong = STANDARD.encode("u:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    let right = format!("Proxy-Authorization: Basic {secret}\r\n");
    let page = "Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n";
    for (line, headers, status) in [
        (format!("CONNECT {target} HTTP/1.1"), String::new(), 407),
        (format!("CONNECT {target} HTTP/1.1"), format!("Proxy-Authorization: Basic {wrong}\r\n"), 407),
        (format!("CONNECT {target} HTTP/1.1"), format!("Authorization: Basic {secret}\r\n"), 407),
        (format!("CONNECT {target} HTTP/1.1"), format!("{right}{right}"), 407),
        (format!("GET http://{target}/ HTTP/1.1"), page.to_owned(), 407),
        (format!("GET http://{target}/ HTTP/1.1"), right.clone(), 405),
        ("POST / HTTP/1.1".to_owned(), right.clone(), 405),
        // Another cluster's, and what nobody lets this one have.
        ("CONNECT 10.9.9.9:6443 HTTP/1.1".to_owned(), right.clone(), 403),
    ] {
        let answer = response_to(address, &format!("{line}\r\nHost: {target}\r\n{headers}\r\n")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{line} {headers}: {answer}");
        assert!(!answer.contains(&secret), "{answer}");
    }

    let refused =
        response_to(address, &format!("CONNECT 10.9.9.9:6443 HTTP/1.1\r\nHost: a\r\n{right}\r\n")).await;
    let line = refused.lines().next().unwrap();
    assert!(line.contains("may advertise"), "the status line says what is wrong: {line}");
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{right}\r\n").as_bytes())
        .await
        .unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    // This one, and nobody before it.
    edge.connected(2.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kubeconfigs_copy_is_private_and_removed_with_the_proxy() {
    let mut edge = LocalProxyEdge::start().await;
    let copy = edge.rig.path().join(COPY);

    assert_eq!(copy.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let ended = Rig::ends_with(&mut edge.proxy, Signal::TERM).await;

    assert_eq!(ended, Some(0));
    assert!(!copy.exists(), "a secret that opens nothing any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_user_of_the_machine_does_not_read_the_secret() {
    let test = "another_user_of_the_machine_does_not_read_the_secret";
    if !geteuid().is_root() {
        return skip(test, "only root may become somebody else");
    }
    let edge = LocalProxyEdge::start().await;
    // Only the file's own mode prevents that.
    std::fs::set_permissions(edge.rig.path(), Permissions::from_mode(0o755)).unwrap();
    let open = edge.rig.write("open.conf", "anybody's\n");
    std::fs::set_permissions(&open, Permissions::from_mode(0o644)).unwrap();

    let [open, copy] = [open, edge.rig.path().join(COPY)]
        .map(|file| std::process::Command::new("cat").arg(file).uid(NOBODY).gid(NOBODY).output().unwrap());

    assert_eq!(open.stdout, b"anybody's\n", "{open:?}");
    assert!(!copy.status.success() && copy.stdout.is_empty(), "{copy:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_client_of_the_local_proxy_is_closed() {
    let edge = LocalProxyEdge::start().await;
    let (address, secret) = edge.listener();
    let half = format!("CONNECT 10.0.0.1:443 HTTP/1.1\r\nProxy-Authorization: Basic {secret}\r\n");
    let output = ["".as_bytes(), &GREETING[..1], half.as_bytes()].map(async |output: &[u8]| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(output).await.unwrap();
        let mut answer = Vec::new();
        let _ = timeout(SOON, stream.read_to_end(&mut answer)).await.expect("it is closed");
        assert!(!answer.starts_with(b"HTTP/1.1 2"), "{}", String::from_utf8_lossy(&answer));
    });
    let [nothing, socks, connect] = output;
    tokio::join!(nothing, socks, connect);
}

/// It would listen for other machines, or the cluster's URL is no https URL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unsafe_local_proxy_is_refused() {
    let rig = Rig::start().await;
    rig.caller("alice", &[GROUP]).await;
    let plain = rig.write("plain.conf", &kubeconfig("http://10.0.0.1:80"));
    let good = rig.write("good.conf", &kubeconfig("https://10.0.0.1:443"));

    for (kubeconfig, more, expected) in [
        (&good, ["--listen", "0.0.0.0:0"], "of this machine alone"),
        (&plain, ["--listen", "127.0.0.1:0"], "no https URL"),
        (&good, ["--context", "other"], "no context"),
    ] {
        let words = words(&rig, kubeconfig);
        let words: Vec<&str> = words.iter().map(String::as_str).chain(more).collect();
        let output = rig.tombolo_fails(&words).await;
        assert!(output.contains(expected), "{output}");
    }
}

/// The user ID of Debian's `nobody`, as another user.
const NOBODY: u32 = 65534;

/// The pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Connections that an agent has made to targets.
const DIALS: &str = "tombolo_agent_target_dials_total{outcome=\"connected\"}";

/// A cluster whose API server is dialed, and a proxy to it.
struct LocalProxyEdge {
    rig: Rig,
    fake: FakeApi,
    agent: Agent,
    proxy: Process,
}

impl LocalProxyEdge {
    async fn start() -> Self {
        Self::start_with(&[], &[]).await
    }

    /// The same with more targets, which all lists have, and more flags of the proxy.
    async fn start_with(targets: &[SocketAddr], flags: &[&str]) -> Self {
        Self::start_within(["--cluster", "edge-a"], targets, flags).await
    }

    /// The same for what is named so.
    async fn start_within(place: [&str; 2], targets: &[SocketAddr], flags: &[&str]) -> Self {
        let rig = Rig::start().await;
        rig.caller("alice", &[GROUP]).await;
        let fake = FakeApi::start().await.unwrap();
        let target = fake.address().to_string();
        let targets: Vec<String> = targets.iter().map(ToString::to_string).collect();
        let more = format!("advertise: [{target:?}]\ntargets: {targets:?}\n");
        let agent = rig.agent_with("edge-a", &ApiServer::of_fake(&rig, &fake), &more).await;
        rig.connected("edge-a").await;
        rig.put_policy(&[may_dial("admins", ("client-certificate", GROUP), &["*"])]).await;
        advertise(&rig, "edge-a", &[std::slice::from_ref(&target), targets.as_slice()].concat()).await;
        at(&rig, &["cluster", "update", "edge-a", "--network", NETWORK]).await;
        let conf = rig.write("admin.conf", &kubeconfig(&format!("https://{target}")));
        let flags = flags.iter().map(|flag| (*flag).to_owned());
        let words: Vec<String> = words_within(&rig, &conf, place)
            .into_iter()
            .chain(["--output".to_owned(), COPY.to_owned()])
            .chain(flags)
            .collect();
        let invocation = Invocation::of(binary("tombolo")).arguments(words).in_directory(rig.path());
        let proxy = Process::start(&invocation, &rig.path().join(LOG)).await.unwrap();
        rig.logged(LOG, 0, "is reached through").await;
        Self { rig, fake, agent, proxy }
    }

    /// Waits until the agent has connected so many, and sees that they are not more.
    async fn connected(&self, count: f64) {
        let mut found = 0.0;
        let counted = timeout(SOON, async {
            while found < count {
                sleep(LOOK_EVERY).await;
                found = self.rig.metric(self.agent.probes, DIALS).await;
            }
        });
        counted.await.expect("the agent connects");
        assert!(found <= count, "somebody was connected who may not");
    }

    /// The address of the proxy, and the Basic credential that it wants.
    fn listener(&self) -> (SocketAddr, String) {
        let Url { address, secret, .. } = self.url();
        (address, STANDARD.encode(format!("u:{secret}")))
    }

    /// The proxy URL in the written kubeconfig.
    fn url(&self) -> Url {
        let copy = std::fs::read_to_string(self.rig.path().join(COPY)).unwrap();
        let (before, rest) = copy.split_once("://u:").unwrap();
        let scheme = before.rsplit([' ', '"', '\'']).next().unwrap().to_owned();
        let rest: String =
            rest.chars().take_while(|next| !next.is_whitespace() && !"\"'".contains(*next)).collect();
        let (secret, address) = rest.split_once('@').unwrap();
        Url { scheme, secret: secret.to_owned(), address: address.parse().unwrap() }
    }
}

/// The parts of a `proxy-url`.
struct Url {
    scheme: String,
    secret: String,
    address: SocketAddr,
}

async fn advertise(rig: &Rig, cluster: &str, targets: &[String]) {
    let targets = targets.iter().flat_map(|target| ["--advertise", target]);
    at(rig, &["cluster", "update", cluster].into_iter().chain(targets).collect::<Vec<_>>()).await;
}

fn words(rig: &Rig, kubeconfig: &Path) -> Vec<String> {
    words_within(rig, kubeconfig, ["--cluster", "edge-a"])
}

fn words_within(rig: &Rig, kubeconfig: &Path, [flag, name]: [&str; 2]) -> Vec<String> {
    let (gateway, kubeconfig) = (format!("https://{}", rig.gateway()), kubeconfig.display().to_string());
    let words =
        ["proxy", "--gateway", &gateway, "--ca", "pki/server-ca.crt", "--cert", "pki/alice-caller.crt"];
    let more = ["--key", "pki/alice-caller.key", flag, name, "--kubeconfig", &kubeconfig];
    words.into_iter().chain(more).map(str::to_owned).collect()
}

fn kubeconfig(server: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: admin\nclusters: [{{ name: edge, cluster: {{ server: {server:?} }} }}]\n\
         contexts: [{{ name: admin, context: {{ cluster: edge, user: admin }} }}]\nusers: [{{ name: admin, user: {{}} }}]\n"
    )
}

/// All that is answered to one request.
async fn response_to(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    timeout(SOON, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}
