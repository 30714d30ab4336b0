//! Tests that light streams send before bulk, and that bulk never blocks them.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use transport::{Carrier, TunnelStream};

use crate::pair::{Authority, Pair, open, soon};
use crate::valve::Valve;

/// More than a stream may send before it is bulk, and more than a packet for each turn of it.
static CHUNK: [u8; 200_000] = [0; 200_000];

/// Bytes that a side keeps of all streams, until they are acknowledged.
const SEND_WINDOW_BYTES: usize = 16 * 1024 * 1024;
/// More than the first frames of these streams, which may be acknowledged early or late.
const FRAMES_BYTES: usize = 8 * 1024;

#[tokio::test]
async fn a_keystroke_leaves_before_earlier_bulk_of_sixty_streams() {
    let (pair, valve) = behind_valve().await;
    let (mut shell, mut far_shell) = stream(&pair).await;
    let mut copies = streams(&pair, 60).await;
    valve.shut();
    for (copy, _) in &mut copies {
        assert_eq!(written_at_once(copy, &CHUNK), CHUNK.len());
    }
    // Waits until the path is full, with nothing acknowledged.
    soon(async {
        while valve.queued() < 10 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    shell.write_all(b"ls\n").await.unwrap();

    // Each of the sixty has its turn within sixty packets; some of these twenty are the carrier's own.
    valve.let_pass(20);

    let mut typed = [0; 3];
    soon(far_shell.read_exact(&mut typed)).await.unwrap();
    assert_eq!(&typed, b"ls\n");
}

#[tokio::test]
async fn a_keystroke_is_taken_though_bulk_has_filled_all_that_a_tunnel_holds() {
    let (pair, valve) = behind_valve().await;
    let (mut shell, mut far_shell) = stream(&pair).await;
    let mut copies = streams(&pair, 20).await;
    valve.shut();
    let mut filled = 0;
    for (copy, _) in &mut copies {
        filled += (0..).map(|_| written_at_once(copy, &CHUNK)).take_while(|&bytes| bytes > 0).sum::<usize>();
    }
    assert!((SEND_WINDOW_BYTES - FRAMES_BYTES..=SEND_WINDOW_BYTES).contains(&filled), "{filled}");

    // More room than the first frames can have left.
    let listed = [7; 4 * FRAMES_BYTES];
    assert_eq!(written_at_once(&mut shell, &listed), listed.len());

    // The reserve makes no room for more bulk, except for the room of those frames.
    let more: usize = copies.iter_mut().map(|(copy, _)| written_at_once(copy, &CHUNK)).sum();
    assert!(more <= FRAMES_BYTES, "{more}");
    valve.let_pass(usize::MAX / 2);
    let mut arrived = [0; 4 * FRAMES_BYTES];
    soon(far_shell.read_exact(&mut arrived)).await.unwrap();
    assert!(arrived == listed);
}

async fn behind_valve() -> (Pair, Valve) {
    let authority = Authority::new();
    let server = authority.server(Carrier::Quic).await;
    let valve = Valve::before(server.address()).await;
    (authority.greet_at(valve.address(), server).await, valve)
}

/// Both ends of a stream.
async fn stream(pair: &Pair) -> (TunnelStream, TunnelStream) {
    let there = pair.server.open(&open()).await.unwrap();
    let mut here = pair.accepted().await;
    here.read_open().await.unwrap();
    (there, here)
}

async fn streams(pair: &Pair, count: usize) -> Vec<(TunnelStream, TunnelStream)> {
    let mut streams = Vec::new();
    for _ in 0..count {
        streams.push(stream(pair).await);
    }
    streams
}

/// Number of bytes that the carrier takes without waiting.
fn written_at_once(stream: &mut TunnelStream, bytes: &[u8]) -> usize {
    let mut cx = Context::from_waker(Waker::noop());
    match Pin::new(stream).poll_write(&mut cx, bytes) {
        Poll::Ready(written) => written.unwrap(),
        Poll::Pending => 0,
    }
}
