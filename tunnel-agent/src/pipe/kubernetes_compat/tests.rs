//! An edge is drained before a caller's bytes are forwarded, and pings to an edge that is alive are answered
//! here.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, duplex, repeat, sink,
};
use tokio::task::JoinSet;
use tokio::time::{advance, sleep, sleep_until, timeout};
use tokio_util::io::{InspectReader, InspectWriter};

use super::drain_read::{DRAIN_MAX, STEP_EVERY, WAITING_BYTES_MAX};
use super::*;
use crate::pipe::Pipe;
use crate::pipe::tests::{CALLER_BYTES, Ends, SENT_BYTES, SOON, ends, joined, sent};

/// An edge that sends without end, and the numbers of bytes that it has sent and that were forwarded to it.
fn flood() -> (impl AsyncRead + AsyncWrite + Unpin + Send, [Arc<AtomicUsize>; 2]) {
    let counts = [0; 2].map(|count| Arc::new(AtomicUsize::new(count)));
    let [sent, forwarded] = counts.clone().map(|count| {
        move |bytes: &[u8]| {
            count.fetch_add(bytes.len(), Ordering::Relaxed);
        }
    });
    (tokio::io::join(InspectReader::new(repeat(0), sent), InspectWriter::new(sink(), forwarded)), counts)
}

/// The caller sends something after it was silent for so long that the edge is drained first.
async fn send_after_silence(caller: &mut DuplexStream) {
    sleep(CALLER_SILENCE).await;
    caller.write_all(b"go on").await.unwrap();
}

/// Claims that the caller's bytes are forwarded to the edge.
async fn is_forwarded(edge: &mut (impl AsyncRead + Unpin), caller: &mut DuplexStream) {
    send_after_silence(caller).await;
    let mut received = [0; 5];
    timeout(SOON, edge.read_exact(&mut received)).await.unwrap().unwrap();
    assert_eq!(&received, b"go on");
}

#[tokio::test]
async fn bytes_sent_before_a_close_arrive_though_the_caller_sends_on() {
    let Ends { mut caller, mut edge, mut pipe } = ends(1).await;
    edge.write_all(&sent()).await.unwrap();
    drop(edge);
    send_after_silence(&mut caller).await;

    let mut received = Vec::new();
    timeout(SOON, async {
        // Byte by byte, and the caller sends also after the end.
        while caller.read_buf(&mut received).await.unwrap() > 0 {}
        caller.write_all(b"ping").await.unwrap();
        drop(caller);
        pipe.join_next().await.unwrap().unwrap().unwrap();
    })
    .await
    .unwrap();
    assert!(received == sent(), "{} bytes", received.len());
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a test owns its tasks")]
async fn an_edge_that_floods_gets_the_callers_bytes_though_nobody_reads() {
    let Ends { mut caller, edge, pipe: _pipe } = ends(1).await;
    let (mut reading, mut writing) = edge.into_split();
    let mut flood = JoinSet::new();
    flood.spawn(async move { while writing.write_all(&sent()).await.is_ok() {} });
    is_forwarded(&mut reading, &mut caller).await;
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "a test owns its tasks")]
async fn a_flood_is_drained_at_an_even_pace_and_then_forwarded_to() {
    let (mut caller, mut stream) = duplex(CALLER_BYTES);
    let (mut flood, [sent, forwarded]) = flood();
    let mut pipe = JoinSet::new();
    pipe.spawn(async move { joined(None, 1, &mut stream, &mut flood).await });
    sleep(CALLER_SILENCE).await;
    let before = sent.load(Ordering::Relaxed);
    caller.write_all(b"go on").await.unwrap();

    sleep(DRAIN_MAX / 2).await;
    let half = sent.load(Ordering::Relaxed) - before;
    // In steps, of which the last one may still be to come.
    let step = WAITING_BYTES_MAX * STEP_EVERY.as_millis() as usize / DRAIN_MAX.as_millis() as usize;
    let even = WAITING_BYTES_MAX / 2 - 2 * step..=WAITING_BYTES_MAX / 2 + BUFFER_BYTES;
    assert!(even.contains(&half), "{half} bytes, not {even:?}");
    assert_eq!(forwarded.load(Ordering::Relaxed), 0, "the edge is drained first");

    sleep(DRAIN_MAX).await;
    assert_eq!(forwarded.load(Ordering::Relaxed), b"go on".len());
    let all = sent.load(Ordering::Relaxed) - before;
    assert!(all <= WAITING_BYTES_MAX + BUFFER_BYTES, "{all} bytes");
}

/// Bytes that a flood has sent by each of these times after the pipe began, to a caller that reads nothing.
#[expect(clippy::disallowed_methods, reason = "a test owns its tasks")]
async fn sent_by<const N: usize>(
    protocol: Option<UpgradeProtocol>,
    slots: usize,
    times: [Duration; N],
) -> [usize; N] {
    let (_caller, mut stream) = duplex(CALLER_BYTES);
    let (mut flood, [sent, forwarded]) = flood();
    let mut pipe = JoinSet::new();
    let began = Instant::now();
    pipe.spawn(async move { joined(protocol, slots, &mut stream, &mut flood).await });
    let mut all = [0; N];
    for (all, at) in all.iter_mut().zip(times) {
        sleep_until(began + at).await;
        *all = sent.load(Ordering::Relaxed);
    }
    assert_eq!(forwarded.load(Ordering::Relaxed), 0, "nothing is forwarded");
    all
}

/// As much as may wait is read then, and at no other time.
#[tokio::test(start_paused = true)]
async fn the_edge_is_read_ahead_at_an_even_pace_before_a_translator_pings() {
    let times = [100, 3450, 4250, 5010, 8000].map(Duration::from_millis);
    let [usual, before, half, pinged, later] = sent_by(Some(UpgradeProtocol::WebSocket), 1, times).await;
    assert_eq!(before, usual);
    let even = WAITING_BYTES_MAX * 49 / 100..=WAITING_BYTES_MAX * 51 / 100;
    assert!(even.contains(&(half - usual)), "{half} bytes");
    assert!(pinged >= WAITING_BYTES_MAX, "{pinged} bytes");
    assert_eq!(later, pinged);
    assert!(later <= WAITING_BYTES_MAX + BUFFER_BYTES + usual, "{later} bytes");
}

#[tokio::test(start_paused = true)]
async fn without_a_translator_or_a_free_slot_nothing_is_read_ahead() {
    let times = [100, 5010].map(Duration::from_millis);
    for (protocol, slots) in
        [(Some(UpgradeProtocol::Spdy31), 1), (None, 1), (Some(UpgradeProtocol::WebSocket), 0)]
    {
        let [usual, pinged] = sent_by(protocol, slots, times).await;
        assert_eq!(pinged, usual, "{protocol:?}, {slots} slots");
    }
}

/// A caller that reads everything at once, and the sender of its bytes.
fn fast_caller() -> (impl AsyncRead + AsyncWrite + Unpin, DuplexStream) {
    let (sender, bytes) = duplex(CALLER_BYTES);
    (tokio::io::join(bytes, sink()), sender)
}

/// The caller takes everything at once, so nothing waits here.
#[tokio::test(start_paused = true)]
async fn an_edge_that_did_not_pause_is_drained_for_a_fast_caller_too() {
    let (mut flood, [_, forwarded]) = flood();
    let (mut caller, mut sender) = fast_caller();
    let slots = Semaphore::new(1);
    let mut pipe = Pipe::new(KubernetesCompat::with_slots(&slots, None));
    let mut forwarded_after = async |pause| {
        advance(pause).await;
        // Twice, the second time without a budget: an edge that sends nothing then has not paused.
        let polled =
            poll_fn(|cx| Poll::Ready([(); 2].map(|()| pipe.poll(cx, &mut caller, &mut flood)))).await;
        assert!(polled.iter().all(Poll::is_pending));
        forwarded.load(Ordering::Relaxed)
    };
    assert_eq!(forwarded_after(Duration::ZERO).await, 0, "nothing is forwarded");
    sender.write_all(b"go on").await.unwrap();

    assert_eq!(forwarded_after(CALLER_SILENCE).await, 0);
    assert_eq!(slots.available_permits(), 0);
    assert_eq!(forwarded_after(DRAIN_MAX - STEP_EVERY).await, 0);
    assert_eq!(slots.available_permits(), 0, "more may still have to wait");
    assert_eq!(forwarded_after(STEP_EVERY).await, b"go on".len());
    forwarded_after(Duration::ZERO).await;
    assert_eq!(slots.available_permits(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_edge_that_has_paused_is_forwarded_to_at_once() {
    let (mut caller, mut sender) = fast_caller();
    let (mut local, mut edge) = duplex(UNPAUSED_BYTES);
    let slots = Semaphore::new(1);
    let mut pipe = Pipe::new(KubernetesCompat::with_slots(&slots, None));
    let mut poll = async || poll_fn(|cx| Poll::Ready(pipe.poll(cx, &mut caller, &mut local))).await;
    edge.write_all(&sent()[..UNPAUSED_BYTES]).await.unwrap();
    advance(CALLER_SILENCE).await;
    assert!(poll().await.is_pending());
    sender.write_all(b"go on").await.unwrap();
    edge.write_all(b"some more").await.unwrap();
    assert!(poll().await.is_pending());

    let mut received = [0; 5];
    edge.read_exact(&mut received).now_or_never().expect("it is there").unwrap();
    assert_eq!(&received, b"go on");
}

#[tokio::test]
async fn a_pause_ends_the_draining_though_nobody_reads() {
    let Ends { mut caller, mut edge, pipe: _pipe } = ends(1).await;
    edge.write_all(&sent()).await.unwrap();
    is_forwarded(&mut edge, &mut caller).await;
    edge.write_all(b"more").await.unwrap();
    drop(edge);
    let mut all = Vec::new();
    timeout(SOON, caller.read_to_end(&mut all)).await.unwrap().unwrap();
    assert!(all == [sent().as_slice(), b"more"].concat());
}

#[tokio::test]
async fn without_a_free_slot_the_callers_bytes_are_forwarded_at_once() {
    let Ends { mut caller, mut edge, pipe: _pipe } = ends(0).await;
    edge.write_all(&sent()).await.unwrap();
    is_forwarded(&mut edge, &mut caller).await;
}

/// An empty ping of WebSocket with the mask 0, and its answer.
const PING: [u8; 6] = [0x89, 0x80, 0, 0, 0, 0];
const PONG: [u8; 2] = [0x8a, 0];

/// It does not reach the edge.
#[tokio::test(start_paused = true)]
async fn a_ping_to_an_edge_that_sent_lately_is_answered_here() {
    let (mut caller, mut stream) = duplex(CALLER_BYTES);
    let (mut local, mut edge) = duplex(SENT_BYTES);
    let mut frame = vec![0x82, 126];
    frame.extend_from_slice(&(CALLER_BYTES as u16).to_be_bytes());
    frame.extend_from_slice(&sent()[..CALLER_BYTES]);
    let frames = frame.repeat(2);
    edge.write_all(&frames).await.unwrap();
    let slots = Semaphore::new(1);
    let mut pipe = Pipe::new(KubernetesCompat::with_slots(&slots, Some(UpgradeProtocol::WebSocket)));
    let mut poll = async || poll_fn(|cx| Poll::Ready(pipe.poll(cx, &mut stream, &mut local))).await;
    assert!(poll().await.is_pending());
    advance(CALLER_SILENCE).await;
    caller.write_all(&PING).await.unwrap();
    assert!(poll().await.is_pending());

    let mut written = Vec::new();
    while written.len() < frames.len() + PONG.len() {
        caller.read_buf(&mut written).now_or_never().expect("more is written").unwrap();
        assert!(poll().await.is_pending());
    }

    assert!(written == [&frame[..], &PONG, &frame].concat(), "between both frames");
    // The edge has sent nothing for so long that the ping is forwarded to it.
    advance(ALIVE_FOR - CALLER_SILENCE - Duration::from_millis(1)).await;
    caller.write_all(&PING).await.unwrap();
    assert!(poll().await.is_pending());
    let mut written = Vec::new();
    caller.read_buf(&mut written).now_or_never().expect("an answer").unwrap();
    assert_eq!(written, PONG);
    advance(Duration::from_millis(1)).await;
    caller.write_all(&PING).await.unwrap();
    assert!(poll().await.is_pending());
    let mut received = Vec::new();
    edge.read_buf(&mut received).now_or_never().expect("it is there").unwrap();
    assert_eq!(received, PING, "the last one");
}
