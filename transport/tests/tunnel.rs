//! A tunnel between two real endpoints on loopback.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test's unwraps are claims, and it owns its tasks"
)]

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use proto::greeting::{BootNonce, Greeting, Host, VERSIONS};
use proto::session::Health;
use proto::spiffe::AgentId;
use proto::wire::{Assert, Hello, StreamOpen, refused::Reason};
use proto::{AbortCode, CloseCode};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use transport::tls::Material;
use transport::{
    DialError, DialTls, Dialed, Driver, Endpoint, EndpointKeys, GreetError, HANDSHAKE_MAX, OpenError,
    ServerNumber, Spawn, Tunnel, TunnelEnded, TunnelEvent, TunnelStream, abort_code,
};

/// No event of these tests is later than this.
const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn bytes_arrive_whole_in_both_directions_and_each_ends_on_its_own() {
    let pair = Pair::greeted().await;
    let mut there = pair.server.open(&open()).await.unwrap();
    let mut here = pair.accepted().await;
    assert_eq!(here.read_open().await.unwrap(), open());
    let sent = vec![7_u8; 3_000_000];

    let (mut read_there, mut read_here) = (Vec::new(), Vec::new());
    let server = async {
        there.write_all(&sent).await.unwrap();
        there.shutdown().await.unwrap();
        there.read_to_end(&mut read_there).await.unwrap();
    };
    let agent = async {
        here.read_to_end(&mut read_here).await.unwrap();
        // The other direction is still open after the end of this one.
        here.write_all(b"answer").await.unwrap();
        here.shutdown().await.unwrap();
    };
    soon(async { tokio::join!(server, agent) }).await;

    assert!(read_here == sent && read_there == b"answer");
}

#[tokio::test]
async fn the_first_frame_is_read_and_not_one_byte_behind_it() {
    let pair = Pair::greeted().await;
    let mut there = pair.server.open(&open()).await.unwrap();
    there.write_all(b"GET / HTTP/1.1").await.unwrap();
    let mut here = pair.accepted().await;

    assert_eq!(soon(here.read_open()).await.unwrap(), open());

    let mut behind = [0; 14];
    here.read_exact(&mut behind).await.unwrap();
    assert_eq!(&behind, b"GET / HTTP/1.1");
}

#[tokio::test]
async fn a_link_counts_what_its_streams_carried_by_direction() {
    let pair = Pair::greeted().await;
    let before = (pair.server.link(), pair.agent.link());
    let mut there = pair.server.open(&open()).await.unwrap();
    let mut here = pair.accepted().await;
    here.read_open().await.unwrap();
    there.write_all(&[7; 300_000]).await.unwrap();
    soon(here.read_exact(&mut vec![0; 300_000])).await.unwrap();
    here.write_all(b"answer").await.unwrap();
    soon(there.read_exact(&mut [0; 6])).await.unwrap();

    let (server, agent) = (pair.server.link(), pair.agent.link());
    let first_frame = server.stream_bytes_sent - before.0.stream_bytes_sent - 300_000;
    assert!((1..200).contains(&first_frame), "{first_frame} bytes of a first frame");
    assert_eq!(server.stream_bytes_received - before.0.stream_bytes_received, 6);
    assert_eq!(agent.stream_bytes_sent - before.1.stream_bytes_sent, 6);
    assert_eq!(agent.stream_bytes_received - before.1.stream_bytes_received, first_frame + 300_000);
    assert!(
        server.wire_bytes_sent > 300_000
            && server.packets_sent > 200
            && server.packets_lost <= server.packets_sent
    );
    assert!(agent.wire_bytes_received - before.1.wire_bytes_received > 300_000);
}

#[tokio::test]
async fn a_dropped_stream_is_an_error_and_never_a_clean_end() {
    let pair = Pair::greeted().await;
    let mut there = pair.server.open(&open()).await.unwrap();
    there.write_all(b"half an answ").await.unwrap();
    let mut here = pair.accepted().await;
    here.read_open().await.unwrap();
    drop(there);

    let error = soon(here.read_to_end(&mut Vec::new())).await.unwrap_err();

    assert_eq!(abort_code(&error), Some(AbortCode::Abandoned));
}

#[tokio::test]
async fn a_stream_whose_peer_still_writes_tells_it_when_dropped_after_its_own_shutdown() {
    let pair = Pair::greeted().await;
    let mut there = pair.server.open(&open()).await.unwrap();
    let mut here = pair.accepted().await;
    soon(there.shutdown()).await.unwrap();
    let gone = here.gone();
    drop(there);

    soon(gone).await;

    let failed = soon(async {
        loop {
            if let Err(error) = here.write_all(&[0; 1024]).await {
                return error;
            }
        }
    });
    assert_eq!(abort_code(&failed.await), Some(AbortCode::Abandoned));
}

#[tokio::test]
async fn an_abort_carries_its_code_to_readers_and_writers() {
    let pair = Pair::greeted().await;
    let mut there = pair.server.open(&open()).await.unwrap();
    let verdict = there.verdict();
    assert_eq!(verdict.heard(), None);
    pair.accepted().await.abort(AbortCode::ApiServerUnreachable);

    let error = soon(there.read_to_end(&mut Vec::new())).await.unwrap_err();
    assert_eq!(abort_code(&error), Some(AbortCode::ApiServerUnreachable));
    let error = soon(async {
        loop {
            if let Err(error) = there.write_all(&[0; 1024]).await {
                return error;
            }
        }
    });
    assert_eq!(abort_code(&error.await), Some(AbortCode::ApiServerUnreachable));
    assert_eq!(verdict.heard(), Some(AbortCode::ApiServerUnreachable));
}

#[tokio::test]
async fn a_verdict_said_from_elsewhere_is_the_code_of_the_drop() {
    let pair = Pair::greeted().await;
    let mut there = pair.server.open(&open()).await.unwrap();
    let here = pair.accepted().await;
    let verdict = here.verdict();
    verdict.set(AbortCode::ApiServerLost);
    drop(here);

    let error = soon(there.read_to_end(&mut Vec::new())).await.unwrap_err();

    assert_eq!(abort_code(&error), Some(AbortCode::ApiServerLost));
}

#[tokio::test]
async fn a_shutdown_that_was_not_acknowledged_is_not_ready() {
    let mut pair = Pair::greeted().await;
    let mut there = pair.server.open(&open()).await.unwrap();
    // More than the peer's window takes while nobody reads.
    let writing = tokio::spawn(async move {
        let bytes = vec![0; 2_000_000];
        there.write_all(&bytes).await?;
        there.shutdown().await?;
        io::Result::Ok(there)
    });
    let mut here = pair.accepted().await;
    let mut half = vec![0; 1_000_000];
    soon(here.read_exact(&mut half)).await.unwrap();
    drop(here);

    let error = soon(writing).await.unwrap().map(drop).unwrap_err();

    assert_eq!(abort_code(&error), Some(AbortCode::Abandoned));
    assert_eq!(pair.server_events.try_recv().ok(), None, "the tunnel itself is well");
}

#[tokio::test]
async fn a_drain_lets_an_open_stream_finish_and_loses_nothing() {
    let pair = Pair::greeted().await;
    let mut there = pair.server.open(&open()).await.unwrap();
    let mut here = pair.accepted().await;
    here.read_open().await.unwrap();
    pair.agent.begin_drain();
    soon(async {
        while !pair.server.is_draining() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(matches!(pair.server.open(&open()).await, Err(OpenError::Draining)));

    let sent = vec![3; 5_000_000];
    let writing = async {
        here.write_all(&sent).await.unwrap();
        here.shutdown().await.unwrap();
        here.read_to_end(&mut Vec::new()).await.unwrap();
        drop(here);
    };
    let reading = async {
        let mut received = Vec::new();
        there.read_to_end(&mut received).await.unwrap();
        there.shutdown().await.unwrap();
        drop(there);
        received
    };
    let ((), received) = soon(async { tokio::join!(writing, reading) }).await;

    assert!(received == sent);
    assert_eq!(soon(pair.server_ended).await.unwrap(), TunnelEnded::Drained);
    assert_eq!(soon(pair.agent_ended).await.unwrap(), TunnelEnded::Drained);
}

#[tokio::test]
async fn more_streams_than_granted_wait_for_their_turn_and_then_say_so() {
    let pair = Pair::greeted().await;
    let agent = pair.agent.clone();
    let _accepted = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok(stream) = agent.accept().await {
            held.push(stream);
        }
    });
    let mut streams = Vec::new();
    for _ in 0..transport::STREAMS_MAX {
        streams.push(pair.server.open(&open()).await.unwrap());
    }
    assert!(matches!(soon(pair.server.open(&open())).await, Err(OpenError::Full)));
    assert_eq!(pair.server.streams_open(), transport::STREAMS_MAX);
}

#[tokio::test]
async fn an_agent_grants_128_streams_until_it_has_accepted_half_of_that() {
    let pair = Pair::greeted().await;
    let at_first = 128;
    let mut streams = Vec::new();
    for _ in 0..at_first {
        streams.push(pair.server.open(&open()).await.unwrap());
    }
    assert!(matches!(soon(pair.server.open(&open())).await, Err(OpenError::Full)));

    let mut accepted = Vec::new();
    for _ in 0..at_first / 2 {
        accepted.push(soon(pair.agent.accept()).await.unwrap());
    }
    for _ in 0..at_first {
        streams.push(pair.server.open(&open()).await.unwrap());
    }
}

#[tokio::test]
async fn a_restarted_server_is_noticed_by_its_persisted_keys() {
    let keys = EndpointKeys::generate().unwrap();
    let authority = Authority::new();
    let spawner = KilledTogether::default();
    let first = authority.server_with("127.0.0.1:0", &keys, Arc::new(spawner.clone()));
    let address = first.address().unwrap();
    let agent = authority.agent_endpoint();
    let pair = authority.greet(first, &agent).await;
    // As SIGKILL does: nobody says goodbye, and the port is free.
    pair.server_task.abort();
    spawner.kill();
    drop((pair.server, pair.endpoints));

    let _second = rebound(&authority, address, &keys).await;

    assert_eq!(soon(pair.agent_ended).await.unwrap(), TunnelEnded::Restarted);
}

#[tokio::test]
async fn an_agent_of_another_authority_gets_no_tunnel() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let server = ours.server("127.0.0.1:0");
    let material = Material { peer_roots: vec![ours.server_root.clone()], ..theirs.agent_material() };
    let endpoint = ours.agent_endpoint();
    let address = server.address().unwrap();
    let tls = DialTls::new(material).unwrap();
    let accepting = async { server.accept().await.unwrap().shake_hands().await };

    let (dialed, shaken) = soon(async {
        tokio::join!(endpoint.dial(address, "gateway.test", &tls, hello(), HANDSHAKE_MAX), accepting)
    })
    .await;

    assert!(matches!(shaken, Err(GreetError::Handshake(_))));
    match dialed.map(drop) {
        Err(DialError::Rejected(reason)) => assert!(reason.contains("agents' CA"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_server_of_another_authority_or_name_is_not_trusted() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    for (authority, name) in [(&theirs, "gateway.test"), (&ours, "elsewhere.test")] {
        let server = authority.server("127.0.0.1:0");
        let address = server.address().unwrap();
        let endpoint = ours.agent_endpoint();
        let tls = DialTls::new(ours.agent_material()).unwrap();
        let accepting = async {
            // Ends by the other side's alert.
            let _ = server.accept().await.unwrap().shake_hands().await;
        };
        let (dialed, ()) = soon(async {
            tokio::join!(endpoint.dial(address, name, &tls, hello(), HANDSHAKE_MAX), accepting)
        })
        .await;
        assert!(matches!(dialed, Err(DialError::Untrusted(_))), "{name}");
    }
}

#[tokio::test]
async fn version_two_alone_is_refused_in_words_and_one_and_two_are_accepted() {
    let authority = Authority::new();
    let refused = authority.try_greet(Hello { versions: vec![2], ..hello() }).await;
    let Err(DialError::Refused(refused)) = refused.map(drop) else { panic!("a tunnel, or another error") };
    assert_eq!(refused.reason(), Reason::Version);
    assert!(refused.message.contains("{2}") && refused.message.contains("{1}"), "{}", refused.message);

    let dialed = authority.try_greet(Hello { versions: vec![1, 2], ..hello() }).await.unwrap();
    assert_eq!(dialed.welcome.version, 1);
}

#[tokio::test]
async fn changed_endpoints_reach_the_server() {
    let mut pair = Pair::greeted().await;
    pair.agent.advertise(vec!["192.168.1.10:6443".to_owned()]);
    let event = soon(pair.server_events.recv()).await.unwrap();
    assert_eq!(event, TunnelEvent::Endpoints(vec!["192.168.1.10:6443".to_owned()]));
}

#[tokio::test]
async fn a_dropped_driver_ends_the_tunnel_for_both() {
    let pair = Pair::greeted().await;
    pair.server_task.abort();
    assert_eq!(soon(pair.agent_ended).await.unwrap(), TunnelEnded::ClosedByPeer(CloseCode::Stopping));
    assert_eq!(pair.agent.health(), Health::Lost);
}

/// A greeted tunnel, both ends driven.
struct Pair {
    server: Tunnel,
    agent: Tunnel,
    server_events: mpsc::Receiver<TunnelEvent>,
    server_task: tokio::task::AbortHandle,
    server_ended: tokio::task::JoinHandle<TunnelEnded>,
    agent_ended: tokio::task::JoinHandle<TunnelEnded>,
    /// Held, because a closed endpoint closes its connections.
    endpoints: (Endpoint, Endpoint),
}

impl Pair {
    async fn greeted() -> Self {
        let authority = Authority::new();
        let agent = authority.agent_endpoint();
        authority.greet(authority.server("127.0.0.1:0"), &agent).await
    }

    async fn accepted(&self) -> TunnelStream {
        soon(self.agent.accept()).await.unwrap()
    }
}

struct Authority {
    server_root: CertificateDer<'static>,
    server: (CertificateDer<'static>, Vec<u8>),
    agent_root: CertificateDer<'static>,
    agent: (CertificateDer<'static>, Vec<u8>),
}

impl Authority {
    fn new() -> Self {
        let (server_root, server) = issue(SanType::DnsName("gateway.test".try_into().unwrap()));
        let (agent_root, agent) =
            issue(SanType::URI("spiffe://tombolo/cluster/edge-a/agent/x".try_into().unwrap()));
        Self { server_root, server, agent_root, agent }
    }

    fn agent_material(&self) -> Material {
        Material {
            chain: vec![self.agent.0.clone()],
            key: PrivateKeyDer::try_from(self.agent.1.clone()).unwrap(),
            peer_roots: vec![self.server_root.clone()],
        }
    }

    fn server_material(&self) -> Material {
        Material {
            chain: vec![self.server.0.clone()],
            key: PrivateKeyDer::try_from(self.server.1.clone()).unwrap(),
            peer_roots: vec![self.agent_root.clone()],
        }
    }

    fn server(&self, address: &str) -> Endpoint {
        self.server_with(address, &EndpointKeys::generate().unwrap(), Arc::new(Tokio))
    }

    fn server_with(&self, address: &str, keys: &EndpointKeys, spawn: Arc<dyn Spawn>) -> Endpoint {
        self.try_server(address.parse().unwrap(), keys, spawn).unwrap()
    }

    fn try_server(
        &self,
        address: SocketAddr,
        keys: &EndpointKeys,
        spawn: Arc<dyn Spawn>,
    ) -> Result<Endpoint, transport::EndpointError> {
        Endpoint::serve(address, self.server_material(), keys, ServerNumber(1), spawn)
    }

    fn agent_endpoint(&self) -> Endpoint {
        let keys = EndpointKeys::generate().unwrap();
        Endpoint::dialing("127.0.0.1:0".parse().unwrap(), &keys, Arc::new(Tokio)).unwrap()
    }

    async fn greet(&self, server: Endpoint, agent: &Endpoint) -> Pair {
        let tls = DialTls::new(self.agent_material()).unwrap();
        let address = server.address().unwrap();
        let (dialed, greeted) = soon(async {
            tokio::join!(agent.dial(address, "gateway.test", &tls, hello(), HANDSHAKE_MAX), accept(&server))
        })
        .await;
        let ((server_tunnel, server_driver, _), dialed) = (greeted.unwrap(), dialed.unwrap());
        let (events, server_events) = mpsc::channel(8);
        let server_ended = tokio::spawn(server_driver.run(move |event| events.try_send(event).unwrap()));
        Pair {
            server: server_tunnel,
            agent: dialed.tunnel,
            server_events,
            server_task: server_ended.abort_handle(),
            server_ended,
            agent_ended: tokio::spawn(dialed.driver.run(|_| {})),
            endpoints: (server, agent.clone()),
        }
    }

    async fn try_greet(&self, hello: Hello) -> Result<Dialed, DialError> {
        let server = self.server("127.0.0.1:0");
        let address = server.address().unwrap();
        let tls = DialTls::new(self.agent_material()).unwrap();
        let endpoint = self.agent_endpoint();
        let (dialed, _greeted) = soon(async {
            tokio::join!(endpoint.dial(address, "gateway.test", &tls, hello, HANDSHAKE_MAX), accept(&server))
        })
        .await;
        dialed
    }
}

async fn accept(server: &Endpoint) -> Result<(Tunnel, Driver, Greeting), GreetError> {
    let arrived = server.accept().await.unwrap().shake_hands().await?;
    let agent = AgentId::parse("spiffe://tombolo/cluster/edge-a/agent/x", "tombolo").unwrap();
    let host = Host {
        server_id: "server".to_owned(),
        software: "test".to_owned(),
        boot: BootNonce([7; 16]),
        keys_mark: [7; 8],
    };
    arrived.greet(&agent, &host, |_| Ok(())).await
}

/// Binds the address that a killed endpoint held, as soon as the system has let go of it.
async fn rebound(authority: &Authority, address: SocketAddr, keys: &EndpointKeys) -> Endpoint {
    soon(async {
        loop {
            match authority.try_server(address, keys, Arc::new(Tokio)) {
                Ok(endpoint) => return endpoint,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await
}

/// A root of its own, and one leaf for both ends of TLS.
fn issue(name: SanType) -> (CertificateDer<'static>, (CertificateDer<'static>, Vec<u8>)) {
    let mut root = CertificateParams::default();
    root.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let root = CertifiedIssuer::self_signed(root, KeyPair::generate().unwrap()).unwrap();
    let mut leaf = CertificateParams::default();
    leaf.subject_alt_names = vec![name];
    let key = KeyPair::generate().unwrap();
    let certificate = leaf.signed_by(&key, &root).unwrap();
    (root.der().clone(), (certificate.der().clone(), key.serialize_der()))
}

fn open() -> StreamOpen {
    let alice = Assert { user: "alice".to_owned(), groups: vec!["ops".to_owned()] };
    StreamOpen::http(alice, "audit".to_owned(), false)
}

fn hello() -> Hello {
    Hello {
        versions: VERSIONS.to_vec(),
        cluster: "edge-a".to_owned(),
        boot_nonce: vec![1; 16],
        sequence: 1,
        ..Hello::default()
    }
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, what).await.expect("soon")
}

struct Tokio;

impl Spawn for Tokio {
    fn spawn(&self, driver: Pin<Box<dyn Future<Output = ()> + Send>>) {
        tokio::spawn(driver);
    }
}

/// Drivers that can be killed at once, as a process is.
#[derive(Clone, Default)]
struct KilledTogether(Arc<std::sync::Mutex<Vec<tokio::task::AbortHandle>>>);

impl KilledTogether {
    fn kill(&self) {
        for driver in self.0.lock().unwrap().drain(..) {
            driver.abort();
        }
    }
}

impl Spawn for KilledTogether {
    fn spawn(&self, driver: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.0.lock().unwrap().push(tokio::spawn(driver).abort_handle());
    }
}
