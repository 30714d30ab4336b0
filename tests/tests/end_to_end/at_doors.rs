//! What all together may take of a door is what the server's configuration says.

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
async fn a_door_takes_as_many_connections_as_are_configured_and_not_one_more() {
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

#[tokio::test]
async fn where_nobody_may_be_unproved_an_agent_shows_its_address_first_and_comes_in() {
    let test = "where_nobody_may_be_unproved_an_agent_shows_its_address_first_and_comes_in";
    if is_not_quic(test, "TCP shows the address by itself") {
        return;
    }
    let everybody = "limits: { agents: { unprovedHandshakes: 0 } }";
    let edge = FakeEdge::start_server_with(everybody).await;
    edge.fake.otherwise(Behaviour::json("{}"));
    assert_eq!(edge.rig.ask_with_token("GET", "/clusters/edge-a/version", &[]).await.status, 200);

    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let hello = client_hello(parameters::written(&parameters::good(b"stranger")));
    let first = Initial::new(b"a-server", b"stranger", &hello).sealed();
    socket.send_to(&first, edge.rig.dialed()).await.expect("it is sent");
    let mut answer = [0; 2048];
    let (bytes, _) = timeout(SOON, socket.recv_from(&mut answer)).await.expect("in time").expect("an answer");
    assert!(is_retry(&answer[..bytes]), "{:?}", &answer[..bytes]);
}
