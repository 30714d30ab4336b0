//! A server with one rightful agent, and clients that attack it with broken QUIC.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use proto::frame;
use proto::wire::{ControlFrame, Hello, control_frame::Frame};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint};
use tokio::time::timeout;

use super::forged::Forgery;
use crate::dial;
use crate::fake_api::{Behaviour, FakeApi};
use crate::rig::{Agent, ApiServer, Rig};

/// More than the server gives a greeting (12 s).
pub const ANSWER_MAX: Duration = Duration::from_secs(30);

/// The growth of the server's memory that is allowed under attack. THREATS.md allows it for one connection.
pub const GROWTH_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A server, and its one rightful agent, of the cluster `edge-a`.
pub struct Trial {
    /// The server and its files.
    pub rig: Rig,
    /// The API server behind the agent.
    pub api: FakeApi,
    endpoint: Endpoint,
    resident_bytes: u64,
    _agent: Agent,
}

impl Trial {
    /// Starts all of it; an agent of the cluster `edge-b` has a certificate, and is the attacker.
    ///
    /// # Panics
    /// Where something does not start.
    pub async fn start() -> Self {
        let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
        api.on("/version", Behaviour::json("{}"));
        let agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
        rig.tombolo(&["ca", "issue", "agent", "--dir", "pki", "--cluster", "edge-b"]).await;
        let endpoint = Endpoint::client(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a socket");
        let resident_bytes = rig.resident_bytes();
        Self { rig, api, endpoint, resident_bytes, _agent: agent }
    }

    /// The TLS of the agent of `edge-b`.
    ///
    /// # Panics
    /// Without its certificate.
    pub fn tls(&self) -> rustls::ClientConfig {
        let identity = self.rig.issued("edge-b-agent");
        let mut tls = dial::config(&self.rig.server_ca(), Some(&identity)).expect("a configuration");
        tls.alpn_protocols = vec![b"tombolo/1".to_vec()];
        tls
    }

    /// Makes a QUIC handshake as the agent of `edge-b`, at the given address.
    ///
    /// # Errors
    /// If the server, or the path, does not permit it.
    ///
    /// # Panics
    /// If nothing comes in time.
    pub async fn connect(&self, forgery: &Forgery) -> Result<Connection, ConnectionError> {
        let tls = QuicClientConfig::try_from(self.tls()).expect("TLS for QUIC");
        self.connect_with(forgery.client_config(tls), self.rig.gateway()).await
    }

    /// The same with the test's own configuration, at another address.
    ///
    /// # Errors
    /// As [`Trial::connect`].
    ///
    /// # Panics
    /// If nothing comes in time.
    pub async fn connect_with(
        &self,
        config: ClientConfig,
        to: SocketAddr,
    ) -> Result<Connection, ConnectionError> {
        let connecting = self.endpoint.connect_with(config, to, "127.0.0.1").expect("it dials");
        timeout(ANSWER_MAX, connecting).await.expect("an answer")
    }

    /// Connects as the agent of `edge-b`, completes the tunnel handshake, and forges nothing yet.
    ///
    /// # Panics
    /// If the tunnel handshake fails.
    pub async fn greeted(&self, forgery: &Forgery) -> Connection {
        let connection = self.connect(forgery).await.expect("the certificate is accepted");
        Self::greet(&connection).await;
        connection
    }

    /// Greets as the agent of `edge-b`, and is welcomed.
    ///
    /// # Panics
    /// Where it is not.
    pub async fn greet(connection: &Connection) {
        let (mut send, mut recv) = connection.open_bi().await.expect("the control stream");
        send.write_all(&hello()).await.expect("it is sent");
        let mut answer = BytesMut::new();
        loop {
            if let Some(frame) = frame::decode::<ControlFrame>(&mut answer).expect("a frame") {
                assert!(matches!(frame.frame, Some(Frame::Welcome(_))), "{frame:?}");
                break;
            }
            let chunk = timeout(ANSWER_MAX, recv.read_chunk(4096, true)).await.expect("an answer");
            answer.extend_from_slice(&chunk.expect("the stream lives").expect("more").bytes);
        }
        // A stream that is dropped says so.
        tokio::spawn(async move {
            let _ = (recv.received_reset().await, send);
        });
    }

    /// The rightful agent still has its first tunnel, and it serves; the server has not grown beyond what it
    /// may.
    ///
    /// # Panics
    /// Otherwise.
    pub async fn others_are_undisturbed(&self) {
        let reply = self.rig.ask_with_token("GET", "/clusters/edge-a/version", &[]).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let log = self.rig.server_log();
        assert_eq!(log.matches("tunnel opened agent=edge-a").count(), 1, "{log}");
        assert!(!log.contains("panic"), "{log}");
        let grown = self.rig.resident_bytes().saturating_sub(self.resident_bytes);
        assert!(grown <= GROWTH_BYTES_MAX, "the server has grown by {grown} bytes");
    }

    /// A correct agent can connect, and disconnects again.
    ///
    /// # Panics
    /// If it cannot.
    pub async fn new_agents_are_served(&self) {
        let connection = self.greeted(&Forgery::default()).await;
        self.rig.connected("edge-b").await;
        connection.close(quinn::VarInt::from_u32(0), b"");
        self.rig.disconnected("edge-b").await;
    }
}

/// The greeting of the agent of `edge-b`.
///
/// # Panics
/// Never.
pub fn hello() -> BytesMut {
    let hello = Hello {
        versions: vec![1],
        cluster: "edge-b".to_owned(),
        boot_nonce: vec![7; 16],
        sequence: 1,
        ..Hello::default()
    };
    let mut bytes = BytesMut::new();
    frame::encode(&ControlFrame::from(Frame::Hello(hello)), &mut bytes).expect("a frame");
    bytes
}

/// The configuration of a client that forges nothing.
///
/// # Panics
/// Never, for a configuration with TLS 1.3.
pub fn honest(tls: rustls::ClientConfig) -> ClientConfig {
    ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).expect("TLS for QUIC")))
}
