//! Two processes that do and do not hand over, each played by this one.

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::timeout;

use super::wire::{FrameKind, Wire, same_user};
use super::*;

fn facts() -> ListenerFacts {
    ListenerFacts { kind: ListenerKind::Worker, address: SocketAddr::from(([127, 0, 0, 1], 7443)) }
}

fn connection_facts(unwritten: [usize; 2]) -> ConnectionFacts {
    let [to, from] = unwritten.map(|unwritten| Direction { unwritten, is_done: false });
    let peer = SocketAddr::from(([127, 0, 0, 1], 40_000));
    ConnectionFacts { listener: facts(), peer, api_server: Some(peer), to, from }
}

/// A folder with the path of a socket in it.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(SOCKET_FILE);
    (folder, path)
}

/// A predecessor that sends one listener, and does then what `end` says.
async fn predecessor<T>(path: &Path, end: impl AsyncFnOnce(&mut Successor) -> T) -> T {
    let socket = HandoverSocket::bind(path).unwrap();
    let mut successor = socket.next().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    successor.listener(facts(), listener.as_fd()).await.unwrap();
    end(&mut successor).await
}

#[tokio::test]
async fn sockets_and_the_bytes_between_them_arrive() {
    let (_folder, path) = folder();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    let socket = HandoverSocket::bind(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let large = vec![7; 64 * 1024];

    let giving = async {
        let mut successor = socket.next().await;
        successor.listener(facts(), listener.as_fd()).await.unwrap();
        let sockets = [far.as_fd(), far.as_fd()];
        let facts = connection_facts([5, large.len()]);
        successor.connection(facts, [b"to it", &large], &sockets).await.unwrap();
        successor.has_all().await.unwrap();
        successor.go().unwrap();
        successor.has_started().await;
    };
    let taking = async {
        let (inventory, offer) = ask(&path).await.unwrap();
        drop(offer.accept().await.unwrap());
        inventory
    };
    let ((), mut inventory) = tokio::join!(giving, taking);
    drop((listener, far));

    assert_eq!(inventory.listeners[0].0, facts());
    let HandedConnection { caller, to, from, .. } = inventory.connections.remove(0);
    assert!(to == b"to it" && from == large);
    let mut caller = TcpStream::from_std(caller.into()).unwrap();
    caller.write_all(b"goes on").await.unwrap();
    let mut read = [0; 7];
    near.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"goes on");
}

#[tokio::test]
async fn a_predecessor_that_does_not_let_go_goes_on_alone() {
    let (_folder, path) = folder();
    let giving = predecessor(&path, async |successor| successor.has_all().await);

    let taking = async {
        let (_inventory, offer) = ask(&path).await.unwrap();
        offer.accept().await
    };
    let (has_all, accepted) = tokio::join!(giving, taking);

    has_all.unwrap();
    assert!(accepted.is_err());
}

#[tokio::test]
async fn a_predecessor_cannot_let_go_once_its_successor_has_given_up() {
    let (_folder, path) = folder();
    let giving = predecessor(&path, async |successor| {
        assert!(successor.has_all().await.is_err());
        successor.go()
    });

    let taking = async { drop(ask(&path).await.unwrap()) };
    let (gone, ()) = tokio::join!(giving, taking);

    gone.unwrap_err();
}

/// The moment of the decision: a frame that was sent before the successor gave up is found, and none comes after.
#[tokio::test]
async fn after_giving_up_a_frame_is_there_or_never_comes() {
    for is_sent_before in [true, false] {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut predecessor, mut successor) = (Wire::new(near).unwrap(), Wire::new(far).unwrap());
        if is_sent_before {
            predecessor.send_now(FrameKind::Go).unwrap();
        }

        successor.shut_down();

        assert_eq!(successor.receive().await.is_ok(), is_sent_before);
        predecessor.send_now(FrameKind::Go).unwrap_err();
    }
}

#[tokio::test(start_paused = true)]
async fn a_mute_or_foreign_predecessor_does_not_hold_up_a_start() {
    for answer in
        [None, Some(&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..]), Some(b"\x02\x01\x00\x00\xff\xff\xff\xff")]
    {
        let (_folder, path) = folder();
        let listener = UnixListener::bind(&path).unwrap();
        let other = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            if let Some(answer) = answer {
                stream.write_all(answer).await.unwrap();
            }
            let mut asked = Vec::new();
            let _ = stream.read_to_end(&mut asked).await;
        };

        let (taken, ()) = tokio::join!(ask(&path), other);

        assert!(taken.is_none());
    }
    let (_folder, nothing_there) = folder();
    assert!(ask(&nothing_there).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_mute_foreign_or_older_successor_gets_nothing() {
    let (_folder, path) = folder();
    let socket = HandoverSocket::bind(&path).unwrap();
    let older = b"\x01\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00";
    let mut others = Vec::new();
    for question in [&b""[..], b"GET / HTTP/1.1\r\n", older] {
        let mut stream = UnixStream::connect(&path).await.unwrap();
        stream.write_all(question).await.unwrap();
        others.push(stream);
    }

    assert!(timeout(Duration::from_secs(60), socket.next()).await.is_err());

    for mut other in others {
        let mut answer = Vec::new();
        let _ = other.read_to_end(&mut answer).await;
        assert!(answer.is_empty());
    }
    assert!(matches!(same_user(7, 0), Err(HandoverError::OtherUser(7))));
}

/// Every bit of the message of a predecessor is flipped once, and nothing is taken.
#[tokio::test]
async fn a_damaged_message_is_refused() {
    let message = {
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut wire = Wire::new(near).unwrap();
        far.write_all(&[1, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0]).await.unwrap();
        wire.receive().await.unwrap();
        let sum = wire.sum();
        wire.send(FrameKind::End, &sum, &[]).await.unwrap();
        drop(wire);
        let mut message = Vec::new();
        far.read_to_end(&mut message).await.unwrap();
        message
    };
    for flipped in std::iter::once(None).chain((0..message.len() * 8).map(Some)) {
        let mut message = message.clone();
        if let Some(bit) = flipped {
            message[bit / 8] ^= 1 << (bit % 8);
        }
        let (_folder, path) = folder();
        let listener = UnixListener::bind(&path).unwrap();
        let other = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(&message).await.unwrap();
            stream.shutdown().await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
        };

        let (taken, ()) = tokio::join!(async { ask(&path).await.is_some() }, other);

        assert_eq!(taken, flipped.is_none(), "{flipped:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// No payload makes a panic, and a connection without its sockets is never taken.
    #[test]
    fn any_payload_without_descriptors_is_refused(
        payload in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..200),
            (any::<[usize; 2]>(), any::<Vec<u8>>())
                .prop_map(|(sizes, bytes)| wire::payload(&connection_facts(sizes), [&bytes, &[]])),
        ],
    ) {
        prop_assert!(successor::connection(&payload, Vec::new()).is_err());
        prop_assert!(successor::listener(&payload, Vec::new()).is_err());
        prop_assert!(successor::steering(&payload, Vec::new()).is_err());
    }
}
