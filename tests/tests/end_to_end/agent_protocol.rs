//! A tunnel-server with agents of other implementations: newer ones, broken ones, and noise.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use proto::frame;
use proto::wire::refused::Reason;
use proto::wire::{ControlFrame, Heartbeat, Hello, Refused, Welcome, control_frame::Frame};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint, RecvStream, SendStream};
use rustls::crypto::aws_lc_rs;
use rustls::{RootCertStore, version::TLS13};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tests::fake_api::{Behaviour, FakeApi};
use tests::prometheus::counts;
use tests::rig::{Agent, ApiServer, Rig};
use tokio::time::timeout;

/// More than the server gives a greeting (12 s).
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// A field of number 1000 with a string, which no version knows.
const UNKNOWN: [u8; 6] = [0xc2, 0x3e, 3, b'n', b'e', b'w'];

/// The message names both versions.
#[tokio::test]
async fn an_agent_of_another_protocol_version_is_refused() {
    let trial = AgentTrial::start().await;
    let mut agent = trial.dial("edge-b").await;

    agent.send(&hello("edge-b", &[2])).await;
    let Some(Frame::Refused(Refused { reason, message, versions, .. })) = agent.receive().await else {
        panic!("not refused");
    };

    assert_eq!((reason, versions), (Reason::Version.into(), vec![1]));
    assert_eq!(message, "the agent speaks versions {2} and this server {1}; upgrade the older of the two");
    trial.rig.logged("server.log", 0, &message).await;
    trial.failed("refused", 1.0).await;
    trial.others_are_undisturbed().await;
}

#[tokio::test]
async fn an_agent_that_speaks_more_versions_is_accepted_with_the_common_one() {
    let trial = AgentTrial::start().await;
    let mut agent = trial.dial("edge-b").await;

    agent.send(&hello("edge-b", &[1, 2])).await;

    assert_eq!(agent.welcome().await.version, 1);
    trial.rig.connected("edge-b").await;
}

#[tokio::test]
async fn frames_and_fields_of_a_newer_agent_are_ignored() {
    let trial = AgentTrial::start().await;
    let mut agent = trial.dial("edge-b").await;

    // A Hello with a field that nobody knows, then a frame that nobody knows, then a heartbeat beside such a
    // field.
    let mut greeting = BytesMut::new();
    let Some(Frame::Hello(known)) = hello("edge-b", &[1]).frame else { unreachable!("a Hello") };
    frame::encode(&known, &mut greeting).expect("a frame");
    let known = greeting.split_off(1);
    let body = [&[0x0a, byte(known.len() + UNKNOWN.len())], known.as_ref(), &UNKNOWN].concat();
    agent.write(&[&[byte(body.len())], body.as_slice()].concat()).await;
    agent.welcome().await;
    agent.write(&[&[byte(UNKNOWN.len())], UNKNOWN.as_slice()].concat()).await;
    let mut heartbeat = BytesMut::new();
    let beat = Heartbeat { interval_ms: 3000, ..Heartbeat::default() };
    frame::encode(&ControlFrame::from(Frame::Heartbeat(beat)), &mut heartbeat).expect("a frame");
    let body = [&heartbeat[1..], &UNKNOWN].concat();
    agent.write(&[&[byte(body.len())], body.as_slice()].concat()).await;

    // The server has read all of it when it answers a frame behind it: by its own `Drained`.
    agent.send(&Frame::Drain(proto::wire::Drain {}).into()).await;
    while !matches!(agent.receive().await, Some(Frame::Drained(_))) {}
    assert!(trial.rig.server_log().contains("tunnel opened agent=edge-b"), "{}", trial.rig.server_log());
    trial.others_are_undisturbed().await;
}

#[tokio::test]
async fn an_agent_for_another_cluster_than_its_certificates_is_refused() {
    let trial = AgentTrial::start().await;
    let mut agent = trial.dial("edge-b").await;

    agent.send(&hello("edge-a", &[1])).await;
    let refused = agent.receive().await;

    let Some(Frame::Refused(refused)) = refused else { panic!("not refused: {refused:?}") };
    assert!(refused.message.contains("edge-a") && refused.message.contains("edge-b"), "{}", refused.message);
    trial.others_are_undisturbed().await;
}

#[tokio::test]
async fn an_agent_that_offers_another_alpn_protocol_too_is_refused() {
    let trial = AgentTrial::start().await;

    for protocols in [&["tombolo/1", "h3"][..], &["h3", "tombolo/1"], &["h3"], &[]] {
        let refused = trial.connect_offering(Some("edge-b-agent"), protocols).await;
        assert!(matches!(refused, Err(ConnectionError::ConnectionClosed(_))), "{protocols:?}: {refused:?}");
    }
    trial.connect("edge-b").await;
    trial.others_are_undisturbed().await;
}

#[tokio::test]
async fn an_agent_whose_cluster_has_a_name_of_the_servers_own_is_refused() {
    let trial = AgentTrial::start().await;
    for name in ["www", "console", "admin"] {
        trial.rig.tombolo(&["ca", "issue", "agent", "--dir", "pki", "--cluster", name]).await;
        let mut agent = trial.dial(name).await;

        agent.send(&hello(name, &[1])).await;

        let Some(Frame::Refused(refused)) = agent.receive().await else { panic!("{name} is let in") };
        assert!(refused.message.contains("reserved for the server itself"), "{}", refused.message);
    }
    trial.others_are_undisturbed().await;
}

#[tokio::test]
async fn a_malformed_hello_closes_only_its_own_connection() {
    let trial = AgentTrial::start().await;
    let heartbeat = {
        let mut bytes = BytesMut::new();
        let beat = ControlFrame::from(Frame::Heartbeat(Heartbeat::default()));
        frame::encode(&beat, &mut bytes).expect("a frame");
        bytes.to_vec()
    };
    let greetings: [(&str, &[u8]); 4] = [
        ("garbage", &[0xff; 100]),
        ("a claim of 2 MiB", &[0x80, 0x80, 0x80, 0x01]),
        ("a frame that is no protobuf", &[2, 0xff, 0xff]),
        ("a heartbeat in place of a Hello", &heartbeat),
    ];
    for (what, bytes) in greetings {
        let mut agent = trial.dial("edge-b").await;
        agent.write(bytes).await;
        let closed = agent.closed().await;
        assert!(matches!(closed, ConnectionError::ApplicationClosed(_)), "{what}: {closed}");
    }
    trial.failed("greeting", 4.0).await;
    trial.others_are_undisturbed().await;
}

#[tokio::test]
async fn an_agent_that_says_nothing_is_closed_after_a_while() {
    let trial = AgentTrial::start().await;
    let silent = trial.connect("edge-b").await;
    let with_an_empty_stream = trial.dial("edge-b").await;

    for connection in [silent, with_an_empty_stream.connection.clone()] {
        let closed = timeout(ANSWER_MAX, connection.closed()).await.expect("it is closed");
        assert!(matches!(closed, ConnectionError::ApplicationClosed(_)), "{closed}");
    }
    trial.failed("too_slow", 2.0).await;
    trial.others_are_undisturbed().await;
}

#[tokio::test]
async fn streams_that_an_agent_opens_are_ignored() {
    let trial = AgentTrial::start().await;
    let mut agent = trial.dial("edge-b").await;
    agent.send(&hello("edge-b", &[1])).await;
    agent.welcome().await;
    trial.rig.connected("edge-b").await;

    // One more than the control stream is granted; nobody reads it, and flow control keeps it small.
    let (mut beyond, _) = agent.connection.open_bi().await.expect("the spare stream");
    beyond.write_all(b"GET /clusters/edge-a/api HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("it is taken");
    let pause = Duration::from_millis(500);
    assert!(timeout(pause, agent.connection.open_bi()).await.is_err(), "no third stream");
    assert!(timeout(pause, agent.connection.open_uni()).await.is_err(), "nothing of ours is one-way");

    assert_eq!(trial.api.requests().iter().filter(|request| request.target == "/api").count(), 0);
    trial.rig.connected("edge-b").await;
    trial.others_are_undisturbed().await;
}

/// No other tunnel is affected.
#[tokio::test]
async fn a_datagram_that_is_no_heartbeat_ends_its_own_tunnel() {
    let trial = AgentTrial::start().await;
    let mut agent = trial.dial("edge-b").await;
    agent.send(&hello("edge-b", &[1])).await;
    agent.welcome().await;
    trial.rig.connected("edge-b").await;

    // A frame's length, of 4 GiB.
    let noise = b"\xff\xff\xff\xff\x0f".as_slice();
    agent.connection.send_datagram(noise.into()).expect("heartbeats are datagrams");

    let ended =
        timeout(Duration::from_secs(30), agent.connection.closed()).await.expect("the server ends it");
    assert!(matches!(ended, ConnectionError::ApplicationClosed(_)), "{ended}");
    trial.others_are_undisturbed().await;
}

/// I2 of docs/security.md.
/// The names are what an agent calls itself and its cluster.
#[tokio::test]
async fn an_agents_names_stay_in_their_line_of_the_log() {
    let trial = AgentTrial::start().await;
    const EVIL: &str = "evil\u{1b}[31m\r\nlevel=ERROR forged\u{9b}0m\u{2028}next";
    for cluster in ["edge-b", EVIL] {
        let mut agent = trial.dial("edge-b").await;
        let Some(Frame::Hello(known)) = hello(cluster, &[1]).frame else { unreachable!("a Hello") };
        agent.send(&Frame::Hello(Hello { software: EVIL.to_owned(), ..known }).into()).await;
        // Taken for what its certificate says, or refused.
        assert!(matches!(agent.receive().await, Some(Frame::Welcome(_) | Frame::Refused(_))));
    }

    trial.rig.logged("server.log", 0, "software=\"evil").await;
    let log = trial.rig.server_log();
    let obeyed = |c: char| (c.is_control() && c != '\n') || c == '\u{2028}';
    assert!(
        !log.contains(obeyed),
        "{:?}",
        log.lines().filter(|line| line.contains(obeyed)).collect::<Vec<_>>()
    );
    assert!(log.lines().all(|line| line.starts_with("20")), "{log}");
    trial.others_are_undisturbed().await;
}

/// G6 of docs/security.md: unknown groups are the only things within things that a frame of ours can have.
#[tokio::test]
async fn nested_protobuf_groups_end_only_their_own_tunnel() {
    const DEPTH: usize = 10_000;
    let trial = AgentTrial::start().await;
    // Fields of number 1000: a group begins, and ends.
    let (begin, end) = ([0xc3, 0x3e], [0xc4, 0x3e]);
    for nested in [begin.repeat(DEPTH), [begin.repeat(DEPTH), end.repeat(DEPTH)].concat()] {
        let mut agent = trial.dial("edge-b").await;
        let length = [
            byte(nested.len() & 0x7f) | 0x80,
            byte((nested.len() >> 7) & 0x7f) | 0x80,
            byte(nested.len() >> 14),
        ];

        agent.write(&[&length[..], &nested].concat()).await;

        assert!(matches!(agent.closed().await, ConnectionError::ApplicationClosed(_)));
    }
    trial.others_are_undisturbed().await;
}

#[tokio::test]
async fn noise_at_the_udp_port_harms_nobody() {
    let trial = AgentTrial::start().await;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let mut state = 0x9e37_79b9_u32;
    for length in (1..1400).step_by(3) {
        let noise: Vec<u8> = std::iter::repeat_with(|| next(&mut state)).take(length).collect();
        // Once as it is, once as the long header of a version that exists, once of one that does not.
        for header in [&[][..], &[0xc0, 0, 0, 0, 1], &[0xff, 0x1a, 0x2a, 0x3a, 0x4a]] {
            let mut packet = noise.clone();
            let bytes = header.len().min(length);
            packet[..bytes].copy_from_slice(&header[..bytes]);
            socket.send_to(&packet, trial.rig.gateway()).expect("it is sent");
        }
    }
    trial.others_are_undisturbed().await;
}

#[tokio::test]
async fn a_callers_certificate_or_none_opens_no_tunnel() {
    let trial = AgentTrial::start().await;
    trial.rig.caller("alice", &["dev"]).await;

    for identity in [Some("alice-caller"), None] {
        let connection = trial.connect_as(identity).await;
        // In TLS 1.3 the server's judgement may come after the handshake.
        if let Ok(connection) = connection {
            let closed = timeout(ANSWER_MAX, connection.closed()).await.expect("it is closed");
            assert!(matches!(closed, ConnectionError::ConnectionClosed(_)), "{identity:?}: {closed}");
        }
    }
    assert_eq!(trial.rig.server_log().matches("tunnel opened").count(), 1);
    trial.failed("handshake", 2.0).await;
    trial.others_are_undisturbed().await;
}

/// A server with one rightful agent, and the means to come as another.
struct AgentTrial {
    rig: Rig,
    api: FakeApi,
    endpoint: Endpoint,
    _agent: Agent,
}

/// An agent by hand: its connection and its control stream.
struct HandmadeAgent {
    connection: Connection,
    send: SendStream,
    recv: RecvStream,
    read: BytesMut,
}

impl AgentTrial {
    async fn start() -> Self {
        let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
        api.on("/version", Behaviour::json("{}"));
        let agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
        rig.tombolo(&["ca", "issue", "agent", "--dir", "pki", "--cluster", "edge-b"]).await;
        let endpoint = Endpoint::client(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a socket");
        Self { rig, api, endpoint, _agent: agent }
    }

    /// Shakes hands with the certificate `NAME.crt` and its key, or with none.
    async fn connect_as(&self, name: Option<&str>) -> Result<Connection, ConnectionError> {
        self.connect_offering(name, &["tombolo/1"]).await
    }

    /// The same, offering these protocols.
    async fn connect_offering(
        &self,
        name: Option<&str>,
        protocols: &[&str],
    ) -> Result<Connection, ConnectionError> {
        let path = |file: String| self.rig.path().join("pki").join(file);
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(self.rig.server_ca().as_bytes()).expect("PEM");
        roots.add(root).expect("a root");
        let builder = rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .expect("the provider has TLS 1.3")
            .with_root_certificates(roots);
        let mut tls = match name {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let chain = CertificateDer::pem_file_iter(path(format!("{name}.crt"))).expect("PEM");
                let chain = chain.map(|certificate| certificate.expect("PEM")).collect();
                let key = PrivateKeyDer::from_pem_file(path(format!("{name}.key"))).expect("PEM");
                builder.with_client_auth_cert(chain, key).expect("a pair")
            }
        };
        tls.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).expect("TLS for QUIC")));
        let connecting =
            self.endpoint.connect_with(config, self.rig.gateway(), "127.0.0.1").expect("it dials");
        timeout(ANSWER_MAX, connecting).await.expect("an answer")
    }

    async fn connect(&self, cluster: &str) -> Connection {
        self.connect_as(Some(&format!("{cluster}-agent"))).await.expect("the certificate is accepted")
    }

    /// Comes as an agent of a cluster, as far as an empty control stream.
    async fn dial(&self, cluster: &str) -> HandmadeAgent {
        let connection = self.connect(cluster).await;
        let (send, recv) = connection.open_bi().await.expect("a stream");
        HandmadeAgent { connection, send, recv, read: BytesMut::new() }
    }

    /// The rightful agent still has its first tunnel, and it serves.
    /// Waits until the server has counted so many failed greetings for this reason.
    async fn failed(&self, reason: &str, times: f64) {
        let series = format!("tombolo_server_tunnel_handshakes_failed_total{{reason=\"{reason}\"}}");
        counts(&self.rig, self.rig.probes(), &series, times).await;
    }

    async fn others_are_undisturbed(&self) {
        let reply = self.rig.ask_with_token("GET", "/clusters/edge-a/version", &[]).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let log = self.rig.server_log();
        assert_eq!(log.matches("tunnel opened agent=edge-a").count(), 1, "{log}");
        assert!(!log.contains("panic"), "{log}");
    }
}

impl HandmadeAgent {
    async fn write(&mut self, bytes: &[u8]) {
        self.send.write_all(bytes).await.expect("it is sent");
    }

    async fn send(&mut self, frame: &ControlFrame) {
        let mut bytes = BytesMut::new();
        frame::encode(frame, &mut bytes).expect("a frame");
        self.write(&bytes).await;
    }

    async fn receive(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = frame::decode::<ControlFrame>(&mut self.read).expect("a frame") {
                return frame.frame;
            }
            let chunk = timeout(ANSWER_MAX, self.recv.read_chunk(4096, true)).await.expect("an answer");
            self.read.extend_from_slice(&chunk.expect("the stream lives").expect("more").bytes);
        }
    }

    async fn welcome(&mut self) -> Welcome {
        match self.receive().await {
            Some(Frame::Welcome(welcome)) => welcome,
            other => panic!("no Welcome: {other:?}"),
        }
    }

    async fn closed(&self) -> ConnectionError {
        timeout(ANSWER_MAX, self.connection.closed()).await.expect("it is closed")
    }
}

fn hello(cluster: &str, versions: &[u32]) -> ControlFrame {
    let (versions, cluster) = (versions.to_vec(), cluster.to_owned());
    Frame::Hello(Hello { versions, cluster, boot_nonce: vec![7; 16], sequence: 1, ..Hello::default() }).into()
}

/// A length below 128 is its own varint.
fn byte(length: usize) -> u8 {
    u8::try_from(length).ok().filter(|length| *length < 128).expect("a short frame")
}

/// Noise that is the same in every run (xorshift).
fn next(state: &mut u32) -> u8 {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    state.to_le_bytes()[0]
}
