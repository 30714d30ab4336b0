//! The same tests for owners of dial tokens over SOCKS5.

use std::io::ErrorKind;
use std::net::SocketAddr;

use tests::audit_log::note;
use tests::caller::SOON;
use tests::echo::Echo;
use tests::enroll::at;
use tests::flood::{SilentFlood, loopback};
use tests::listener::{Listener, count, uploads_arrive_complete};
use tests::socks5::{CHOSEN, GREETING, asked, asked_for, ipv4, login, name, refused};
use tests::targets;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{CLUSTER, DialTokenEdge, OTHER, USER, basic};

/// Uploads that are closed at once.
const UPLOADS: usize = 50;

/// A refused request reaches no agent and no target.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dial_token_reaches_only_its_clusters_targets_by_socks5() {
    let (listed, canary) = (Echo::start().await, Echo::start().await);
    let edge = DialTokenEdge::start(&[listed.address]).await;
    edge.advertise(OTHER, &[canary.address]).await;
    let (token, id) = edge.token("one", &[CLUSTER]).await;
    let (to_listed, to_canary) = (asked(1, 1, &ipv4(listed.address)), asked(1, 1, &ipv4(canary.address)));

    for (output, answered) in [
        // Without user and password nobody is let in.
        (vec![5, 1, 0], vec![5, 0xff]),
        (vec![5, 0], vec![5, 0xff]),
        // What is no SOCKS5 is answered nothing, SOCKS4 and 4a among it.
        (vec![4, 1, 0, 80, 127, 0, 0, 1, 0], vec![]),
        (b"\x04\x01\x00\x50\x00\x00\x00\x01ci\x00localhost\x00".to_vec(), vec![]),
        (b"CONNECT 10.0.0.1:443 HTTP/1.1\r\n\r\n".to_vec(), vec![]),
        (from(&GREETING, &login(USER, "tombolo-dial-0.0"), &to_listed), vec![5, 2, 1, 1]),
        (from(&GREETING, &login("alice", &token), &to_listed), vec![5, 2, 1, 1]),
        (from(&GREETING, &login(USER, tests::rig::TOKEN), &to_listed), vec![5, 2, 1, 1]),
        (from(&GREETING, &login("", ""), &to_listed), vec![5, 2, 1, 1]),
        (from(&GREETING, &login(USER, &token), &to_canary), refused(2)),
        (from(&GREETING, &login(USER, &token), &asked(1, 1, &[169, 254, 169, 254, 0, 80])), refused(2)),
        // 127.1 is an address to some and a name to others.
        (from(&GREETING, &login(USER, &token), &asked(1, 3, &name(b"127.1", 80))), refused(1)),
        (
            from(
                &GREETING,
                &login(USER, &token),
                &asked(1, 3, &name(&[&[b'a'; 254][..], b"\0"].concat(), 80)),
            ),
            refused(1),
        ),
        (from(&GREETING, &login(USER, &token), &asked(2, 1, &ipv4(listed.address))), refused(7)),
        (from(&GREETING, &login(USER, &token), &asked(3, 1, &ipv4(listed.address))), refused(7)),
        (from(&GREETING, &login(USER, &token), &asked(1, 2, &ipv4(listed.address))), refused(8)),
    ] {
        assert_eq!(edge.answered_by_socks(&output).await, answered, "{output:?}");
    }
    assert_eq!((listed.accepted(), canary.accepted()), (0, 0));

    let mut connected = edge.connected_by_socks(&token, &to_listed).await;

    echoes(&mut connected, b"hello").await;
    assert_eq!((listed.accepted(), canary.accepted()), (1, 0));
    // Each direction ends on its own.
    connected.shutdown().await.unwrap();
    let mut rest = Vec::new();
    timeout(SOON, connected.read_to_end(&mut rest)).await.unwrap().expect("a clean end");
    assert!(rest.is_empty());
    let (intent, completion) = edge.recorded(&id).await;
    let target = listed.address.to_string();
    for (key, value) in [("listener", "socks"), ("cluster", CLUSTER), ("target", target.as_str())] {
        assert_eq!(note(&intent, key), value, "{intent}");
    }
    assert_eq!(intent["user"]["username"], USER);
    assert_eq!((note(&completion, "bytes-up"), note(&completion, "end-reason")), ("5", "clean"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_two_clusters_of_a_token_have_is_not_allowed_by_socks5() {
    let listed = Echo::start().await;
    let edge = DialTokenEdge::start(&[listed.address]).await;
    edge.advertise(OTHER, &[listed.address]).await;
    let (token, _) = edge.token("both", &[CLUSTER, OTHER]).await;
    let output = from(&GREETING, &login(USER, &token), &asked(1, 1, &ipv4(listed.address)));

    assert_eq!(edge.answered_by_socks(&output).await, refused(2));
    assert_eq!(listed.accepted(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_and_socks5_judge_an_address_alike() {
    let listed = Echo::start().await;
    let edge = DialTokenEdge::start(&[listed.address]).await;
    let (token, _) = edge.token("one", &[CLUSTER]).await;
    // An address may also come as if it were a name.
    let port = listed.address.port();
    let as_name = (listed.address.to_string(), asked(1, 3, &name(b"127.0.0.1", port)));
    let targets = targets::around(listed.address).into_iter().map(|target| {
        let request = asked_for(&target);
        (target, request)
    });
    for (target, request) in targets.chain([as_name]) {
        let header = basic(USER, &token);
        let connect =
            format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n{header}\r\n");
        let by_connect = edge.status_of(&connect).await;
        let by_socks = edge.code_by_socks(&token, &request).await;
        let expected = match by_connect {
            200 => 0,
            403 => 2,
            400 => 1,
            other => panic!("{target}: {other}"),
        };
        assert_eq!(by_socks, expected, "{target}: {by_connect} by CONNECT");
    }
    assert!(listed.accepted() >= 2, "by both ways it is reached at all");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_closed_at_once_arrives_complete_by_socks5() {
    let counting = Listener::start(count).await;
    let edge = DialTokenEdge::start(&[counting.address]).await;
    let (token, _) = edge.token("one", &[CLUSTER]).await;
    let request = asked(1, 1, &ipv4(counting.address));

    uploads_arrive_complete(UPLOADS, 3_000_000, async || edge.connected_by_socks(&token, &request).await)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socks5_connection_is_reset_when_its_token_is_revoked() {
    let listed = Echo::start().await;
    let edge = DialTokenEdge::start(&[listed.address]).await;
    let (token, id) = edge.token("lost", &[CLUSTER]).await;
    let mut running = edge.connected_by_socks(&token, &asked(1, 1, &ipv4(listed.address))).await;
    echoes(&mut running, b"hello").await;

    at(&edge.rig, &["user", "dial-token", "revoke", &id]).await;

    let end = timeout(SOON, running.read_to_end(&mut Vec::new())).await.expect("it ends");
    // Without TLS an end in good order would say that this is all.
    assert_eq!(end.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_socks5_client_is_closed() {
    let edge = DialTokenEdge::start(&[]).await;
    let mut stream = TcpStream::connect(edge.socks).await.unwrap();
    // Half a greeting.
    stream.write_all(&GREETING[..2]).await.unwrap();
    let read = timeout(SOON, stream.read_to_end(&mut Vec::new())).await.expect("it is closed");
    assert!(read.is_err() || read.is_ok_and(|bytes| bytes == 0));
}

/// They come from the same address, and so do silent ones at the listener for HTTP CONNECT.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_socks5_clients_of_one_address_do_not_shut_out_a_login() {
    let echo = Echo::start().await;
    let edge = DialTokenEdge::start(&[echo.address]).await;
    let (token, _) = edge.token("one", &[CLUSTER]).await;

    let flood = SilentFlood::start(loopback(1), edge.socks).await;
    edge.reaches_by_socks(&token, echo.address).await;
    drop(flood);

    let flood = SilentFlood::start(loopback(1), edge.proxy).await;
    let request = format!("CONNECT {} HTTP/1.1\r\n{}\r\n", echo.address, basic(USER, &token));
    assert_eq!(edge.status_of(&request).await, 200);
    drop(flood);
}

impl DialTokenEdge {
    /// Sends bytes to an address by SOCKS5, and reads their echo.
    pub(super) async fn reaches_by_socks(&self, token: &str, target: SocketAddr) {
        let mut connected = self.connected_by_socks(token, &asked(1, 1, &ipv4(target))).await;
        echoes(&mut connected, b"hello").await;
    }

    /// Is refused there, by this number.
    pub(super) async fn is_refused_by_socks(&self, token: &str, target: SocketAddr, code: u8) {
        let output = from(&GREETING, &login(USER, token), &asked(1, 1, &ipv4(target)));
        assert_eq!(self.answered_by_socks(&output).await, refused(code));
    }

    /// A connection whose greeting was answered.
    async fn chosen_by_socks(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.socks).await.unwrap();
        stream.write_all(&GREETING).await.unwrap();
        let mut answer = [0; 2];
        timeout(SOON, stream.read_exact(&mut answer)).await.expect("it is answered").unwrap();
        assert_eq!(answer, CHOSEN);
        stream
    }

    /// The complete answer to these bytes, until the other side closes.
    async fn answered_by_socks(&self, output: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.socks).await.unwrap();
        stream.write_all(output).await.unwrap();
        let mut answer = Vec::new();
        // Bytes that nobody has read make a reset of the end.
        let _ = timeout(SOON, stream.read_to_end(&mut answer)).await.expect("it is closed");
        answer
    }

    /// With which number a request is answered.
    async fn code_by_socks(&self, token: &str, request: &[u8]) -> u8 {
        let mut stream = self.chosen_by_socks().await;
        stream.write_all(&login(USER, token)).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut answer = [0; 12];
        timeout(SOON, stream.read_exact(&mut answer)).await.expect("it is answered").unwrap();
        assert_eq!((&answer[..3], &answer[4..6]), (&[1, 0, 5][..], &[0, 1][..]));
        answer[3]
    }

    /// With which status a request to the proxy is answered.
    async fn status_of(&self, request: &str) -> u16 {
        let mut stream = self.dial(&["http/1.1"]).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut line = [0; 12];
        timeout(SOON, stream.read_exact(&mut line)).await.expect("it is answered").unwrap();
        std::str::from_utf8(&line[9..]).unwrap().parse().unwrap()
    }

    async fn connected_by_socks(&self, token: &str, request: &[u8]) -> TcpStream {
        let mut stream = self.chosen_by_socks().await;
        stream.write_all(&login(USER, token)).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut answer = [0; 12];
        timeout(SOON, stream.read_exact(&mut answer)).await.expect("it is answered").unwrap();
        assert_eq!(answer[..4], [1, 0, 5, 0]);
        stream
    }
}

fn from(greeting: &[u8], login: &[u8], request: &[u8]) -> Vec<u8> {
    [greeting, login, request].concat()
}

async fn echoes(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).await.unwrap();
    let mut echoed = vec![0; bytes.len()];
    timeout(SOON, stream.read_exact(&mut echoed)).await.unwrap().unwrap();
    assert_eq!(echoed, bytes);
}
