//! The limits that all clients of a listener share, as the server's configuration sets them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use rcgen::KeyPair;
use tests::admin::{AdminWire, remote_admin_listener};
use tests::caller::{GATEWAY, Http1Caller, SOON};
use tests::carrier::is_not_quic;
use tests::dial::{connect_from, dial_name, shake};
use tests::enroll::{self, AttestationClient, EnrollmentClaim, at, issued, named};
use tests::evil_quic::initial::{Initial, client_hello, is_retry};
use tests::evil_quic::parameters;
use tests::fake_api::Behaviour;
use tests::fake_edge::FakeEdge;
use tests::flood::{SilentFlood, loopback};
use tests::pki::Issued;
use tests::rig::{GROUP, Reply, Rig, TOKEN, ask};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout};
use tokio_rustls::client::TlsStream;
use tonic::Code;
use trust::proof::Purpose;

#[tokio::test]
async fn a_listener_takes_as_many_connections_as_are_configured() {
    let edge = FakeEdge::start_server_with("limits: { gateway: { connections: 6 } }").await;
    edge.fake.otherwise(Behaviour::json("{}"));
    let series = |name: &str| format!("tombolo_server_connections_{name}");
    assert_eq!(edge.rig.metric(edge.rig.probes(), &series("max")).await, 6.0);

    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(edge.rig.gateway()).await.expect("the system takes it"));
    }
    edge.rig.measured(&series("total{outcome=\"turned_away\"}"), |count| count >= 14.0).await;
    assert!(edge.rig.metric(edge.rig.probes(), &series("active")).await <= 6.0);

    drop(silent);
    edge.rig.measured(&series("active"), |count| count < 6.0).await;
    assert_eq!(edge.rig.ask_with_token("GET", "/clusters/edge-a/version", &[]).await.status, 200);
}

/// The server allows no handshake from an unvalidated address. It answers with a Retry packet, and an agent
/// still connects.
#[tokio::test]
async fn without_unvalidated_handshakes_an_agent_proves_its_address_first() {
    let test = "without_unvalidated_handshakes_an_agent_proves_its_address_first";
    if is_not_quic(test, "TCP shows the address by itself") {
        return;
    }
    let everybody = "limits: { agents: { unprovedHandshakes: 0 } }";
    let edge = FakeEdge::start_server_with(everybody).await;
    edge.fake.otherwise(Behaviour::json("{}"));
    assert_eq!(edge.rig.ask_with_token("GET", "/clusters/edge-a/version", &[]).await.status, 200);

    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let hello = client_hello(parameters::written(&parameters::good(b"outsider")));
    let first = Initial::new(b"a-server", b"outsider", &hello).sealed();
    socket.send_to(&first, edge.rig.dialed()).await.expect("it is sent");
    let mut answer = [0; 2048];
    let (bytes, _) = timeout(SOON, socket.recv_from(&mut answer)).await.expect("in time").expect("an answer");
    assert!(is_retry(&answer[..bytes]), "{:?}", &answer[..bytes]);
}

/// The path of a request that the server answers by itself.
const LIST: &str = "/clusters";

/// The address of a flood of 500 silent connections and 100 new ones in a second.
const FLOODED: u8 = 2;
/// An address that does nothing wrong.
const OTHER: u8 = 3;

/// At each listener another address gets in at its first attempt, and so does a client at the same address that proves who
/// it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_of_one_address_shut_out_neither_others_nor_proofs() {
    let (admins, config) = remote_admin_listener(&[("olga", "viewer")]);
    let limits =
        "limits: { source: { connections: 200, newPerSecond: 50, failedLoginsPerMinute: 100000 } }\n";
    let (rig, enrollment) = enroll::start(&format!("{config}{limits}")).await;
    let (alice, olga) = (rig.caller("alice", &[GROUP]).await, rig.admin("olga").await);
    let (first, key) = (enroll::token(&rig, "edge-a").await.0, KeyPair::generate().unwrap());
    let enrolled = AttestationClient::connect(&rig, &enrollment).await.enroll(&first, &key).await.unwrap();
    let (certificate, (instance, serial)) = (issued(&enrolled, &key), named(&enrolled));
    let tokens = [enroll::token(&rig, "edge-a").await.0, enroll::token(&rig, "edge-a").await.0];

    let flood = SilentFlood::start(loopback(FLOODED), enrollment.address).await;
    for (source, token) in [OTHER, FLOODED].into_iter().zip(&tokens) {
        let connecting = AttestationClient::connect_from(loopback(source), &rig, &enrollment, None);
        let mut client = timed("enrollment", source, connecting).await.expect("it gets in");
        client.enroll(token, &KeyPair::generate().unwrap()).await.expect("a good token");
    }
    let next = KeyPair::generate().unwrap();
    let claim =
        EnrollmentClaim { instance: &instance, serial, key: &next, signer: &key, purpose: Purpose::Renewal };
    let connecting =
        AttestationClient::connect_from(loopback(FLOODED), &rig, &enrollment, Some(&certificate));
    timed("renewal", FLOODED, connecting)
        .await
        .expect("a valid certificate")
        .renew(&claim, None)
        .await
        .expect("a renewal");
    drop(flood);

    let flood = SilentFlood::start(loopback(FLOODED), admins).await;
    for source in [OTHER, FLOODED] {
        let socket = connect_from(loopback(source), admins).await.unwrap();
        let ca = rig.server_ca();
        let shaking = shake(socket, "127.0.0.1", &ca, &["h2"], Some(&olga));
        let tls = timed("admin.tcp", source, shaking).await.expect("olga gets in");
        let mut wire = AdminWire::greet(tls).await.expect("HTTP/2");
        let code = wire.ask("/tombolo.admin.v1.Admin/ListClusters").await.expect("an answer");
        assert_eq!(code, Code::Ok, "{source}");
    }
    drop(flood);

    let flood = SilentFlood::start(loopback(FLOODED), rig.gateway()).await;
    let by_token = format!("Authorization: Bearer {TOKEN}\r\n");
    let asking = asked_from(OTHER, &rig, None, &by_token);
    assert_eq!(timed("gateway, by token", OTHER, asking).await.unwrap(), 200);
    let asking = asked_from(FLOODED, &rig, Some(&alice), "");
    assert_eq!(timed("gateway, by certificate", FLOODED, asking).await.unwrap(), 200);
    drop(flood);

    let flood = SilentFlood::start(loopback(FLOODED), rig.probes()).await;
    for source in [OTHER, FLOODED] {
        let probed = timed("probes", source, probed_from(source, rig.probes())).await.unwrap();
        assert!(probed.starts_with("HTTP/1.1 200 "), "{source}");
    }
    drop(flood);
}

/// Says how long a client took to get in while the flood went on.
async fn timed<T>(listener: &str, source: u8, connecting: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let done = connecting.await;
    let (who, took) = (if source == FLOODED { "the flooding" } else { "another" }, begun.elapsed());
    eprintln!("{listener}: {who} address got in after {} ms", took.as_millis());
    done
}

/// Neither by connections that ask, nor by silent ones, with rights or without.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_callers_certificate_cannot_take_all_connections_of_the_gateway() {
    let rig = Rig::start_with(
        "limits: { gateway: { connections: 200 }, caller: { connections: 20 }, \
         source: { connections: 100, newPerSecond: 10000, failedLoginsPerMinute: 100000 } }",
    )
    .await;
    for (user, groups) in [("alice", &[GROUP][..]), ("mallory", &[])] {
        let greedy = rig.caller(user, groups).await;
        let mut open = Vec::new();
        for _ in 0..20 {
            open.push(dial(&rig, &greedy).await.expect("within the limit"));
        }
        rig.measured("tombolo_server_limit_used{limit=\"caller_connections\"}", |used| used >= 20.0).await;

        let beyond = request(&rig, &greedy).await.expect("an answer that says why");

        assert_eq!((beyond.status, beyond.cause().as_str()), (429, "CallerBusy"), "{beyond:?}");
        for _ in 0..300 {
            // Those beyond are closed, some of them at once.
            if let Ok(stream) = dial(&rig, &greedy).await {
                open.push(stream);
            }
        }
        let modest = rig.caller("ben", &[GROUP]).await;
        assert_eq!(request(&rig, &modest).await.expect("ben gets in").status, 200, "beside {user}");
        assert_eq!(rig.ask_with_token("GET", LIST, &[]).await.status, 200, "beside {user}");
        let mut last = open.pop().expect("some");
        let end =
            timeout(SOON, last.read(&mut [0])).await.expect("a silent connection beyond the limit is closed");
        assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    }
}

/// On a connection that was open before, and on a new one. A new one that asks nothing is closed, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_certificates_connection_ends_with_its_first_answer() {
    let edge = FakeEdge::start_server_with("").await;
    edge.fake.otherwise(Behaviour::json("{}"));
    let alice = edge.rig.caller("alice", &[GROUP]).await;
    let path = "/clusters/edge-a/version";
    let mut before = Http1Caller::dial_name(&edge.rig, GATEWAY, Some(&alice)).await;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {GATEWAY}\r\n\r\n");
    before.write(&request).await;
    assert!(before.read_head().await.starts_with("HTTP/1.1 200 "));
    before.read_exactly(2).await;
    at(&edge.rig, &["user", "revoke", "--name", "alice"]).await;

    let mut after = Http1Caller::dial_name(&edge.rig, GATEWAY, Some(&alice)).await;
    for connection in [&mut before, &mut after] {
        connection.write(&request).await;
        assert!(connection.read_head().await.starts_with("HTTP/1.1 401 "));
        connection.read_to_end().await.1.expect("it ends");
    }
    let mut silent = dial(&edge.rig, &alice).await.expect("its handshake is good");
    let end = timeout(SOON, silent.read(&mut [0])).await.expect("it is closed");
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
}

async fn dial(rig: &Rig, shown: &Issued) -> io::Result<TlsStream<TcpStream>> {
    dial_name(rig.gateway(), GATEWAY, &rig.server_ca(), &["http/1.1"], Some(shown)).await
}

async fn request(rig: &Rig, shown: &Issued) -> io::Result<Reply> {
    ask(rig.gateway(), &rig.server_ca(), Some(shown), "GET", LIST, &[]).await
}

/// The status of an answer to a request from this address.
async fn asked_from(source: u8, rig: &Rig, shown: Option<&Issued>, lines: &str) -> io::Result<u16> {
    let socket = connect_from(loopback(source), rig.gateway()).await?;
    let mut tls = shake(socket, GATEWAY, &rig.server_ca(), &["http/1.1"], shown).await?;
    let request = format!("GET {LIST} HTTP/1.1\r\nHost: {GATEWAY}\r\nConnection: close\r\n{lines}\r\n");
    tls.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    timeout(SOON, tls.read_to_end(&mut answer)).await.expect("an answer")?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    Ok(answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status"))
}

async fn probed_from(source: u8, probes: SocketAddr) -> io::Result<String> {
    let mut stream = connect_from(loopback(source), probes).await?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    timeout(SOON, stream.read_to_string(&mut answer)).await.expect("an answer")?;
    Ok(answer)
}
