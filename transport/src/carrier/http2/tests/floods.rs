//! Agents that flood a tunnel over HTTP/2: other tasks run meanwhile, and the tunnel ends.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::BytesMut;
use h2::server::SendResponse;
use http::Response;
use proto::frame;
use proto::session::{FRAMES_BURST_MAX, ProtocolViolation};
use proto::wire::{CarrierNote, carrier_note::Note};
use tokio::time::timeout;

use super::*;

/// No event of these tests is later than this.
const SOON: Duration = Duration::from_secs(60);

/// Units of a task's budget in tokio, each of which is a frame at most.
const FRAMES_PER_TURN: usize = 128;

#[tokio::test]
async fn a_flood_of_carrier_frames_ends_its_tunnel_with_a_reason() {
    let floods: [(&str, Note, ProtocolViolation); 3] = [
        ("pings", Note::Ping(7), ProtocolViolation::TooManyFrames),
        ("answers to no ping", Note::Pong(7), ProtocolViolation::TooManyFrames),
        (
            "acknowledgements of streams that are open",
            Note::Taken(5),
            ProtocolViolation::FalseAcknowledgement,
        ),
    ];
    for (name, note, violation) in floods {
        let (server, mut agent, turns) = flooded().await;

        agent.send(&encoded(&note, FRAMES_BURST_MAX as usize + 1));

        let ended = timeout(SOON, server.ended()).await.expect(name);
        assert_eq!(ended, TunnelEnded::Violation(violation.clone()), "{name}");
        assert_eq!(agent.told().await, Some((CloseCode::Violation, violation.to_string())), "{name}");
        drop(turns);
    }
}

#[tokio::test]
async fn frames_of_no_known_kind_end_their_tunnel_too() {
    let (server, mut agent, _) = flooded().await;

    // A frame of no bytes is the shortest.
    agent.send(&vec![0; FRAMES_BURST_MAX as usize + 1]);

    let ended = timeout(SOON, server.ended()).await.unwrap();
    assert_eq!(ended, TunnelEnded::Violation(ProtocolViolation::TooManyFrames));
}

/// The budget of a task is all that it handles before it lets others run.
#[tokio::test]
async fn other_tasks_run_while_a_flood_of_carrier_frames_is_read() {
    let (server, mut agent, turns) = flooded().await;
    let before = turns.load(Ordering::Relaxed);

    agent.send(&encoded(&Note::Ping(7), FRAMES_BURST_MAX as usize));

    let pongs = timeout(SOON, agent.pongs(FRAMES_BURST_MAX as usize)).await;
    assert!(pongs.is_ok(), "as many as the limit are answered");
    assert_eq!(server.end(), None);
    let turns = turns.load(Ordering::Relaxed) - before;
    assert!(turns > FRAMES_BURST_MAX as usize / FRAMES_PER_TURN, "{turns} turns");
}

#[tokio::test]
async fn a_flood_of_informational_heads_ends_its_tunnel() {
    let (server, mut agent, _) = flooded().await;
    let _stream = server.open().await.unwrap();
    let (_, mut respond) = agent.next_stream().await;

    for _ in 0..=FRAMES_BURST_MAX {
        let mut head = Response::new(());
        *head.status_mut() = http::StatusCode::CONTINUE;
        respond.send_informational(head).unwrap();
    }

    let ended = timeout(SOON, server.ended()).await.unwrap();
    assert_eq!(ended, TunnelEnded::Violation(ProtocolViolation::TooManyFrames));
}

/// Ten thousand exchanges need as many heads and acknowledgements, in whatever time.
#[tokio::test]
async fn frames_that_streams_need_are_not_limited() {
    let (server, agent) = pair(settings::REPLACE_AT_STREAM_ID).await;
    for _ in 0..3 * FRAMES_BURST_MAX {
        let mut there = server.open().await.unwrap();
        let mut here = agent.accept().await.unwrap();
        there.finish().unwrap();
        here.finish().unwrap();
        let (read, heard) = (there.stopped(), here.stopped());
        timeout(SOON, async { tokio::join!(read, heard) }).await.unwrap().0.unwrap();
    }
    assert_eq!((server.end(), agent.end()), (None, None));
}

/// A server's side, an agent that is a plain HTTP/2 server, and the number of turns of the server's driver.
#[expect(clippy::disallowed_methods, reason = "a test owns its tasks")]
async fn flooded() -> (Http2Connection, FloodingAgent, Arc<AtomicUsize>) {
    let (here, there) = duplex(1024 * 1024);
    let address = "127.0.0.1:1".parse().unwrap();
    let shaking = h2::server::Builder::new()
        .max_concurrent_streams(STREAMS_MAX + 2)
        .max_send_buffer_size(1024 * 1024)
        // Each answer is a small frame of its own.
        .data_frame_budget(settings::SMALL_FRAMES_BYTES_MAX)
        .handshake::<_, Bytes>(there);
    let (server, agent) = tokio::join!(Http2Connection::server(here, address), shaking);
    let ((server, driver), mut connection) = (server.unwrap(), agent.unwrap());
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&turns);
    tokio::spawn(async move {
        let mut driver = std::pin::pin!(driver);
        poll_fn(|cx| {
            counted.fetch_add(1, Ordering::Relaxed);
            driver.as_mut().poll(cx)
        })
        .await;
    });
    let (accepted, streams) = mpsc::channel(STREAMS_MAX as usize);
    tokio::spawn(async move {
        while let Some(Ok(stream)) = connection.accept().await {
            let _ = accepted.try_send(stream);
        }
    });
    let mut agent = FloodingAgent { streams, notes: None, received: BytesMut::new() };
    // The control stream is the first. Dropped, it is reset, which nobody reads here.
    let _ = agent.next_stream().await;
    let (body, mut respond) = agent.next_stream().await;
    agent.notes = Some((respond.send_response(Response::new(()), false).unwrap(), body));
    (server, agent, turns)
}

type Accepted = (http::Request<h2::RecvStream>, SendResponse<Bytes>);

struct FloodingAgent {
    streams: mpsc::Receiver<Accepted>,
    notes: Option<(h2::SendStream<Bytes>, h2::RecvStream)>,
    received: BytesMut,
}

impl FloodingAgent {
    async fn next_stream(&mut self) -> (h2::RecvStream, SendResponse<Bytes>) {
        let (request, respond) = timeout(SOON, self.streams.recv()).await.unwrap().unwrap();
        (request.into_body(), respond)
    }

    /// Writes to the stream of the carrier's own frames.
    fn send(&mut self, bytes: &[u8]) {
        let (notes, _) = self.notes.as_mut().unwrap();
        notes.send_data(Bytes::copy_from_slice(bytes), false).unwrap();
    }

    /// The next note of the server.
    async fn next_note(&mut self) -> Option<Note> {
        loop {
            if let Some(note) = frame::decode::<CarrierNote>(&mut self.received).unwrap() {
                return note.note;
            }
            let (_, body) = self.notes.as_mut().unwrap();
            let bytes = timeout(SOON, body.data()).await.unwrap()?.ok()?;
            let _ = body.flow_control().release_capacity(bytes.len());
            self.received.extend_from_slice(&bytes);
        }
    }

    async fn pongs(&mut self, count: usize) {
        let mut pongs = 0;
        while pongs < count {
            pongs += usize::from(matches!(self.next_note().await, Some(Note::Pong(_))));
        }
    }

    /// The reason that the server gave for the end.
    async fn told(&mut self) -> Option<(CloseCode, String)> {
        loop {
            if let Note::Closing(closing) = self.next_note().await? {
                return Some((CloseCode::from_number(closing.code), closing.reason));
            }
        }
    }
}

fn encoded(note: &Note, count: usize) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    for _ in 0..count {
        frame::encode(&CarrierNote { note: Some(note.clone()) }, &mut bytes).unwrap();
    }
    bytes.to_vec()
}
