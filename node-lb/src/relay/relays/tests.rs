//! Connections that are handed over in the midst of their bytes, and go on in a second set of relays.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use daemon::Readiness;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::*;
use crate::handover::{HandoverSocket, Inventory, SOCKET_FILE, ask};
use crate::members::{ConnectionResult, Members, ProbeOutcome, Source};

/// More than the kernel holds for a reader that does not read.
const LARGE_BYTES: usize = 16 * 1024 * 1024;

const SOON: Duration = Duration::from_secs(20);

/// One process: its relays, and its balancer that knows one API server.
struct Process {
    relays: Relays,
    balancer: Balancer,
    scope: Scope,
}

impl Process {
    fn new() -> Self {
        Self { relays: Relays::default(), balancer: Balancer::new(Readiness::new()), scope: Scope::here() }
    }

    fn knows(&self, api_server: SocketAddr) {
        self.balancer.name(Source::Seeds, &[api_server]);
        let answered = ProbeOutcome::Answered { is_ready: true, round_trip: Duration::ZERO };
        self.balancer.probed(api_server, answered, Instant::now());
    }

    fn listen(&self, relay: BoundRelay) {
        self.scope.spawn(relay.run(self.relays.clone(), self.balancer.clone(), self.scope.clone()));
    }

    fn goes_on(&self, inventory: Inventory) {
        let Inventory { listeners, connections, .. } = inventory;
        let taken = listeners.into_iter().map(|(_, socket)| BoundRelay::take_over(socket, None).unwrap());
        let relays: Vec<BoundRelay> = taken.collect();
        self.relays.go_on(connections, &relays, None, &self.balancer, &self.scope);
        for relay in relays {
            self.listen(relay);
        }
    }

    fn open(&self, address: SocketAddr) -> usize {
        self.balancer.read(|members| members.get(address).map_or(0, |member| member.traffic.connections()))
    }
}

/// A caller and an API server with a process between them, through which 5 bytes have gone.
struct Trial {
    first: Process,
    caller: TcpStream,
    api_server: TcpStream,
    address: SocketAddr,
    relay: SocketAddr,
    listener: TcpListener,
}

impl Trial {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let first = Process::new();
        first.knows(address);
        let bound = BoundRelay::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let relay = bound.address();
        first.listen(bound);
        let mut caller = TcpStream::connect(relay).await.unwrap();
        let (mut api_server, _) = listener.accept().await.unwrap();
        caller.write_all(b"hello").await.unwrap();
        let mut hello = [0; 5];
        api_server.read_exact(&mut hello).await.unwrap();
        Self { first, caller, api_server, address, relay, listener }
    }
}

/// Everything goes to a successor, if that accepts it.
async fn hand_over(first: &Process, accepts: bool) -> (Result<usize, HandoverError>, Inventory) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(SOCKET_FILE);
    let socket = HandoverSocket::bind(&path).unwrap();
    let giving = async {
        let mut successor = socket.next().await;
        let frozen = first.relays.freeze().await;
        frozen.send(&mut successor).await?;
        successor.has_all().await?;
        successor.go()?;
        Ok(frozen.hand_over())
    };
    let taking = async {
        let (inventory, offer) = ask(&path).await.unwrap();
        if accepts {
            drop(offer.accept().await.unwrap());
        }
        inventory
    };
    tokio::join!(giving, taking)
}

/// The caller has ended its direction, and the API server sends more than anybody takes. Several successors give up
/// before one takes over.
#[tokio::test]
async fn no_byte_and_no_end_of_file_is_lost_by_handovers() {
    let Trial { first, mut caller, mut api_server, address, relay, listener } = Trial::start().await;
    caller.shutdown().await.unwrap();
    assert_eq!(api_server.read(&mut [0]).await.unwrap(), 0);
    let sent: Vec<u8> = (0..LARGE_BYTES).map(|at| (at % 251) as u8).collect();

    let sending = async {
        api_server.write_all(&sent).await.unwrap();
        api_server.shutdown().await.unwrap();
    };
    let handing_over = async {
        let has_bytes_between = |inventory: &Inventory| !inventory.connections[0].from.is_empty();
        loop {
            let (given, inventory) = hand_over(&first, false).await;
            given.unwrap_err();
            if has_bytes_between(&inventory) {
                break;
            }
        }
        let (given, inventory) = hand_over(&first, true).await;
        assert_eq!(given.unwrap(), 1);
        assert!(has_bytes_between(&inventory) && inventory.connections[0].facts.to.is_done);
        assert_eq!(first.open(address), 0);
        let second = Process::new();
        second.goes_on(inventory);
        assert_eq!((second.open(address), second.balancer.connections_taken_over()), (1, 1));
        let mut received = Vec::new();
        caller.read_to_end(&mut received).await.unwrap();
        // The listener went along.
        second.knows(address);
        let _next = TcpStream::connect(relay).await.unwrap();
        listener.accept().await.unwrap();
        received
    };
    let ((), received) = timeout(SOON, async { tokio::join!(sending, handing_over) }).await.unwrap();

    assert!(received == sent, "{} of {}", received.len(), sent.len());
}

/// It is relayed to an API server that nobody has probed here, until that shows another certificate.
#[tokio::test]
async fn a_connection_of_a_predecessor_goes_on_until_a_foreign_certificate() {
    let Trial { first, mut caller, mut api_server, address, .. } = Trial::start().await;
    let (given, inventory) = hand_over(&first, true).await;
    given.unwrap();
    let second = Process::new();
    second.goes_on(inventory);
    assert!(!second.balancer.has_proved(address) && second.balancer.choose(&[]).is_none());

    api_server.write_all(b"answer").await.unwrap();

    let mut answer = [0; 6];
    timeout(SOON, caller.read_exact(&mut answer)).await.unwrap().unwrap();
    second.balancer.probed(address, ProbeOutcome::Foreign, Instant::now());
    timeout(SOON, caller.read(&mut answer)).await.unwrap().unwrap_err();
}

/// Its API server does not answer the probes of the second process, and another one does.
#[tokio::test]
async fn a_connection_of_a_predecessor_ends_if_its_api_server_is_silent() {
    let Trial { first, mut caller, api_server: _api_server, address, .. } = Trial::start().await;
    let (given, inventory) = hand_over(&first, true).await;
    given.unwrap();
    let second = Process::new();
    second.goes_on(inventory);

    for _ in 0..2 {
        second.balancer.probed(address, ProbeOutcome::Missed, Instant::now());
    }
    second.knows("192.0.2.1:6443".parse().unwrap());

    timeout(SOON, caller.read(&mut [0])).await.unwrap().unwrap_err();
    assert!(!second.balancer.has_proved(address));
}

/// A connection whose API server is still looked for goes over, too.
#[tokio::test]
async fn a_connection_without_an_api_server_finds_one_in_the_next_process() {
    let first = Process::new();
    let bound = BoundRelay::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let relay = bound.address();
    first.listen(bound);
    let mut caller = TcpStream::connect(relay).await.unwrap();
    caller.write_all(b"hello").await.unwrap();
    let inventory = loop {
        let (given, inventory) = hand_over(&first, true).await;
        if given.unwrap() == 1 {
            break inventory;
        }
        first.listen(BoundRelay::take_over(inventory.listeners.into_iter().next().unwrap().1, None).unwrap());
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let second = Process::new();
    second.goes_on(inventory);

    second.knows(listener.local_addr().unwrap());

    let (mut api_server, _) = timeout(SOON, listener.accept()).await.unwrap().unwrap();
    let mut hello = [0; 5];
    timeout(SOON, api_server.read_exact(&mut hello)).await.unwrap().unwrap();
    assert_eq!(&hello, b"hello");
}

/// A record of a TLS handshake with 8 bytes.
const HELLO: &[u8] = b"\x16\x03\x01\x00\x08a hello!";

/// Two API servers that are ready, a process that knows them, and a caller whose connection one of them has accepted.
struct TwoApiServers {
    process: Process,
    caller: TcpStream,
    first: TcpStream,
    other: TcpListener,
}

impl TwoApiServers {
    async fn start() -> Self {
        let bind = || TcpListener::bind("127.0.0.1:0");
        let (one, two) = (bind().await.unwrap(), bind().await.unwrap());
        let process = Process::new();
        let addresses = [&one, &two].map(|listener| listener.local_addr().unwrap());
        process.balancer.name(Source::Seeds, &addresses);
        for address in addresses {
            let answered = ProbeOutcome::Answered { is_ready: true, round_trip: Duration::ZERO };
            process.balancer.probed(address, answered, Instant::now());
        }
        let bound = BoundRelay::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let relay = bound.address();
        process.listen(bound);
        let caller = TcpStream::connect(relay).await.unwrap();
        let (first, other) = tokio::select! {
            accepted = one.accept() => (accepted.unwrap().0, two),
            accepted = two.accept() => (accepted.unwrap().0, one),
        };
        Self { process, caller, first, other }
    }
}

/// Both a reset and an end without a byte.
#[tokio::test]
async fn another_api_server_gets_the_first_bytes_of_one_that_ends() {
    for is_reset in [true, false] {
        let TwoApiServers { process, mut caller, mut first, other } = TwoApiServers::start().await;
        let unanswered = first.local_addr().unwrap();
        caller.write_all(HELLO).await.unwrap();
        let mut hello = [0; HELLO.len()];
        first.read_exact(&mut hello).await.unwrap();

        if is_reset {
            first.set_zero_linger().unwrap();
        }
        drop(first);

        let (mut second, _) = timeout(SOON, other.accept()).await.unwrap().unwrap();
        let mut again = [0; HELLO.len()];
        timeout(SOON, second.read_exact(&mut again)).await.unwrap().unwrap();
        assert_eq!(again, HELLO);
        second.write_all(b"answer").await.unwrap();
        let mut answer = [0; 6];
        timeout(SOON, caller.read_exact(&mut answer)).await.unwrap().unwrap();
        let counted = |members: &Members| {
            members.get(unanswered).map(|member| member.traffic.counted(ConnectionResult::Unanswered))
        };
        assert_eq!(process.balancer.read(counted), Some(1));
    }
}

#[tokio::test]
async fn a_connection_with_an_answer_or_with_data_does_not_begin_anew() {
    let data = [HELLO, b"\x17\x03\x03\x00\x01x"].concat();
    for (sent, is_answered) in [(HELLO, true), (&data, false), (b"GET / HTTP/1.1\r\n", false)] {
        let TwoApiServers { mut caller, mut first, other, .. } = TwoApiServers::start().await;
        caller.write_all(sent).await.unwrap();
        first.read_exact(&mut vec![0; sent.len()]).await.unwrap();
        if is_answered {
            first.write_all(b"a").await.unwrap();
            caller.read_exact(&mut [0]).await.unwrap();
        }

        first.set_zero_linger().unwrap();
        drop(first);

        timeout(SOON, caller.read(&mut [0])).await.unwrap().unwrap_err();
        assert!(futures::poll!(Box::pin(other.accept())).is_pending(), "{is_answered}");
    }
}
