//! Two sides of the HTTP/2 carrier over bytes in memory.

mod floods;

use std::time::Instant;

use proto::Session;
use proto::session::SILENCE_MAX;
use proto::wire::StreamOpen;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf, ReadHalf, WriteHalf, duplex};

use super::*;
use crate::control::{ControlStream, Driver};
use crate::priority::Priority;
use crate::tunnel::OpenError;

/// Its open streams go on.
#[tokio::test]
async fn a_tunnel_whose_stream_ids_run_out_drains_and_asks_for_another() {
    // The control stream and the carrier's own are 1 and 3, so this is the third exchange.
    let (server, _agent) = pair(9).await;
    let control = ControlStream::new(crate::carrier::Stream::Http2(server.control().await.unwrap()));
    let session = Session::new(Instant::now(), SILENCE_MAX);
    let (tunnel, _driver) =
        Driver::new(crate::carrier::Connection::Http2(server), control, session, Side::Server);
    let mut streams = Vec::new();
    for _ in 0..2 {
        streams.push(tunnel.open(&StreamOpen::default()).await.unwrap());
        assert!(!tunnel.is_draining());
    }

    let last = tunnel.open(&StreamOpen::default()).await.unwrap();

    assert!(tunnel.is_draining());
    assert!(matches!(tunnel.open(&StreamOpen::default()).await, Err(OpenError::Draining)));
    assert_eq!(tunnel.streams_open(), 3);
    drop((streams, last));
}

#[tokio::test]
async fn a_stream_whose_opener_gave_up_while_waiting_is_never_opened() {
    let (server, agent) = pair(settings::REPLACE_AT_STREAM_ID).await;
    let mut streams = Vec::new();
    for _ in 0..STREAMS_MAX {
        streams.push(server.open().await.unwrap());
    }
    let waiting = tokio::time::timeout(Duration::from_millis(50), server.open());
    assert!(waiting.await.is_err(), "as many are open as may be");

    // The agent accepts all streams that may be open.
    for _ in 0..STREAMS_MAX {
        agent.accept().await.unwrap();
    }
    drop(streams.pop());
    let opened = server.open().await.unwrap();

    assert_eq!(agent.accept().await.unwrap().id(), opened.id());
    assert_eq!(opened.id(), 2 * (STREAMS_MAX + 1) + 3, "no number went to the one that was given up");
}

#[tokio::test]
async fn the_last_handle_of_a_connection_closes_it() {
    let (server, agent) = pair(settings::REPLACE_AT_STREAM_ID).await;
    drop(server);
    assert_eq!(agent.ended().await, TunnelEnded::ClosedByPeer(CloseCode::Stopping));
}

#[tokio::test]
async fn a_keystroke_waits_only_for_one_small_frame_of_each_bulk_stream() {
    const COPIES: usize = 30;
    let (server, agent, shutter) = shuttered().await;
    let mut shell = server.open().await.unwrap();
    let mut far_shell = agent.accept().await.unwrap();
    let mut copies = Vec::new();
    for _ in 0..COPIES {
        copies.push(server.open().await.unwrap());
    }
    shutter.shut();
    for copy in &mut copies {
        let mut taken = 0;
        while taken < settings::SEND_BYTES_MAX {
            taken += written(copy, &[0; 64 * 1024], Priority::Bulk).await;
        }
    }
    assert_eq!(written(&mut shell, b"ls\n", Priority::Light).await, 3);

    shutter.open();

    let mut typed = [0; 3];
    poll_fn(|cx| far_shell.poll_read(cx, &mut ReadBuf::new(&mut typed))).await.unwrap();
    assert_eq!(&typed, b"ls\n");
    let before = shutter.data_before(shell.id());
    // One frame that was begun when the shutter was closed, and the carrier's own frames.
    let most = (COPIES + 2) * settings::BULK_FRAME_BYTES;
    assert!(
        (settings::BULK_FRAME_BYTES..=most).contains(&before),
        "{before} bytes of bulk before a keystroke, more than {most}"
    );
}

/// A kernel before 6.15 does not support the socket option.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_tunnels_socket_retransmits_within_a_second_where_supported() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tcp = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let can_be_told = sys::tcp_rto_max(&tcp).is_ok();

    socket(&tcp).unwrap();

    assert_eq!(sys::tcp_rto_max(&tcp).ok(), can_be_told.then_some(Duration::from_secs(1)));
}

/// A server's and an agent's side, both driven.
#[expect(clippy::disallowed_methods, reason = "a test owns its tasks")]
async fn pair(replace_at: u32) -> (Http2Connection, Http2Connection) {
    let (here, there) = duplex(64 * 1024);
    let address = "127.0.0.1:1".parse().unwrap();
    let serving = Http2Connection::server_replaced_at::<DuplexStream>(replace_at, here, address);
    let (server, agent) = tokio::join!(serving, Http2Connection::agent(there, address));
    let ((server, driving), (agent, driven)) = (server.unwrap(), agent.unwrap());
    tokio::spawn(driving);
    tokio::spawn(driven);
    (server, agent)
}

/// A server's and an agent's side, both driven, with a shutter for the bytes that the server sends.
#[expect(clippy::disallowed_methods, reason = "a test owns its tasks")]
async fn shuttered() -> (Http2Connection, Http2Connection, Shutter) {
    let ((server_io, server_relay), (agent_relay, agent_io)) = (duplex(1024), duplex(64 * 1024));
    let shutter = Shutter::default();
    shutter.open();
    let (server_relay, agent_relay) = (tokio::io::split(server_relay), tokio::io::split(agent_relay));
    tokio::spawn(shutter.clone().pass(server_relay.0, agent_relay.1));
    tokio::spawn(Shutter::default().opened().pass(agent_relay.0, server_relay.1));
    let address = "127.0.0.1:1".parse().unwrap();
    let (server, agent) =
        tokio::join!(Http2Connection::server(server_io, address), Http2Connection::agent(agent_io, address));
    let ((server, driving), (agent, driven)) = (server.unwrap(), agent.unwrap());
    tokio::spawn(driving);
    tokio::spawn(driven);
    (server, agent, shutter)
}

/// A switch that lets bytes pass or keeps them back, and records the frames of HTTP/2 among them.
#[derive(Clone, Default)]
struct Shutter(Arc<(tokio::sync::watch::Sender<bool>, std::sync::Mutex<Vec<u8>>)>);

impl Shutter {
    fn opened(self) -> Self {
        self.open();
        self
    }

    fn open(&self) {
        self.0.0.send_replace(true);
    }

    fn shut(&self) {
        self.0.0.send_replace(false);
    }

    async fn pass(self, mut from: ReadHalf<DuplexStream>, mut to: WriteHalf<DuplexStream>) {
        let mut is_open = self.0.0.subscribe();
        let mut bytes = [0; 1024];
        while let Ok(read @ 1..) = from.read(&mut bytes).await {
            is_open.wait_for(|is_open| *is_open).await.unwrap();
            self.0.1.lock().unwrap().extend(&bytes[..read]);
            if to.write_all(&bytes[..read]).await.is_err() {
                return;
            }
        }
    }

    /// Payload of DATA frames of others that passed before the first of this stream.
    fn data_before(&self, stream: u32) -> usize {
        let passed = self.0.1.lock().unwrap();
        // RFC 9113, sections 3.4 and 4.1: a preface, then headers of nine bytes, each with its payload behind
        // it.
        let (mut at, mut before) = (24, 0);
        while let Some([l0, l1, l2, kind, _, id @ ..]) = passed.get(at..at + 9) {
            let length = u32::from_be_bytes([0, *l0, *l1, *l2]) as usize;
            match (kind, u32::from_be_bytes(id.try_into().unwrap())) {
                (0, id) if id == stream => return before,
                (0, _) => before += length,
                _ => {}
            }
            at += 9 + length;
        }
        panic!("nothing of stream {stream} passed");
    }
}

/// Number of bytes that the stream accepts at once.
async fn written(stream: &mut Http2Stream, bytes: &[u8], priority: Priority) -> usize {
    poll_fn(|cx| stream.poll_write(cx, bytes, priority)).await.unwrap()
}
