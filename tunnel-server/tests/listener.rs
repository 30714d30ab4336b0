//! The TCP listener, from outside: accepted connections, limits and deadlines.

#![expect(
    clippy::unwrap_used,
    reason = "tests may unwrap; the configured exemption reaches no helper outside of a test function"
)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use daemon::listen::PROVING_MAX;
use daemon::{Rate, Scope};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::client::Resumption;
use rustls::{ClientConfig, HandshakeKind, RootCertStore, SupportedProtocolVersion, version};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use transport::tls::{Material, SharedCertificate};
use tunnel_server::enrollment;
use tunnel_server::listener::{
    AcceptedConnection, AgreedProtocol, Counters, Listener, ListenerLimits, ListenerTls, PerSourceLimits, tls,
};

/// Longer than anything here takes; its end is a failure.
const SOON: Duration = Duration::from_secs(20);

const WAITS: ListenerLimits = ListenerLimits {
    connections_max: 16,
    handshakes_max: 16,
    handshake: Duration::from_secs(600),
    source: PerSourceLimits::UNLIMITED,
    ..ListenerLimits::DEFAULT
};

#[tokio::test]
async fn a_caller_without_a_certificate_is_accepted_without_one() {
    let mut server = TestListener::open(WAITS);

    let mut stream = server.connect(server.caller(None, &version::TLS13)).await.unwrap();
    let seen = server.next().await;

    assert_eq!(seen.certificates, None);
    assert_eq!(seen.peer, stream.get_ref().0.local_addr().unwrap());
    assert!(is_served(&mut stream).await);
}

#[tokio::test]
async fn a_callers_certificate_is_handed_over_in_both_versions_of_tls() {
    let mut server = TestListener::open(WAITS);
    let alice = server.callers.issue("alice");
    for version in [&version::TLS12, &version::TLS13] {
        let mut stream = server.connect(server.caller(Some(&alice), version)).await.unwrap();
        assert!(is_served(&mut stream).await);
        assert_eq!(server.next().await.certificates, Some(vec![alice.certificate.clone()]));
    }
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() {
    let server = TestListener::open(WAITS);
    let mallory = Authority::new().issue("alice");
    for version in [&version::TLS12, &version::TLS13] {
        // In TLS 1.3 the caller learns of it only when it reads.
        let refused = match server.connect(server.caller(Some(&mallory), version)).await {
            Ok(mut stream) => !is_served(&mut stream).await,
            Err(_) => true,
        };
        assert!(refused, "{version:?}");
    }
    wait_for(&server.counts, |counts| counts.handshake_failed == 2 && counts.accepted == 0).await;
}

#[tokio::test]
async fn no_session_is_ever_resumed() {
    let mut server = TestListener::open(WAITS);
    let alice = server.callers.issue("alice");
    for version in [&version::TLS12, &version::TLS13] {
        let mut config = server.caller(Some(&alice), version);
        config.resumption = Resumption::in_memory_sessions(8);
        let config = Arc::new(config);
        for _ in 0..3 {
            let mut stream = server.connect(Arc::clone(&config)).await.unwrap();
            // The answer comes behind the session tickets, if there were any.
            assert!(is_served(&mut stream).await);
            let connection = stream.get_ref().1;
            assert_eq!(connection.tls13_tickets_received(), 0);
            assert!(
                !matches!(connection.handshake_kind(), None | Some(HandshakeKind::Resumed)),
                "{version:?}"
            );
            assert!(server.next().await.certificates.is_some());
        }
    }
}

#[tokio::test]
async fn http2_is_preferred_to_http1() {
    let mut server = TestListener::open(WAITS);
    for (offered, protocol) in [
        (&["http/1.1", "h2"][..], AgreedProtocol::Http2),
        (&["http/1.1"], AgreedProtocol::Http1),
        (&[], AgreedProtocol::Http1),
    ] {
        let mut config = server.caller(None, &version::TLS13);
        config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
        let _stream = server.connect(config).await.unwrap();
        assert_eq!(server.next().await.protocol, protocol, "{offered:?}");
    }
}

#[tokio::test]
async fn a_client_with_the_tunnels_alpn_is_verified_by_the_agents_ca() {
    let mut server = TestListener::open(WAITS);
    let (agent, alice) = (server.agents.issue("agent"), server.callers.issue("alice"));
    let offering = |issued: Option<&Issued>, offered: &[&str]| {
        let mut config = server.caller(issued, &version::TLS13);
        config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
        config
    };
    let tunnel = std::str::from_utf8(transport::tls::ALPN).unwrap();
    let let_in = offering(Some(&agent), &[tunnel]);
    let turned_away = [
        offering(Some(&alice), &[tunnel]),
        offering(None, &[tunnel]),
        // A client that offers the protocols of two listeners is refused by both.
        offering(Some(&agent), &["h2", tunnel]),
        offering(Some(&agent), &[tunnel, "h2"]),
        // An agent is no caller either.
        offering(Some(&agent), &["h2"]),
    ];

    for config in turned_away {
        let refused = match server.connect(config).await {
            Ok(mut stream) => !is_served(&mut stream).await,
            Err(_) => true,
        };
        assert!(refused);
    }
    let mut stream = server.connect(let_in).await.unwrap();

    assert!(is_served(&mut stream).await);
    let seen = server.next().await;
    assert_eq!((seen.protocol, seen.certificates), (AgreedProtocol::Tunnel, Some(vec![agent.certificate])));
}

#[tokio::test]
async fn silent_handshakes_delay_no_other_connection() {
    let mut server = TestListener::open(WAITS);
    let mut silent = Vec::new();
    for bytes in [&[][..], &[0x16], &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc]] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        silent.push(stream);
    }

    let mut stream = server.connect(server.caller(None, &version::TLS13)).await.unwrap();

    assert!(is_served(&mut stream).await);
    assert_eq!(server.next().await.peer, stream.get_ref().0.local_addr().unwrap());
}

#[tokio::test]
async fn a_silent_handshake_ends_at_its_deadline() {
    let server = TestListener::open(ListenerLimits { handshake: Duration::from_millis(50), ..WAITS });
    let mut silent = TcpStream::connect(server.address).await.unwrap();

    let ended = timeout(SOON, silent.read(&mut [0; 1])).await.expect("the deadline ends it");

    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    assert_eq!(server.counts.values().handshake_failed, 1);
}

#[tokio::test]
async fn beyond_the_limit_of_handshakes_the_newest_is_closed() {
    let server = TestListener::open(ListenerLimits { handshakes_max: 1, ..WAITS });
    let silent = TcpStream::connect(server.address).await.unwrap();

    assert!(server.connect(server.caller(None, &version::TLS13)).await.is_err());
    assert_eq!(server.counts.values().turned_away, 1);

    // The slot is free when the handshake is over, in any case.
    drop(silent);
    wait_for(&server.counts, |counts| counts.handshake_failed == 1).await;
    let mut inside = Vec::new();
    for _ in 0..2 {
        let mut stream = server.connect(server.caller(None, &version::TLS13)).await.unwrap();
        // Only then has the listener too seen the end of the handshake.
        assert!(is_served(&mut stream).await);
        inside.push(stream);
    }
}

/// The next one is accepted when an open one has ended.
#[tokio::test]
async fn beyond_the_limit_of_connections_the_newest_is_closed() {
    let mut server = TestListener::open(ListenerLimits { connections_max: 1, ..WAITS });
    let first = server.connect(server.caller(None, &version::TLS13)).await.unwrap();
    let seen = server.next().await;

    assert!(server.connect(server.caller(None, &version::TLS13)).await.is_err());

    drop(first);
    timeout(SOON, seen.ended.closed()).await.expect("the first connection ends");
    assert!(server.connect(server.caller(None, &version::TLS13)).await.is_ok());
    assert_eq!(server.counts.values().turned_away, 1);
}

#[tokio::test]
async fn beyond_the_limit_of_a_source_only_certificates_are_accepted() {
    let rate = Rate { per_second: 1_000, burst: 1_000 };
    let source = PerSourceLimits { connections: 1, rate, proving: PROVING_MAX };
    let mut server = TestListener::open(ListenerLimits { source, ..WAITS });
    let alice = server.callers.issue("alice");
    let nameless = || server.caller(None, &version::TLS13);
    let mut first = server.connect(nameless()).await.unwrap();
    let beyond = match server.connect(nameless()).await {
        Ok(mut stream) => is_served(&mut stream).await,
        Err(_) => false,
    };
    let mut certified = server.connect(server.caller(Some(&alice), &version::TLS13)).await.unwrap();

    assert!(!beyond);
    assert!(is_served(&mut certified).await && is_served(&mut first).await);
    assert_eq!((server.counts.values().source_limited, server.counts.values().busiest_source), (1, 1));
    let seen = server.next().await;
    drop(first);
    timeout(SOON, seen.ended.closed()).await.expect("the first connection ends");
    let mut again = server.connect(server.caller(None, &version::TLS13)).await.unwrap();
    assert!(is_served(&mut again).await, "its slot is free again");
}

/// A certificate is a proof for good. A client without one has some seconds to prove itself by another credential.
#[tokio::test]
async fn a_full_enrollment_listener_has_slots_for_agents_that_prove_themselves() {
    let server = TestListener::open(ListenerLimits { connections_max: 1, ..enrollment::LIMITS });
    let agent = server.callers.issue("agent");
    let mut first = server.connect(server.caller(None, &version::TLS13)).await.unwrap();
    assert!(is_served(&mut first).await);

    let mut certified = server.connect(server.caller(Some(&agent), &version::TLS13)).await.unwrap();
    let mut nameless = server.connect(server.caller(None, &version::TLS13)).await.unwrap();

    assert!(is_served(&mut certified).await && is_served(&mut nameless).await);
    let end = timeout(SOON, nameless.read(&mut [0])).await.expect("it has proved nothing");
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    assert!(is_served(&mut certified).await && is_served(&mut first).await);
    assert_eq!(server.counts.values().turned_away, 0);
}

#[tokio::test]
async fn a_drain_closes_the_listener_and_keeps_open_connections() {
    let mut server = TestListener::open(WAITS);
    let mut inside = server.connect(server.caller(None, &version::TLS13)).await.unwrap();
    let _seen = server.next().await;

    server.scope.begin_drain();

    let closed = async {
        while TcpStream::connect(server.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, closed).await.expect("the socket is closed");
    assert!(is_served(&mut inside).await);
}

#[tokio::test]
async fn a_new_tls_configuration_applies_from_the_next_handshake() {
    let server = TestListener::open(WAITS);
    let renewed = Authority::new();
    assert!(server.connect(server.caller(None, &version::TLS13)).await.is_ok());

    server.tls.send_replace(Arc::new(renewed.server_config(&server.callers)));

    assert!(server.connect(server.caller(None, &version::TLS13)).await.is_err());
    assert!(server.connect(caller(&renewed, None, &version::TLS13)).await.is_ok());
}

#[tokio::test]
async fn a_port_in_use_is_named_with_its_key() {
    let server = TestListener::open(WAITS);

    let error = Listener::bind("gateway.listen", server.address, ListenerTls::default(), WAITS).unwrap_err();

    assert!(error.to_string().starts_with(&format!("gateway.listen: {} is already in use", server.address)));
}

/// A listener that answers each byte with the same byte.
struct TestListener {
    address: SocketAddr,
    scope: Scope,
    servers: Authority,
    callers: Authority,
    agents: Authority,
    tls: watch::Sender<Arc<rustls::ServerConfig>>,
    counts: Arc<Counters>,
    seen: mpsc::Receiver<Seen>,
}

/// A connection that the listener has handed over.
struct Seen {
    peer: SocketAddr,
    certificates: Option<Vec<CertificateDer<'static>>>,
    protocol: AgreedProtocol,
    /// Its receiver lives as long as the connection's slot.
    ended: mpsc::Sender<()>,
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    root: CertificateDer<'static>,
}

struct Issued {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl TestListener {
    fn open(limits: ListenerLimits) -> Self {
        let (servers, callers) = (Authority::new(), Authority::new());
        let tls = watch::Sender::new(Arc::new(servers.server_config(&callers)));
        let any = "127.0.0.1:0".parse().unwrap();
        let agents = Authority::new();
        let listeners = ListenerTls {
            callers: Some(tls.subscribe()),
            agents: Some(agents.agents_config(&servers)),
            optional: None,
        };
        let listener = Listener::bind("gateway.listen", any, listeners, limits).unwrap();
        let (scope, address, counts) = (Scope::here(), listener.address(), listener.counters());
        let (handed_over, seen) = mpsc::channel(64);
        scope.spawn(listener.run(scope.clone(), move |accepted| echo(accepted, handed_over.clone())));
        Self { address, scope, servers, callers, agents, tls, counts, seen }
    }

    fn caller(&self, issued: Option<&Issued>, version: &'static SupportedProtocolVersion) -> ClientConfig {
        caller(&self.servers, issued, version)
    }

    async fn connect(&self, config: impl Into<Arc<ClientConfig>>) -> std::io::Result<TlsStream<TcpStream>> {
        let connected = async {
            let stream = TcpStream::connect(self.address).await?;
            let name = "gateway.example".try_into().unwrap();
            TlsConnector::from(config.into()).connect(name, stream).await
        };
        timeout(SOON, connected).await.expect("nobody waits for a handshake")
    }

    async fn next(&mut self) -> Seen {
        timeout(SOON, self.seen.recv()).await.expect("a connection is handed over").unwrap()
    }
}

impl Drop for TestListener {
    fn drop(&mut self) {
        self.scope.abort();
    }
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap().der().clone();
        Self { issuer: Issuer::new(params, key), root }
    }

    fn issue(&self, name: &str) -> Issued {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        Issued { certificate, key: PrivateKeyDer::try_from(key.serialize_der()).unwrap() }
    }

    /// The TLS configuration for these agents, with a certificate of `servers`.
    fn agents_config(&self, servers: &Self) -> Arc<rustls::ServerConfig> {
        let Issued { certificate, key } = servers.issue("gateway.example");
        let material = Material { chain: vec![certificate], key, peer_roots: vec![self.root.clone()] };
        transport::tls::tcp_server_config(material.try_into().unwrap()).unwrap()
    }

    fn server_config(&self, callers: &Self) -> rustls::ServerConfig {
        let Issued { certificate, key } = self.issue("gateway.example");
        let certificate = SharedCertificate::new(vec![certificate], key).unwrap();
        tls::server_config(certificate, Some(vec![callers.root.clone()])).unwrap()
    }
}

fn caller(
    servers: &Authority,
    issued: Option<&Issued>,
    version: &'static SupportedProtocolVersion,
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(servers.root.clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(transport::tls::provider())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots);
    match issued {
        Some(issued) => {
            builder.with_client_auth_cert(vec![issued.certificate.clone()], issued.key.clone_key()).unwrap()
        }
        None => builder.with_no_client_auth(),
    }
}

async fn echo(accepted: AcceptedConnection, handed_over: mpsc::Sender<Seen>) {
    let AcceptedConnection { mut stream, peer, peer_certificates, protocol, home: _, permit } = accepted;
    let (ended, lives) = mpsc::channel(1);
    handed_over.send(Seen { peer, certificates: peer_certificates, protocol, ended }).await.unwrap_or(());
    let mut byte = [0];
    while stream.read_exact(&mut byte).await.is_ok() && stream.write_all(&byte).await.is_ok() {
        stream.flush().await.unwrap_or(());
    }
    drop((permit, lives));
}

/// Returns true if a byte comes back.
async fn is_served(stream: &mut TlsStream<TcpStream>) -> bool {
    let mut answer = [0];
    let asked = async {
        stream.write_all(b"x").await.is_ok()
            && stream.flush().await.is_ok()
            && stream.read_exact(&mut answer).await.is_ok()
    };
    timeout(SOON, asked).await.expect("an answer or an end")
}

async fn wait_for(counts: &Counters, reached: impl Fn(tunnel_server::listener::CounterValues) -> bool) {
    let polled = async {
        while !reached(counts.values()) {
            tokio::task::yield_now().await;
        }
    };
    if timeout(SOON, polled).await.is_err() {
        panic!("{:?}", counts.values());
    }
}
