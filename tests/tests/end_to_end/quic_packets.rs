//! A tunnel-server that receives first packets of unknown senders with unvalidated addresses.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tests::caller::SOON;
use tests::evil_quic::frames::{self, connection_close, varint};
use tests::evil_quic::initial::{DATAGRAM_BYTES, Initial, client_hello, is_retry, of_retry};
use tests::evil_quic::parameters;
use tests::evil_quic::trial::{ANSWER_MAX, Trial};
use tests::rng::Rng;
use tokio::time::sleep;

/// Handshakes with transport parameters that are wrong.
const BROKEN: u64 = 2_000;

/// After so many of them an honest agent comes.
const HONEST_EVERY: u64 = 500;

/// Clients that begin a handshake and never go on: more than the server accepts from unvalidated addresses.
const CLIENTS: u8 = 240;
/// The pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const OF_EACH: usize = 2;

/// The server gives them this long (8 s), and tries to reach them meanwhile.
const FORGOTTEN: &str = "tombolo_server_tunnel_handshakes_failed_total{reason=\"too_slow\"}";

/// The limit of handshakes with unvalidated addresses at the server.
const UNCHECKED_MAX: f64 = 256.0;

/// Number of requests to the honest agent while clients begin handshakes as fast as they can.
const ASKED: usize = 100;

/// Each handshake is answered by the server.
#[tokio::test]
async fn transport_parameters_of_every_kind_affect_only_their_own_handshake() {
    let trial = Trial::start().await;
    let client = DatagramClient::at(&trial, Ipv4Addr::LOCALHOST);
    let (mut rng, goodbye) = (Rng::new(1), connection_close());
    for attempt in 1..=BROKEN {
        let [destination, source] = [rng.next_u64(), rng.next_u64()].map(u64::to_be_bytes);
        let bytes = parameters::broken(&source, &mut rng);
        client.send(&Initial::new(&destination, &source, &client_hello(bytes)).sealed());
        assert!(client.is_answered(&source), "attempt {attempt} is not answered");
        let close = Initial { number: 1, ..Initial::new(&destination, &source, &goodbye) };
        client.send(&close.sealed());
        client.forget();
        if attempt % HONEST_EVERY == 0 {
            trial.new_agents_are_served().await;
            trial.others_are_undisturbed().await;
        }
    }
}

/// The packets lie about their fields, are joined in one datagram, or carry unknown frames.
#[tokio::test]
async fn wrong_coalesced_and_unknown_first_packets_harm_nobody() {
    let trial = Trial::start().await;
    let client = DatagramClient::at(&trial, Ipv4Addr::LOCALHOST);
    let hello = |source: &[u8]| client_hello(parameters::written(&parameters::good(source)));
    let mut rng = Rng::new(2);
    let mut names = || [rng.next_u64(), rng.next_u64(), rng.next_u64()].map(u64::to_be_bytes);
    for _ in 0..20 {
        let [one, two, source] = names();
        let frames = hello(&source);
        let initial = Initial::new(&one, &source, &frames);
        // Two packets of two connections in one datagram, and one of a name that its keys are not made of.
        let half = DATAGRAM_BYTES / 2;
        let other = Initial::new(&two, &source, &frames);
        client.send(&[initial.sealed_in(half), other.sealed_in(half)].concat());
        client.send(&Initial { destination: &two, ..initial.clone() }.sealed());
        // Of no length, of one that is not allowed in a first packet, and twice the same packet.
        client.send(&Initial { keyed_by: &[], destination: &[], ..initial.clone() }.sealed());
        client.send(&Initial { keyed_by: &[7], destination: &[7], ..initial.clone() }.sealed());
        client.send(&[initial.sealed(), initial.sealed()].concat());
        for token in [&[0; 1][..], &[0xff; 64], &[7; 400]] {
            client.send(&Initial { token, ..initial.clone() }.sealed());
        }
        for kind in frames::UNKNOWN.chain([0x08, 0x1e, 0x30, 0x4000, (1 << 62) - 1]) {
            let [destination, ..] = names();
            let unknown = varint(kind).repeat(8);
            client.send(&Initial::new(&destination, &source, &unknown).sealed());
            client.send(&Initial::new(&destination, &source, &[frames.clone(), unknown].concat()).sealed());
        }
        client.forget();
    }
    trial.new_agents_are_served().await;
    trial.others_are_undisturbed().await;
}

/// One datagram more may be sent, because quinn begins one while a byte of the allowance is left.
#[tokio::test]
async fn an_unvalidated_address_is_sent_three_times_its_bytes_at_most() {
    let trial = Trial::start().await;
    let clients: Vec<DatagramClient> =
        (0..CLIENTS).map(|last| DatagramClient::at(&trial, Ipv4Addr::new(127, 0, 1, last + 1))).collect();
    let mut rng = Rng::new(3);
    for client in clients.iter().cycle().take(clients.len() * OF_EACH) {
        let [destination, source] = [rng.next_u64(), rng.next_u64()].map(u64::to_be_bytes);
        let hello = client_hello(parameters::written(&parameters::good(&source)));
        client.send(&Initial::new(&destination, &source, &hello).sealed());
    }

    let mut answers = vec![(0, Vec::new()); clients.len()];
    let (mut retries, mut forgotten) = (0, 0);
    // By then it has sent to each whatever it ever sends.
    let began = Instant::now();
    while retries + forgotten < usize::from(CLIENTS) * OF_EACH {
        assert!(began.elapsed() < SOON, "{retries} were asked to come again, {forgotten} forgotten");
        sleep(LOOK_EVERY).await;
        for (client, (received, tokens)) in clients.iter().zip(&mut answers) {
            while let Some(datagram) = client.received() {
                *received += datagram.len();
                if is_retry(&datagram) {
                    let bytes = datagram.len();
                    assert!(4 * bytes < DATAGRAM_BYTES, "{bytes} bytes to ask to come again");
                    tokens.extend(of_retry(&datagram).map(|(id, token)| (id.to_vec(), token.to_vec())));
                    retries += 1;
                }
            }
        }
        forgotten = trial.rig.metric(trial.rig.probes(), FORGOTTEN).await as usize;
    }
    for (client, (received, tokens)) in clients.iter().zip(answers) {
        // quinn begins a datagram as long as one byte is left of the allowance (quinn-rs/quinn#1082).
        let begun = OF_EACH - tokens.len();
        let bound = (3 + 1) * DATAGRAM_BYTES * begun + DATAGRAM_BYTES / 4 * tokens.len();
        assert!(received <= bound, "{received} bytes to who has begun {begun} handshakes");
        // A token is for its address: from elsewhere, for another connection, or altered it is none.
        for (id, token) in tokens {
            let hello = client_hello(parameters::written(&parameters::good(b"replayed")));
            let replayed = Initial { token: &token, ..Initial::new(&id, b"replayed", &hello) };
            clients[0].send(&replayed.sealed());
            client.send(&replayed.sealed());
            let altered: Vec<u8> = token.iter().map(|byte| byte ^ 1).collect();
            client.send(
                &Initial { token: &altered, ..Initial::new(b"another-id", b"replayed", &hello) }.sealed(),
            );
        }
    }
    assert!(retries > 0 && forgotten > 0, "{retries} were asked to come again, {forgotten} were not");
    trial.new_agents_are_served().await;
    trial.others_are_undisturbed().await;
}

/// The requests of a tunnel and an honest new agent's handshake succeed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handshake_flood_disturbs_neither_tunnels_nor_new_agents() {
    let trial = Trial::start().await;
    let (stop, begun) = (AtomicBool::new(false), AtomicU64::new(0));
    let clients: Vec<DatagramClient> =
        (0..64).map(|last| DatagramClient::at(&trial, Ipv4Addr::new(127, 0, 2, last + 1))).collect();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut rng = Rng::new(4);
            for client in clients.iter().cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
                let [destination, source] = [rng.next_u64(), rng.next_u64()].map(u64::to_be_bytes);
                let hello = client_hello(parameters::written(&parameters::good(&source)));
                client.send(&Initial::new(&destination, &source, &hello).sealed());
                client.forget();
                begun.fetch_add(1, Ordering::Relaxed);
            }
        });
        let honest = async {
            for _ in 0..ASKED {
                trial.others_are_undisturbed().await;
            }
            trial.new_agents_are_served().await;
        };
        let honest = std::panic::AssertUnwindSafe(|| {
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(honest))
        });
        let outcome = std::panic::catch_unwind(honest);
        stop.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|cause| std::panic::resume_unwind(cause));
    });
    let begun = begun.into_inner();
    eprintln!("{begun} handshakes were begun meanwhile");
    assert!(begun as f64 > UNCHECKED_MAX, "{begun} are no flood");
    trial.others_are_undisturbed().await;
}

/// A client at an address of this machine, which sends datagrams.
struct DatagramClient(UdpSocket);

impl DatagramClient {
    fn at(trial: &Trial, address: Ipv4Addr) -> Self {
        let socket = UdpSocket::bind((address, 0)).expect("all of 127.0.0.0/8 is this machine");
        socket.connect(trial.rig.gateway()).expect("it is on this machine");
        socket.set_nonblocking(true).expect("a socket's option");
        Self(socket)
    }

    fn send(&self, datagram: &[u8]) {
        // A queue that is full loses it, as a network does.
        let _ = self.0.send(datagram);
    }

    /// A datagram that has come.
    fn received(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 65_535];
        match self.0.recv(&mut buffer) {
            Ok(bytes) => {
                buffer.truncate(bytes);
                Some(buffer)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Returns true if a datagram comes whose first packet is for this connection ID.
    fn is_answered(&self, name: &[u8]) -> bool {
        self.0.set_nonblocking(false).expect("a socket's option");
        self.0.set_read_timeout(Some(ANSWER_MAX)).expect("a socket's option");
        let mut buffer = vec![0; 65_535];
        let answers =
            std::iter::from_fn(|| self.0.recv(&mut buffer).ok().map(|bytes| buffer[..bytes].to_vec()));
        let is_to = |datagram: Vec<u8>| datagram.get(6..).is_some_and(|rest| rest.starts_with(name));
        let is_answered = answers.into_iter().any(is_to);
        self.0.set_nonblocking(true).expect("a socket's option");
        is_answered
    }

    /// Discards the datagrams that have come.
    fn forget(&self) {
        while self.received().is_some() {}
    }
}
