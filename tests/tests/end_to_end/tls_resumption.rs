//! No listener resumes a TLS session, because that would skip the verifier. A returning client shows its
//! certificate again, whatever it has kept.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, HandshakeKind};
use rustls_pki_types::ServerName;
use tests::dial::config;
use tests::enroll;
use tests::pki::Issued;
use tests::rig::{GROUP, Rig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// The limit for any step of a test.
const DONE_MAX: Duration = Duration::from_secs(60);

/// The client keeps everything that could resume a session and still has to make a full handshake each time.
#[tokio::test]
async fn no_tls_session_is_resumed_even_with_what_the_server_sent() {
    let (rig, enrollment) = enroll::start("").await;
    let (ann, agent) = (rig.caller("ann", &[GROUP]).await, agents_certificate(&rig).await);
    let request = "GET /clusters HTTP/1.1\r\nHost: gateway.test\r\n\r\n";
    for (listener, address, protocol, identity, says) in [
        ("callers", rig.gateway(), "http/1.1", Some(&ann), request),
        ("callers", rig.gateway(), "h2", Some(&ann), ""),
        ("agents", rig.gateway(), "tombolo/1", Some(&agent), ""),
        ("enrollment", enrollment.address, "h2", None, ""),
    ] {
        let mut config = config(&rig.server_ca(), identity).expect("a configuration");
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let config = Arc::new(config);
        for time in 1..=3 {
            let (kind, tickets) = handshake(address, Arc::clone(&config), says).await;
            assert_eq!(kind, Some(HandshakeKind::Full), "{listener} by {protocol}, time {time}");
            assert_eq!(tickets, 0, "{listener} by {protocol} gave tickets");
        }
    }
}

/// The kind of a handshake, and the number of tickets that came with the first bytes after it.
async fn handshake(
    address: SocketAddr,
    config: Arc<ClientConfig>,
    says: &str,
) -> (Option<HandshakeKind>, u32) {
    let shaken = async {
        let name = ServerName::try_from("gateway.test").expect("a name");
        let socket = TcpStream::connect(address).await.expect("a listener");
        let mut stream = TlsConnector::from(config).connect(name, socket).await.expect("a handshake");
        stream.write_all(says.as_bytes()).await.expect("it reads");
        stream.read_exact(&mut [0; 9]).await.expect("each listener sends data soon");
        let (_, connection) = stream.get_ref();
        (connection.handshake_kind(), connection.tls13_tickets_received())
    };
    timeout(DONE_MAX, shaken).await.expect("in time")
}

async fn agents_certificate(rig: &Rig) -> Issued {
    rig.tombolo(&["ca", "issue", "agent", "--dir", "pki", "--cluster", "edge-a", "--id", "resumed"]).await;
    rig.issued("edge-a.resumed-agent")
}
