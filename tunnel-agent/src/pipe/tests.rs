//! What arrives of both ends of a pipe, and what it holds.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex, repeat, sink};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{advance, sleep, sleep_until, timeout};
use tokio_util::io::{InspectReader, InspectWriter};

use super::hearing::{HEARD_BYTES_MAX, HEARING_MAX, ROOM_EVERY};
use super::*;

/// What a caller holds that does not read.
const CALLER_BYTES: usize = 4 * 1024;
/// More than the caller, the pipe and the kernel at its side hold, and less than the edge's kernel does.
const SAID_BYTES: usize = 150 * 1024;
const SOON: Duration = Duration::from_secs(60);

/// Somebody at each end of a pipe, and the pipe.
struct Ends {
    caller: DuplexStream,
    edge: TcpStream,
    pipe: JoinSet<io::Result<()>>,
}

#[expect(clippy::disallowed_methods, reason = "a test owns its tasks")]
async fn ends(places: usize) -> Ends {
    // What was said and not read waits at who said it.
    let listening = TcpSocket::new_v4().unwrap();
    listening.set_send_buffer_size(SAID_BYTES as u32).unwrap();
    listening.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = listening.listen(1).unwrap();
    let near = TcpSocket::new_v4().unwrap();
    near.set_recv_buffer_size(CALLER_BYTES as u32).unwrap();
    let mut near = near.connect(listener.local_addr().unwrap()).await.unwrap();
    let (edge, _) = listener.accept().await.unwrap();
    let (caller, mut stream) = duplex(CALLER_BYTES);
    let mut pipe = JoinSet::new();
    pipe.spawn(async move { joined(places, &mut stream, &mut near).await });
    Ends { caller, edge, pipe }
}

async fn joined<C, E>(places: usize, caller: &mut C, edge: &mut E) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    E: AsyncRead + AsyncWrite + Unpin,
{
    joined_by(None, places, caller, edge).await
}

async fn joined_by<C, E>(
    protocol: Option<Protocol>,
    places: usize,
    caller: &mut C,
    edge: &mut E,
) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    E: AsyncRead + AsyncWrite + Unpin,
{
    let places = Semaphore::new(places);
    let mut pipe = Pipe::among(&places, protocol);
    poll_fn(|cx| pipe.poll(cx, caller, edge)).await
}

/// Somebody who talks without end, and how many bytes were said and told.
fn flood() -> (impl AsyncRead + AsyncWrite + Unpin + Send, [Arc<AtomicUsize>; 2]) {
    let counts = [0; 2].map(|count| Arc::new(AtomicUsize::new(count)));
    let [said, told] = counts.clone().map(|count| {
        move |bytes: &[u8]| {
            count.fetch_add(bytes.len(), Ordering::Relaxed);
        }
    });
    (tokio::io::join(InspectReader::new(repeat(0), said), InspectWriter::new(sink(), told)), counts)
}

fn said() -> Vec<u8> {
    (0..SAID_BYTES).map(|n| (n * n / 251) as u8).collect()
}

/// The caller says something after it was silent for so long that the edge is heard out.
async fn speaks(caller: &mut DuplexStream) {
    sleep(SILENCE).await;
    caller.write_all(b"go on").await.unwrap();
}

/// The edge is spoken to.
async fn hears(edge: &mut (impl AsyncRead + Unpin), caller: &mut DuplexStream) {
    speaks(caller).await;
    let mut heard = [0; 5];
    timeout(SOON, edge.read_exact(&mut heard)).await.unwrap().unwrap();
    assert_eq!(&heard, b"go on");
}

#[tokio::test]
async fn what_was_said_before_a_close_arrives_though_the_caller_talks_on() {
    let Ends { mut caller, mut edge, mut pipe } = ends(1).await;
    edge.write_all(&said()).await.unwrap();
    drop(edge);
    speaks(&mut caller).await;

    let mut heard = Vec::new();
    timeout(SOON, async {
        // Word by word, and talking on behind the end, too.
        while caller.read_buf(&mut heard).await.unwrap() > 0 {}
        caller.write_all(b"ping").await.unwrap();
        drop(caller);
        pipe.join_next().await.unwrap().unwrap().unwrap();
    })
    .await
    .unwrap();
    assert!(heard == said(), "{} bytes", heard.len());
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a test owns its tasks")]
async fn whoever_talks_without_end_is_spoken_to_though_nobody_listens() {
    let Ends { mut caller, edge, pipe: _pipe } = ends(1).await;
    let (mut reading, mut writing) = edge.into_split();
    let mut flood = JoinSet::new();
    flood.spawn(async move { while writing.write_all(&said()).await.is_ok() {} });
    hears(&mut reading, &mut caller).await;
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "a test owns its tasks")]
async fn a_flood_is_heard_at_an_even_pace_and_spoken_to_when_its_time_is_over() {
    let (mut caller, mut stream) = duplex(CALLER_BYTES);
    let (mut flood, [said, told]) = flood();
    let mut pipe = JoinSet::new();
    pipe.spawn(async move { joined(1, &mut stream, &mut flood).await });
    sleep(SILENCE).await;
    let before = said.load(Ordering::Relaxed);
    caller.write_all(b"go on").await.unwrap();

    sleep(HEARING_MAX / 2).await;
    let half = said.load(Ordering::Relaxed) - before;
    // In steps, of which the last one may be still to come.
    let step = HEARD_BYTES_MAX * ROOM_EVERY.as_millis() as usize / HEARING_MAX.as_millis() as usize;
    let even = HEARD_BYTES_MAX / 2 - 2 * step..=HEARD_BYTES_MAX / 2 + BUFFER_BYTES;
    assert!(even.contains(&half), "{half} bytes, not {even:?}");
    assert_eq!(told.load(Ordering::Relaxed), 0, "it is heard out");

    sleep(HEARING_MAX).await;
    assert_eq!(told.load(Ordering::Relaxed), b"go on".len());
    let all = said.load(Ordering::Relaxed) - before;
    assert!(all <= HEARD_BYTES_MAX + BUFFER_BYTES, "{all} bytes");
}

/// What a flood has said by each of these times after a pipe's beginning, to a caller who takes nothing.
#[expect(clippy::disallowed_methods, reason = "a test owns its tasks")]
async fn said_by<const N: usize>(
    protocol: Option<Protocol>,
    places: usize,
    times: [Duration; N],
) -> [usize; N] {
    let (_caller, mut stream) = duplex(CALLER_BYTES);
    let (mut flood, [said, told]) = flood();
    let mut pipe = JoinSet::new();
    let began = Instant::now();
    pipe.spawn(async move { joined_by(protocol, places, &mut stream, &mut flood).await });
    let mut all = [0; N];
    for (all, at) in all.iter_mut().zip(times) {
        sleep_until(began + at).await;
        *all = said.load(Ordering::Relaxed);
    }
    assert_eq!(told.load(Ordering::Relaxed), 0, "nothing was said to it");
    all
}

#[tokio::test(start_paused = true)]
async fn before_a_translator_pings_all_that_may_wait_is_read_at_an_even_pace_and_only_then() {
    let times = [100, 3450, 4250, 5010, 8000].map(Duration::from_millis);
    let [usual, before, half, pinged, later] = said_by(Some(Protocol::WebSocket), 1, times).await;
    assert_eq!(before, usual);
    let even = HEARD_BYTES_MAX * 49 / 100..=HEARD_BYTES_MAX * 51 / 100;
    assert!(even.contains(&(half - usual)), "{half} bytes");
    assert!(pinged >= HEARD_BYTES_MAX, "{pinged} bytes");
    assert_eq!(later, pinged);
    assert!(later <= HEARD_BYTES_MAX + BUFFER_BYTES + usual, "{later} bytes");
}

#[tokio::test(start_paused = true)]
async fn where_nobody_translates_and_for_more_than_may_be_nothing_is_read_ahead() {
    let times = [100, 5010].map(Duration::from_millis);
    for (protocol, places) in [(Some(Protocol::Spdy31), 1), (None, 1), (Some(Protocol::WebSocket), 0)] {
        let [usual, pinged] = said_by(protocol, places, times).await;
        assert_eq!(pinged, usual, "{protocol:?}, {places} places");
    }
}

/// A caller who takes everything at once, and what it says.
fn quick_caller() -> (impl AsyncRead + AsyncWrite + Unpin, DuplexStream) {
    let (said, words) = duplex(CALLER_BYTES);
    (tokio::io::join(words, sink()), said)
}

#[tokio::test(start_paused = true)]
async fn whoever_has_not_paused_is_heard_out_though_the_caller_takes_everything_at_once() {
    let (mut flood, [_, told]) = flood();
    let (mut caller, mut words) = quick_caller();
    let places = Semaphore::new(1);
    let mut pipe = Pipe::among(&places, None);
    let mut told_after = async |pause| {
        advance(pause).await;
        // Twice, the second time without a budget: what says nothing then has not paused.
        let polled =
            poll_fn(|cx| Poll::Ready([(); 2].map(|()| pipe.poll(cx, &mut caller, &mut flood)))).await;
        assert!(polled.iter().all(Poll::is_pending));
        told.load(Ordering::Relaxed)
    };
    assert_eq!(told_after(Duration::ZERO).await, 0, "nothing was said");
    words.write_all(b"go on").await.unwrap();

    assert_eq!(told_after(SILENCE).await, 0);
    assert_eq!(places.available_permits(), 0);
    assert_eq!(told_after(HEARING_MAX - ROOM_EVERY).await, 0);
    assert_eq!(places.available_permits(), 0, "more may still have to wait");
    assert_eq!(told_after(ROOM_EVERY).await, b"go on".len());
    told_after(Duration::ZERO).await;
    assert_eq!(places.available_permits(), 1);
}

#[tokio::test(start_paused = true)]
async fn whoever_has_paused_is_spoken_to_at_once() {
    let (mut caller, mut words) = quick_caller();
    let (mut near, mut edge) = duplex(UNPAUSED_BYTES);
    let places = Semaphore::new(1);
    let mut pipe = Pipe::among(&places, None);
    let mut poll = async || poll_fn(|cx| Poll::Ready(pipe.poll(cx, &mut caller, &mut near))).await;
    edge.write_all(&said()[..UNPAUSED_BYTES]).await.unwrap();
    advance(SILENCE).await;
    assert!(poll().await.is_pending());
    words.write_all(b"go on").await.unwrap();
    edge.write_all(b"some more").await.unwrap();
    assert!(poll().await.is_pending());

    let mut heard = [0; 5];
    edge.read_exact(&mut heard).now_or_never().expect("it is there").unwrap();
    assert_eq!(&heard, b"go on");
}

#[tokio::test]
async fn whoever_pauses_is_spoken_to_though_nobody_listens() {
    let Ends { mut caller, mut edge, pipe: _pipe } = ends(1).await;
    edge.write_all(&said()).await.unwrap();
    hears(&mut edge, &mut caller).await;
    edge.write_all(b"more").await.unwrap();
    drop(edge);
    let mut all = Vec::new();
    timeout(SOON, caller.read_to_end(&mut all)).await.unwrap().unwrap();
    assert!(all == [said().as_slice(), b"more"].concat());
}

#[tokio::test]
async fn no_more_are_heard_out_at_once_than_may_be_and_the_others_are_spoken_to() {
    let Ends { mut caller, mut edge, pipe: _pipe } = ends(0).await;
    edge.write_all(&said()).await.unwrap();
    hears(&mut edge, &mut caller).await;
}

#[tokio::test]
async fn each_half_ends_by_itself() {
    let Ends { mut caller, mut edge, mut pipe } = ends(1).await;
    caller.write_all(b"question").await.unwrap();
    caller.shutdown().await.unwrap();
    let mut question = Vec::new();
    timeout(SOON, edge.read_to_end(&mut question)).await.unwrap().unwrap();
    edge.write_all(&said()).await.unwrap();
    drop(edge);
    let mut answer = Vec::new();
    timeout(SOON, caller.read_to_end(&mut answer)).await.unwrap().unwrap();

    assert_eq!(question, b"question");
    assert!(answer == said());
    pipe.join_next().await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn who_breaks_off_has_not_ended() {
    let Ends { mut caller, mut edge, mut pipe } = ends(1).await;
    edge.write_all(b"half of").await.unwrap();
    let mut heard = [0; 7];
    timeout(SOON, caller.read_exact(&mut heard)).await.unwrap().unwrap();
    edge.set_zero_linger().unwrap();
    drop(edge);

    let broke = timeout(SOON, pipe.join_next()).await.unwrap().unwrap().unwrap().unwrap_err();
    assert_eq!(broke.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_caller_who_breaks_off_has_not_ended() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let caller = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    let (mut near, _edge) = duplex(CALLER_BYTES);
    caller.set_zero_linger().unwrap();
    drop(caller);

    let broke = timeout(SOON, join(None, &mut stream, &mut near)).await.unwrap().unwrap_err();
    assert_eq!(broke.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_caller_says_a_little_to_somebody_who_is_gone_and_no_upload() {
    let Ends { mut caller, edge, mut pipe } = ends(1).await;
    let (reading, mut writing) = edge.into_split();
    writing.write_all(b"no").await.unwrap();
    drop((reading, writing));
    let mut answer = Vec::new();
    timeout(SOON, caller.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert_eq!(answer, b"no");

    let upload = async {
        let block = vec![0; 64 * 1024];
        while caller.write_all(&block).await.is_ok() {}
        pending::<()>().await;
    };
    let ended = tokio::select! {
        ended = timeout(SOON, pipe.join_next()) => ended.unwrap().unwrap().unwrap(),
        () = upload => unreachable!(),
    };
    assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

/// An empty ping of WebSocket with the mask 0, and its answer.
const PING: [u8; 6] = [0x89, 0x80, 0, 0, 0, 0];
const PONG: [u8; 2] = [0x8a, 0];

#[tokio::test(start_paused = true)]
async fn a_ping_to_somebody_who_talked_lately_is_answered_here_and_does_not_reach_it() {
    let (mut caller, mut stream) = duplex(CALLER_BYTES);
    let (mut near, mut edge) = duplex(SAID_BYTES);
    let mut frame = vec![0x82, 126];
    frame.extend_from_slice(&(CALLER_BYTES as u16).to_be_bytes());
    frame.extend_from_slice(&said()[..CALLER_BYTES]);
    let frames = frame.repeat(2);
    edge.write_all(&frames).await.unwrap();
    let places = Semaphore::new(1);
    let mut pipe = Pipe::among(&places, Some(Protocol::WebSocket));
    let mut poll = async || poll_fn(|cx| Poll::Ready(pipe.poll(cx, &mut stream, &mut near))).await;
    assert!(poll().await.is_pending());
    advance(SILENCE).await;
    caller.write_all(&PING).await.unwrap();
    assert!(poll().await.is_pending());

    let mut told = Vec::new();
    while told.len() < frames.len() + PONG.len() {
        caller.read_buf(&mut told).now_or_never().expect("more is told").unwrap();
        assert!(poll().await.is_pending());
    }

    assert!(told == [&frame[..], &PONG, &frame].concat(), "between both frames");
    // It has not said anything for so long that it is asked itself.
    advance(LATELY - SILENCE - Duration::from_millis(1)).await;
    caller.write_all(&PING).await.unwrap();
    assert!(poll().await.is_pending());
    let mut told = Vec::new();
    caller.read_buf(&mut told).now_or_never().expect("an answer").unwrap();
    assert_eq!(told, PONG);
    advance(Duration::from_millis(1)).await;
    caller.write_all(&PING).await.unwrap();
    assert!(poll().await.is_pending());
    let mut heard = Vec::new();
    edge.read_buf(&mut heard).now_or_never().expect("it is there").unwrap();
    assert_eq!(heard, PING, "the last one");
}
