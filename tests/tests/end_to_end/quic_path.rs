//! An attacker on the path, or one with a recording of it, does no more harm to tunnels than packet loss.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use bytes::Bytes;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, ServerConfig};
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, version::TLS13};
use tests::caller::{Http1Caller, SOON, head};
use tests::carrier::is_not_quic;
use tests::evil_quic::relay::{Relay, Tampering};
use tests::evil_quic::trial::{ANSWER_MAX, Trial, hello, honest};
use tests::fake_api::{Answer, Behaviour, FakeApi};
use tests::rig::{ApiServer, Rig};
use tests::rogue_server;
use tokio::time::timeout;

/// The bytes that go each way, all of them different.
const BYTES: usize = 3 * 1024 * 1024;

/// The number of times that a recorded datagram is repeated.
const REPLAYS: usize = 100;

/// It takes longer than elsewhere: a tenth of all packets is as good as lost.
const TRANSFER_MAX: std::time::Duration = std::time::Duration::from_secs(120);

/// The attacker is on the path.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn altered_repeated_and_forged_datagrams_cost_time_and_no_byte() {
    const NAME: &str = "altered_repeated_and_forged_datagrams_cost_time_and_no_byte";
    if is_not_quic(NAME, "TCP's own checks are the kernel's") {
        return;
    }
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let relay = Relay::before(rig.gateway()).await.expect("a socket");
    let more = format!("servers: [\"{}\"]\n", relay.address());
    let _agent = rig.agent_with("edge-a", &ApiServer::of_fake(&rig, &api), &more).await;
    rig.connected("edge-a").await;
    let sent = Bytes::from((0..BYTES).map(|place| (place * place / 251 + place) as u8).collect::<Vec<u8>>());
    api.on("/down", Behaviour::Answer(Answer { status: 200, headers: Vec::new(), body: sent.clone() }));
    api.on("/up", Behaviour::json("{}"));
    relay.tamper();

    let mut down = Http1Caller::dial(&rig).await;
    down.write(head("GET", "/clusters/edge-a/down", "Connection: close\r\n")).await;
    assert!(down.read_head().await.starts_with("HTTP/1.1 200"), "the answer's head");
    let body = timeout(TRANSFER_MAX, down.try_read_exactly(BYTES)).await.expect("it comes").expect("whole");
    assert!(body == sent, "what came is not what was sent");

    let mut up = Http1Caller::dial(&rig).await;
    let length = format!("Content-Length: {BYTES}\r\nConnection: close\r\n");
    up.write(head("POST", "/clusters/edge-a/up", &length)).await;
    for piece in sent.chunks(64 * 1024) {
        up.write(piece).await;
    }
    assert!(timeout(TRANSFER_MAX, up.read_head()).await.expect("it comes").starts_with("HTTP/1.1 200"));
    let received = api.requests().into_iter().find(|request| request.target == "/up").expect("it came");
    assert!(received.body == sent, "what arrived is not what was sent");

    let done =
        [Tampering::Corrupted, Tampering::Replayed, Tampering::Forged].map(|tampering| relay.done(tampering));
    eprintln!("corrupted, replayed, forged: {done:?}");
    assert!(done.iter().all(|times| *times >= 100), "{done:?}");
    let log = rig.server_log();
    assert_eq!(log.matches("tunnel opened agent=edge-a").count(), 1, "the tunnel broke: {log}");
}

#[tokio::test]
async fn early_data_is_refused_also_when_replayed() {
    let trial = Trial::start().await;
    let relay = Relay::before(trial.rig.gateway()).await.expect("a socket");
    let rogue = ResumingServer::start(&trial.rig);
    let config = {
        let mut tls = trial.tls();
        tls.enable_early_data = true;
        honest(tls)
    };
    let endpoint = Endpoint::client(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a socket");
    let again = |to| endpoint.connect_with(config.clone(), to, "127.0.0.1").expect("it dials").into_0rtt();

    // The server gives nothing that a session could be resumed by, not to who is welcome either.
    let welcome =
        trial.connect_with(config.clone(), trial.rig.gateway()).await.expect("it has a certificate");
    Trial::greet(&welcome).await;
    trial.rig.connected("edge-b").await;
    welcome.close(quinn::VarInt::from_u32(0), b"");
    assert!(again(trial.rig.gateway()).is_err(), "the server has given what early data can be sent with");
    trial.rig.disconnected("edge-b").await;

    // One who has its name and its key does, so that this agent has something to send.
    let first = trial.connect_with(config.clone(), rogue.address()).await.expect("the rogue takes everybody");
    // It sends its ticket behind the handshake, and then this.
    timeout(SOON, first.accept_uni()).await.expect("it comes").expect("a stream");

    let Ok((early, accepted)) = again(relay.address()) else { panic!("no early data can be sent") };
    let (mut send, _recv) = early.open_bi().await.expect("a stream");
    send.write_all(&hello()).await.expect("it is early data");
    assert!(!timeout(ANSWER_MAX, accepted).await.expect("an answer"), "early data was accepted");
    early.close(quinn::VarInt::from_u32(0), b"");
    endpoint.wait_idle().await;

    // From where it came, and from elsewhere.
    let elsewhere = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let recorded = relay.seen();
    assert!(recorded.iter().any(|datagram| bears_early_data(datagram)), "no early data was sent");
    for datagram in recorded.iter().cycle().take(REPLAYS * recorded.len()) {
        elsewhere.send_to(datagram, trial.rig.gateway()).expect("it is sent");
    }
    trial.others_are_undisturbed().await;
    trial.new_agents_are_served().await;
    let log = trial.rig.server_log();
    assert_eq!(log.matches("tunnel opened agent=edge-b").count(), 2, "both honest ones and no other: {log}");
}

/// A server that resumes sessions and takes early data, with the certificate of the right one.
struct ResumingServer(Endpoint);

impl ResumingServer {
    fn start(rig: &Rig) -> Self {
        let material = rogue_server::material(rig);
        let mut roots = RootCertStore::empty();
        for root in material.peer_roots {
            roots.add(root).expect("a root");
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("the provider has TLS 1.3")
            .with_client_cert_verifier(verifier.build().expect("a verifier"))
            .with_single_cert(material.chain, material.key)
            .expect("a pair");
        tls.alpn_protocols = vec![b"tombolo/1".to_vec()];
        tls.max_early_data_size = u32::MAX;
        let config =
            ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).expect("TLS for QUIC")));
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let endpoint = Endpoint::server(config, address).expect("a socket");
        let accepting = endpoint.clone();
        tokio::spawn(async move {
            while let Some(incoming) = accepting.accept().await {
                if let Ok(connection) = incoming.await
                    && let Ok(mut stream) = connection.open_uni().await
                {
                    let _ = stream.write_all(b"behind the ticket").await;
                    connection.closed().await;
                }
            }
        });
        Self(endpoint)
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("an address")
    }
}

/// Returns true if a datagram contains a 0-RTT packet: alone, or after the first packet (RFC 9000, section
/// 17.2.3).
fn bears_early_data(datagram: &[u8]) -> bool {
    // The second bit may be anything (RFC 9287).
    datagram.windows(5).any(|head| head[0] & 0xb0 == 0x90 && head[1..] == [0, 0, 0, 1])
}
