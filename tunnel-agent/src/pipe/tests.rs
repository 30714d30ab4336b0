//! The bytes that arrive at both ends of a pipe, and how each direction ends.

use std::future::pending;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Duration, timeout};

use super::*;

/// Bytes that a caller's side of the pipe holds while the caller does not read.
pub(super) const CALLER_BYTES: usize = 4 * 1024;
/// More than the caller, the pipe and the kernel at its side hold, and less than the edge's kernel does.
pub(super) const SENT_BYTES: usize = 150 * 1024;
pub(super) const SOON: Duration = Duration::from_secs(60);

/// The far ends of a pipe, and the pipe itself.
pub(super) struct Ends {
    pub(super) caller: DuplexStream,
    pub(super) edge: TcpStream,
    pub(super) pipe: JoinSet<io::Result<()>>,
}

#[expect(clippy::disallowed_methods, reason = "a test owns its tasks")]
pub(super) async fn ends(slots: usize) -> Ends {
    // Bytes that were sent and not read wait at their sender.
    let listening = TcpSocket::new_v4().unwrap();
    listening.set_send_buffer_size(SENT_BYTES as u32).unwrap();
    listening.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = listening.listen(1).unwrap();
    let local = TcpSocket::new_v4().unwrap();
    local.set_recv_buffer_size(CALLER_BYTES as u32).unwrap();
    let mut local = local.connect(listener.local_addr().unwrap()).await.unwrap();
    let (edge, _) = listener.accept().await.unwrap();
    let (caller, mut stream) = duplex(CALLER_BYTES);
    let mut pipe = JoinSet::new();
    pipe.spawn(async move { joined(None, slots, &mut stream, &mut local).await });
    Ends { caller, edge, pipe }
}

/// Joins both with so many slots for draining.
pub(super) async fn joined<C, E>(
    protocol: Option<UpgradeProtocol>,
    slots: usize,
    caller: &mut C,
    edge: &mut E,
) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    E: AsyncRead + AsyncWrite + Unpin,
{
    let slots = Semaphore::new(slots);
    let mut pipe = Pipe::new(KubernetesCompat::with_slots(&slots, protocol));
    poll_fn(|cx| pipe.poll(cx, caller, edge)).await
}

pub(super) fn sent() -> Vec<u8> {
    (0..SENT_BYTES).map(|n| (n * n / 251) as u8).collect()
}

#[tokio::test]
async fn each_direction_ends_by_itself() {
    let Ends { mut caller, mut edge, mut pipe } = ends(1).await;
    caller.write_all(b"question").await.unwrap();
    caller.shutdown().await.unwrap();
    let mut question = Vec::new();
    timeout(SOON, edge.read_to_end(&mut question)).await.unwrap().unwrap();
    edge.write_all(&sent()).await.unwrap();
    drop(edge);
    let mut answer = Vec::new();
    timeout(SOON, caller.read_to_end(&mut answer)).await.unwrap().unwrap();

    assert_eq!(question, b"question");
    assert!(answer == sent());
    pipe.join_next().await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn an_edge_that_resets_has_not_ended() {
    let Ends { mut caller, mut edge, mut pipe } = ends(1).await;
    edge.write_all(b"half of").await.unwrap();
    let mut received = [0; 7];
    timeout(SOON, caller.read_exact(&mut received)).await.unwrap().unwrap();
    edge.set_zero_linger().unwrap();
    drop(edge);

    let broke = timeout(SOON, pipe.join_next()).await.unwrap().unwrap().unwrap().unwrap_err();
    assert_eq!(broke.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_caller_that_resets_has_not_ended() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let caller = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    let (mut local, _edge) = duplex(CALLER_BYTES);
    caller.set_zero_linger().unwrap();
    drop(caller);

    let broke = timeout(SOON, join(None, &mut stream, &mut local)).await.unwrap().unwrap_err();
    assert_eq!(broke.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_caller_may_send_a_little_to_a_closed_edge_and_no_upload() {
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
