//! Tests sessions between servers over both carriers.

use std::sync::Arc;

use proto::AbortCode;
use proto::greeting::BootNonce;
use proto::peering::{
    CallerDigest, CallerShare, PeerGreeting, PeerInfo, PeerMessage, USAGE_CALLERS_MAX, UsageKind, ViaOutcome,
    ViaRequest,
};
use proto::session::ProtocolViolation;
use proto::wire::refused::Reason;
use rcgen::ExtendedKeyUsagePurpose;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use transport::tls::{self, ExpectedPeer, ServerMaterial, SharedCertificate, SharedRoots};
use transport::{
    Carrier, DialError, DialPath, DialTls, Dialed, Driver, Endpoint, EndpointKeys, GreetError, HANDSHAKE_MAX,
    PEER_QUEUE_BYTES_MAX, PeerOpening, ServerNumber, TellError, Tunnel, TunnelEnded, TunnelEvent, dial_tcp,
};

use crate::pair::{Authority, Pair, Server, Tokio, dial, hello, issue, open, soon};

const CARRIERS: [Carrier; 2] = [Carrier::Quic, Carrier::Http2];

/// The server `b`, which accepts, with the certificates of both servers.
struct Peers {
    listener: Server,
    server_root: CertificateDer<'static>,
    /// The certificate with which `a` dials.
    peer: Arc<SharedCertificate>,
}

/// A session from `a` to `b` after its greeting: `b` opens streams, and `a` accepts them.
struct Session {
    a: Dialed<PeerGreeting>,
    b: (Tunnel, Driver, PeerGreeting),
    /// Because a closed endpoint closes its connections.
    _kept: (Peers, Option<Endpoint>),
}

/// The certificate of `b` has none of the names or addresses that `a` dials.
#[tokio::test]
async fn two_servers_greet_and_each_knows_the_other() {
    for carrier in CARRIERS {
        let session = Session::greeted(carrier).await;
        let PeerGreeting { peer, version } = session.b.2;
        assert_eq!((peer, version), (server("a"), 1), "{carrier:?}");
        assert_eq!((session.a.welcome.peer, session.a.welcome.version), (server("b"), 1));
        assert_eq!((session.a.tunnel.carrier(), session.b.0.carrier()), (carrier, carrier));
    }
}

#[tokio::test]
async fn a_server_with_another_id_than_the_dialed_one_is_not_trusted() {
    for carrier in CARRIERS {
        let peers = Peers::new(carrier).await;
        let (dialed, _) =
            soon(async { tokio::join!(peers.dial("c"), peers.listener.accept_connection()) }).await;
        match dialed.map(drop) {
            Err(DialError::Untrusted(reason)) => assert_eq!(reason, "it is the server b, and c was dialed"),
            other => panic!("{carrier:?}: {other:?}"),
        }
    }
}

/// By its certificate, or by the last word of the server that accepts.
#[tokio::test]
async fn a_greeting_that_the_other_server_refuses_ends_with_its_reason() {
    for carrier in CARRIERS {
        for (certified_id, verdict, reason) in [
            ("c", Ok(()), Reason::Greeting),
            ("a", Err((Reason::Draining, "this server is stopping".to_owned())), Reason::Draining),
        ] {
            let peers = Peers::new(carrier).await;
            let accepting = async {
                let accepted = peers.listener.accept_connection().await.unwrap();
                assert_eq!(accepted.chain().len(), 1);
                accepted.greet_peer(certified_id, &server("b"), |_| verdict).await
            };

            let (dialed, greeted) = soon(async { tokio::join!(peers.dial("b"), accepting) }).await;

            assert!(matches!(greeted, Err(GreetError::Refused(_))), "{carrier:?}");
            match dialed.map(drop) {
                Err(DialError::Refused(refused)) => assert_eq!(refused.reason(), reason),
                other => panic!("{carrier:?}: {other:?}"),
            }
        }
    }
}

/// The handshake ends, because they have no protocol in common. Even with certificates of the right roots.
#[tokio::test]
async fn agents_and_servers_cannot_greet_at_each_others_listener() {
    for carrier in CARRIERS {
        let authority = Authority::new();
        let material = || authority.server_material().try_into().unwrap();
        let for_peers = listener(carrier, material()).await;
        let dialing = dial(carrier, for_peers.address(), "gateway.test", authority.agent_material(), hello());
        let (dialed, accepted) = soon(async { tokio::join!(dialing, for_peers.accept_connection()) }).await;
        assert!(accepted.is_none(), "{carrier:?}");
        assert!(matches!(dialed.map(drop), Err(DialError::Rejected(_))), "{carrier:?}");

        let for_agents = authority.server(carrier).await;
        let agent = authority.agent_material();
        let peers = Peers {
            listener: for_agents,
            server_root: authority.server_root.clone(),
            peer: SharedCertificate::new(agent.chain, agent.key).unwrap(),
        };
        let (dialed, accepted) =
            soon(async { tokio::join!(peers.dial("gateway"), peers.listener.accept_connection()) }).await;
        assert!(accepted.is_none(), "{carrier:?}");
        match dialed.map(drop) {
            Err(DialError::Rejected(reason)) => assert!(reason.contains("address for peers"), "{reason}"),
            other => panic!("{carrier:?}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn what_two_servers_tell_each_other_arrives_in_order() {
    let messages = || (0..600).map(message);
    for carrier in CARRIERS {
        let Session { a, b: (b, b_driver, _), _kept } = Session::greeted(carrier).await;
        let (a_hears, b_hears) = (drive(a.driver), drive(b_driver));
        for told in messages() {
            b.tell_peer(told.clone()).unwrap();
            a.tunnel.tell_peer(told).unwrap();
        }
        for mut heard in [a_hears, b_hears] {
            for (index, told) in messages().enumerate() {
                assert!(soon(heard.recv()).await.as_ref() == Some(&told), "{carrier:?}: message {index}");
            }
        }
        soon(b.peer_messages_taken()).await.unwrap();
    }
}

#[tokio::test]
async fn a_stream_for_a_cluster_is_accepted_by_the_server_that_dialed() {
    for carrier in CARRIERS {
        let Session { a, b: (b, b_driver, _), _kept } = Session::greeted(carrier).await;
        let _driven = (drive(a.driver), drive(b_driver));
        let cluster = "edge-a".parse().unwrap();
        let mut there = b.open(&ViaRequest::wrap(&cluster, open()).unwrap()).await.unwrap();
        let mut here = soon(a.tunnel.accept()).await.unwrap();

        let request = ViaRequest::parse(soon(here.read_open()).await.unwrap());
        assert_eq!(request, Ok(ViaRequest { cluster, open: open() }), "{carrier:?}");
        let opened = ViaOutcome::Opened { agent: "0f3c".to_owned(), number: 7 };
        here.write_via_reply(opened.clone()).await.unwrap();
        here.write_all(b"answer").await.unwrap();

        assert_eq!(soon(there.read_via_reply()).await.unwrap(), opened);
        let mut answer = [0; 6];
        soon(there.read_exact(&mut answer)).await.unwrap();
        assert_eq!(&answer, b"answer");
        here.abort(AbortCode::ApiServerLost);
        let error = soon(there.read_u8()).await.unwrap_err();
        assert_eq!(transport::abort_code(&error), Some(AbortCode::ApiServerLost));
    }
}

/// The other one acknowledges packets, so silence alone would not tell.
#[tokio::test]
async fn a_server_that_does_not_read_ends_its_session_and_fills_no_memory() {
    for carrier in CARRIERS {
        let Session { a, b, _kept } = Session::greeted(carrier).await;
        let ended = tokio::spawn(a.driver.run(drop));
        let told = usage();
        // Twice as many as can wait, and the loop gives the carrier no time to take any.
        let told_max = 2 * PEER_QUEUE_BYTES_MAX / 20_000;
        let refused = (0..told_max).find_map(|_| a.tunnel.tell_peer(told.clone()).err());

        assert_eq!(refused, Some(TellError::Unread), "{carrier:?}");
        let violation = TunnelEnded::Violation(ProtocolViolation::UnreadMessages);
        assert_eq!(soon(ended).await.unwrap(), violation);
        assert!(soon(a.tunnel.peer_messages_taken()).await.is_err(), "{carrier:?}");
        drop(b);
    }
}

#[tokio::test]
async fn a_server_that_breaks_a_limit_of_messages_ends_its_session() {
    for carrier in CARRIERS {
        let Session { a, b: (b, b_driver, _), _kept } = Session::greeted(carrier).await;
        let ended = tokio::spawn(a.driver.run(drop));
        let _driven = drive(b_driver);
        let PeerMessage::Usage(shares) = usage() else { panic!("no usage") };
        let beyond = shares.iter().cycle().copied().take(USAGE_CALLERS_MAX + 1).collect();

        b.tell_peer(PeerMessage::Usage(beyond)).unwrap();

        let ended = soon(ended).await.unwrap();
        assert!(
            matches!(&ended, TunnelEnded::Violation(ProtocolViolation::PeerMessage(text)) if text.contains("1001")),
            "{carrier:?}: {ended:?}"
        );
    }
}

#[tokio::test]
async fn nothing_of_servers_can_be_told_to_an_agent() {
    for carrier in CARRIERS {
        let pair = Pair::greeted(carrier).await;
        for tunnel in [&pair.server, &pair.agent] {
            assert_eq!(tunnel.tell_peer(PeerMessage::Draining), Err(TellError::NotAPeer));
            soon(tunnel.peer_messages_taken()).await.unwrap();
        }
    }
}

impl Peers {
    async fn new(carrier: Carrier) -> Self {
        let (server_root, (chain, key)) =
            issue(&[], &["spiffe://tombolo/server/b"], ExtendedKeyUsagePurpose::ServerAuth);
        let (peer_root, peer) = issue(&[], &["spiffe://tombolo/peer/a"], ExtendedKeyUsagePurpose::ClientAuth);
        let material = ServerMaterial {
            certificate: certificate((chain, key)),
            client_roots: SharedRoots::new(vec![peer_root]).unwrap(),
        };
        Self { listener: listener(carrier, material).await, server_root, peer: certificate(peer) }
    }

    /// Dials as `a`. The caller has to keep the endpoint, if there is one.
    async fn dial(&self, dialed_id: &str) -> Result<(Dialed<PeerGreeting>, Option<Endpoint>), DialError> {
        let expected = ExpectedPeer { trust_domain: "tombolo".to_owned(), server_id: dialed_id.to_owned() };
        let tls =
            DialTls::for_peer(Arc::clone(&self.peer), vec![self.server_root.clone()], expected).unwrap();
        let opening = PeerOpening { own: server("a"), dialed_id: dialed_id.to_owned() };
        let address = self.listener.address();
        match self.listener.carrier() {
            Carrier::Quic => {
                let keys = EndpointKeys::generate().unwrap();
                let endpoint = Endpoint::dialing(address, &keys, Arc::new(Tokio)).unwrap();
                let dialed = endpoint.dial(address, "127.0.0.1", &tls, opening, HANDSHAKE_MAX).await?;
                Ok((dialed, Some(endpoint)))
            }
            Carrier::Http2 => {
                let path = DialPath::Direct(address);
                let dialed = dial_tcp(&path, "127.0.0.1", &tls, opening, HANDSHAKE_MAX, &Tokio).await?;
                Ok((dialed, None))
            }
        }
    }
}

impl Session {
    async fn greeted(carrier: Carrier) -> Self {
        let peers = Peers::new(carrier).await;
        let accepting = async {
            let accepted = peers.listener.accept_connection().await.unwrap();
            accepted.greet_peer("a", &server("b"), |_| Ok(())).await
        };
        let (dialed, greeted) = soon(async { tokio::join!(peers.dial("b"), accepting) }).await;
        let ((a, endpoint), b) = (dialed.unwrap(), greeted.unwrap());
        Self { a, b, _kept: (peers, endpoint) }
    }
}

async fn listener(carrier: Carrier, material: ServerMaterial) -> Server {
    match carrier {
        Carrier::Quic => {
            let (keys, address) = (EndpointKeys::generate().unwrap(), "127.0.0.1:0".parse().unwrap());
            let endpoint = Endpoint::serve_peers(address, material, &keys, ServerNumber(2), Arc::new(Tokio));
            Server::Quic(Box::new(endpoint.unwrap()))
        }
        Carrier::Http2 => {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            Server::Http2(listener, tls::peer_tcp_server_config(material).unwrap().into())
        }
    }
}

fn certificate((chain, key): (CertificateDer<'static>, Vec<u8>)) -> Arc<SharedCertificate> {
    SharedCertificate::new(vec![chain], PrivateKeyDer::try_from(key).unwrap()).unwrap()
}

/// Runs a driver, and returns the messages of its peer.
fn drive(driver: Driver) -> mpsc::Receiver<PeerMessage> {
    let (events, messages) = mpsc::channel(1000);
    let driving = driver.run(move |event| {
        if let TunnelEvent::Peer(message) = event {
            events.try_send(message).ok();
        }
    });
    drop(tokio::spawn(driving));
    messages
}

fn server(id: &str) -> PeerInfo {
    PeerInfo { server_id: id.to_owned(), boot: BootNonce([7; 16]), epoch: 12, software: "test".to_owned() }
}

/// Small messages between large ones.
fn message(index: i64) -> PeerMessage {
    if index % 10 == 0 { usage() } else { PeerMessage::Applied { revision: index } }
}

/// A message of some 25 KB.
fn usage() -> PeerMessage {
    let share = |index: usize| CallerShare {
        caller: CallerDigest([u8::try_from(index % 251).unwrap(); 16]),
        kind: UsageKind::Watches,
        held: u32::MAX,
    };
    PeerMessage::Usage((0..USAGE_CALLERS_MAX).map(share).collect())
}
