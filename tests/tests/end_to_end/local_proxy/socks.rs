//! The same proxy over SOCKS5.

use std::io::ErrorKind;

use tests::caller::SOON;
use tests::echo::Echo;
use tests::enroll::at;
use tests::flood::{SilentFlood, loopback};
use tests::listener::{
    BROKE, GREETING_BYTES, Listener, break_off, count, read_all, speak, uploads_arrive_complete,
};
use tests::socks5::{
    ANSWER_BYTES, BIND, CHOSEN, CONNECT, GREETING, UDP_ASSOCIATE, asked, asked_for, ipv4, login, name,
    refused,
};
use tests::targets;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::{LocalProxyEdge, Url, advertise};

const USER: &str = "u";

/// Uploads that are closed at once.
const UPLOADS: usize = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_secret_the_local_proxy_refuses_socks5_too() {
    let (listed, canary) = (Echo::start().await, Echo::start().await);
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let edge = LocalProxyEdge::start_with(&[listed.address, nobody], &["--socks5"]).await;
    // What the caller may dial in another cluster, and what nobody's agent has.
    at(&edge.rig, &["cluster", "create", "edge-b"]).await;
    advertise(&edge.rig, "edge-b", &[canary.address.to_string()]).await;
    let Url { scheme, secret, .. } = edge.url();
    assert_eq!(scheme, "socks5");
    let right = login(USER, &secret);
    let to = |address| asked(CONNECT, 1, &ipv4(address));
    let wrong = "A".repeat(secret.len());

    for (output, answered) in [
        // Without user and password nobody is let in.
        (vec![5, 1, 0], vec![5, 0xff]),
        (vec![5, 0], vec![5, 0xff]),
        (from(&login(USER, &wrong), &to(listed.address)), vec![5, 2, 1, 1]),
        (from(&login("v", &secret), &to(listed.address)), vec![5, 2, 1, 1]),
        (from(&login(USER, &format!("{secret}A")), &to(listed.address)), vec![5, 2, 1, 1]),
        (from(&login("", ""), &to(listed.address)), vec![5, 2, 1, 1]),
        // Another cluster's, and what nobody lets this one have.
        (from(&right, &to(canary.address)), refused(2)),
        (from(&right, &asked(CONNECT, 1, &[169, 254, 169, 254, 0, 80])), refused(2)),
        (from(&right, &asked(CONNECT, 3, &name(b"metadata.google.internal", 80))), refused(2)),
        (from(&right, &asked(CONNECT, 3, &name(b"a b", 80))), refused(1)),
        (from(&right, &asked(CONNECT, 3, &name(b"", 80))), refused(1)),
        (from(&right, &to(nobody)), refused(4)),
        (from(&right, &asked(BIND, 1, &ipv4(listed.address))), refused(7)),
        (from(&right, &asked(UDP_ASSOCIATE, 1, &ipv4(listed.address))), refused(7)),
        (from(&right, &asked(CONNECT, 2, &ipv4(listed.address))), refused(8)),
    ] {
        assert_eq!(edge.answered_by_socks(&output).await, answered, "{output:?}");
    }
    // What is neither is no request of HTTP.
    let socks4 = edge.answered_by_socks(b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00").await;
    assert!(socks4.is_empty() || socks4.starts_with(b"HTTP/1.1 400 "), "{socks4:?}");
    assert_eq!((listed.accepted(), canary.accepted()), (0, 0));
    // SOCKS5 has no words, so that the proxy says them itself.
    edge.rig.logged(super::LOG, 0, "may advertise").await;

    for request in [to(listed.address), asked(CONNECT, 3, &name(b"127.0.0.1", listed.address.port()))] {
        let mut connected = edge.connected_by_socks(&request).await;
        connected.write_all(b"hello").await.unwrap();
        connected.shutdown().await.unwrap();
        // Each direction ends on its own.
        assert_eq!(rest(&mut connected).await.unwrap(), b"hello");
    }
    assert_eq!((listed.accepted(), canary.accepted()), (2, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_protocols_of_the_local_proxy_judge_an_address_alike() {
    let listed = Echo::start().await;
    let edge = LocalProxyEdge::start_with(&[listed.address], &[]).await;
    let (address, secret) = edge.listener();

    // Each is a connection of its own to the gateway, where all of them are tried by its own entry points.
    let some = targets::around(listed.address).into_iter().step_by(8);
    for target in some.chain([listed.address.to_string()]) {
        let request = format!(
            "CONNECT {target} HTTP/1.1\r\nHost: a\r\nProxy-Authorization: Basic {secret}\r\nConnection: close\r\n\r\n"
        );
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut line = [0; 12];
        timeout(SOON, stream.read_exact(&mut line)).await.expect("it is answered").unwrap();
        let expected = match &line[9..] {
            b"200" => 0,
            b"400" => 1,
            b"403" => 2,
            other => panic!("{target}: {}", String::from_utf8_lossy(other)),
        };
        assert_eq!(edge.code_by_socks(&asked_for(&target)).await, expected, "{target}");
    }
    assert!(listed.accepted() >= 2, "by both ways it is reached at all");
}

/// This holds for both directions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_socks5_no_targets_byte_precedes_the_reply_and_none_is_lost() {
    let (speaking, counting) = (Listener::start(speak).await, Listener::start(count).await);
    let edge = LocalProxyEdge::start_with(&[speaking.address, counting.address], &["--socks5"]).await;

    // Bytes after a request wait for its target.
    let mut caller = edge.chosen_by_socks().await;
    let request = asked(CONNECT, 1, &ipv4(speaking.address));
    let Url { secret, .. } = edge.url();
    caller.write_all(&[login(USER, &secret), request, b"and you".to_vec()].concat()).await.unwrap();
    let came = rest(&mut caller).await.unwrap();
    assert_eq!(came[..ANSWER_BYTES], [1, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    let greeting = &came[ANSWER_BYTES..];
    assert!(greeting.len() == GREETING_BYTES && greeting.iter().all(|byte| *byte == b'g'));
    // Its other direction is still open.
    caller.write_all(b", too").await.unwrap();
    caller.shutdown().await.unwrap();
    assert_eq!(speaking.received().await, b"and you, too");

    let request = asked(CONNECT, 1, &ipv4(counting.address));
    uploads_arrive_complete(UPLOADS, 3_000_000, async || edge.connected_by_socks(&request).await).await;
}

/// So is the end of what the proxy's own end cuts off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_break_behind_the_local_proxy_is_a_reset() {
    let (breaking, reading) = (Listener::start(break_off).await, Listener::start(read_all).await);
    let mut edge = LocalProxyEdge::start_with(&[breaking.address, reading.address], &["--socks5"]).await;

    let mut caller = edge.connected_by_socks(&asked(CONNECT, 1, &ipv4(breaking.address))).await;
    caller.write_all(b"x").await.unwrap();
    assert_eq!(rest(&mut caller).await.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));

    let caller = edge.connected_by_socks(&asked(CONNECT, 1, &ipv4(reading.address))).await;
    caller.set_zero_linger().unwrap();
    drop(caller);
    assert_eq!(reading.received().await, BROKE, "half an upload looked whole");

    let mut caller = edge.connected_by_socks(&asked(CONNECT, 1, &ipv4(reading.address))).await;
    let ended = tests::rig::Rig::ends_with(&mut edge.proxy, rustix::process::Signal::TERM).await;
    assert_eq!(ended, Some(0));
    assert_eq!(rest(&mut caller).await.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
    assert_eq!(reading.received().await, BROKE, "half an upload looked whole");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_clients_of_the_local_proxy_do_not_shut_out_a_password() {
    let edge = LocalProxyEdge::start().await;
    let Url { address, secret, .. } = edge.url();
    let _flood = SilentFlood::start(loopback(1), address).await;

    let mut client = edge.chosen_by_socks().await;
    client.write_all(&login(USER, &secret)).await.unwrap();

    let mut answer = [0; 2];
    timeout(SOON, client.read_exact(&mut answer)).await.expect("it is answered").unwrap();
    assert_eq!(answer, [1, 0]);
}

impl LocalProxyEdge {
    /// A connection whose greeting was answered.
    async fn chosen_by_socks(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.url().address).await.unwrap();
        stream.write_all(&GREETING).await.unwrap();
        let mut answer = [0; CHOSEN.len()];
        timeout(SOON, stream.read_exact(&mut answer)).await.expect("it is answered").unwrap();
        assert_eq!(answer, CHOSEN);
        stream
    }

    /// The complete answer to these bytes, until the other side closes.
    pub(super) async fn answered_by_socks(&self, output: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.url().address).await.unwrap();
        stream.write_all(output).await.unwrap();
        let mut answer = Vec::new();
        // Bytes that nobody has read make a reset of the end.
        let _ = timeout(SOON, stream.read_to_end(&mut answer)).await.expect("it is closed");
        answer
    }

    /// With which number a request is answered.
    async fn code_by_socks(&self, request: &[u8]) -> u8 {
        self.asked_by_socks(request).await.1
    }

    async fn connected_by_socks(&self, request: &[u8]) -> TcpStream {
        let (stream, code) = self.asked_by_socks(request).await;
        assert_eq!(code, 0);
        stream
    }

    async fn asked_by_socks(&self, request: &[u8]) -> (TcpStream, u8) {
        let mut stream = self.chosen_by_socks().await;
        stream.write_all(&login(USER, &self.url().secret)).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut answer = [0; ANSWER_BYTES];
        timeout(SOON, stream.read_exact(&mut answer)).await.expect("it is answered").unwrap();
        assert_eq!((&answer[..3], &answer[4..6]), (&[1, 0, 5][..], &[0, 1][..]));
        (stream, answer[3])
    }
}

fn from(login: &[u8], request: &[u8]) -> Vec<u8> {
    [&GREETING, login, request].concat()
}

/// Reads all remaining bytes of the stream.
async fn rest(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut rest = Vec::new();
    timeout(SOON, stream.read_to_end(&mut rest)).await.expect("it ends")?;
    Ok(rest)
}
