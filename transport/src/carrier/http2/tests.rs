//! Two sides of the carrier over bytes in memory.

use std::time::Instant;

use proto::Session;
use proto::session::SILENCE_MAX;
use proto::wire::StreamOpen;
use tokio::io::{DuplexStream, duplex};

use super::*;
use crate::control::{ControlStream, Driver};
use crate::tunnel::OpenError;

#[tokio::test]
async fn a_tunnel_whose_stream_ids_run_out_asks_to_be_replaced_and_serves_what_it_has() {
    // Control and notes are 1 and 3, so this is the third exchange.
    let (server, _agent) = pair(9).await;
    let control = ControlStream::new(crate::carrier::Stream::Http2(server.control().await.unwrap()));
    let session = Session::new(Instant::now(), SILENCE_MAX);
    let (tunnel, _driver) =
        Driver::new(crate::carrier::Connection::Http2(server), control, session, Side::Server);
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(tunnel.open(&StreamOpen::default()).await.unwrap());
        assert!(!tunnel.is_draining());
    }

    let last = tunnel.open(&StreamOpen::default()).await.unwrap();

    assert!(tunnel.is_draining());
    assert!(matches!(tunnel.open(&StreamOpen::default()).await, Err(OpenError::Draining)));
    assert_eq!(tunnel.streams_open(), 3);
    drop((held, last));
}

#[tokio::test]
async fn a_stream_that_was_given_up_while_it_waited_for_its_turn_is_never_opened() {
    let (server, agent) = pair(settings::STREAM_ID_WORN).await;
    let mut held = Vec::new();
    for _ in 0..STREAMS_MAX {
        held.push(server.open().await.unwrap());
    }
    let waiting = tokio::time::timeout(Duration::from_millis(50), server.open());
    assert!(waiting.await.is_err(), "as many are open as may be");

    // Nobody takes more than may be open.
    for _ in 0..STREAMS_MAX {
        agent.accept().await.unwrap();
    }
    drop(held.pop());
    let opened = server.open().await.unwrap();

    assert_eq!(agent.accept().await.unwrap().id(), opened.id());
    assert_eq!(opened.id(), 2 * (STREAMS_MAX + 1) + 3, "no number went to the one that was given up");
}

#[tokio::test]
async fn the_last_handle_of_a_connection_closes_it() {
    let (server, agent) = pair(settings::STREAM_ID_WORN).await;
    drop(server);
    assert_eq!(agent.ended().await, TunnelEnded::ClosedByPeer(CloseCode::Stopping));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_tunnels_socket_sends_again_within_a_second_where_the_kernel_can_be_told() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tcp = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let can_be_told = sys::tcp_rto_max(&tcp).is_ok();

    socket(&tcp).unwrap();

    assert_eq!(sys::tcp_rto_max(&tcp).ok(), can_be_told.then_some(Duration::from_secs(1)));
}

/// Both sides, driven.
#[expect(clippy::disallowed_methods, reason = "a test owns its tasks")]
async fn pair(worn_at: u32) -> (Connection, Connection) {
    let (here, there) = duplex(64 * 1024);
    let address = "127.0.0.1:1".parse().unwrap();
    let serving = Connection::server_worn_at::<DuplexStream>(worn_at, here, address);
    let (server, agent) = tokio::join!(serving, Connection::agent(there, address));
    let ((server, driving), (agent, driven)) = (server.unwrap(), agent.unwrap());
    tokio::spawn(driving);
    tokio::spawn(driven);
    (server, agent)
}
