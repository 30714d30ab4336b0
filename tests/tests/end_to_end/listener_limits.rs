//! The limits that all clients of a listener share, as the server's configuration sets them.

use std::net::Ipv4Addr;

use tests::caller::SOON;
use tests::carrier::is_not_quic;
use tests::evil_quic::initial::{Initial, client_hello, is_retry};
use tests::evil_quic::parameters;
use tests::fake_api::Behaviour;
use tests::fake_edge::FakeEdge;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

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
