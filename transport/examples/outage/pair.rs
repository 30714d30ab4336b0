//! Both ends of a tunnel, ours or plain quinn's, over one link.

use std::any::Any;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use proto::greeting::{BootNonce, Host, VERSIONS};
use proto::spiffe::AgentId;
use proto::wire::{Assert, Hello, StreamOpen};
use quinn::congestion::BbrConfig;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;
use transport::tls::Material;
use transport::{DialTls, Endpoint, EndpointKeys, HANDSHAKE_MAX, ServerNumber, Spawn, Tunnel};

use crate::link::Link;
use crate::watch::Watch;

const SERVER_NAME: &str = "gateway.test";
const AGENT_URI: &str = "spiffe://tombolo/cluster/edge-a/agent/x";

/// A stream with a clean end or none.
pub(crate) type Duplex = Box<dyn Stream>;

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// One server of each sort.
pub(crate) struct Servers {
    ours: Endpoint,
    stock: quinn::Endpoint,
    authority: Authority,
}

pub(crate) struct Pair {
    ends: Ends,
    server: SocketAddr,
    /// Held, because a closed endpoint closes its connections.
    _endpoint: Box<dyn Any>,
}

enum Ends {
    Ours { server: Tunnel, agent: Tunnel },
    Stock { server: quinn::Connection, agent: quinn::Connection },
}

struct Authority {
    server_root: CertificateDer<'static>,
    server: (CertificateDer<'static>, Vec<u8>),
    agent_root: CertificateDer<'static>,
    agent: (CertificateDer<'static>, Vec<u8>),
}

impl Servers {
    pub(crate) fn start() -> Self {
        let authority = Authority::new();
        let keys = EndpointKeys::generate().unwrap();
        let address = "127.0.0.1:0".parse().unwrap();
        let material = authority.server_material();
        let ours = Endpoint::serve(address, material, &keys, ServerNumber(1), Arc::new(Tokio)).unwrap();
        let Material { chain, key, .. } = authority.server_material();
        let mut config = quinn::ServerConfig::with_single_cert(chain, key).unwrap();
        config.transport_config(Arc::new(stock_parameters()));
        let stock = quinn::Endpoint::server(config, address).unwrap();
        Self { ours, stock, authority }
    }

    pub(crate) fn address(&self, stock: bool) -> SocketAddr {
        if stock { self.stock.local_addr().unwrap() } else { self.ours.address().unwrap() }
    }

    pub(crate) async fn ours(&self, link: &Link) -> Pair {
        let keys = EndpointKeys::generate().unwrap();
        let endpoint = Endpoint::dialing("127.0.0.1:0".parse().unwrap(), &keys, Arc::new(Tokio)).unwrap();
        let tls = DialTls::new(self.authority.agent_material()).unwrap();
        let hello = Hello {
            versions: VERSIONS.to_vec(),
            cluster: "edge-a".to_owned(),
            boot_nonce: vec![1; 16],
            sequence: 1,
            ..Hello::default()
        };
        let accepting = async {
            let arrived = self.ours.accept().await.unwrap().shake_hands().await.unwrap();
            let agent = AgentId::parse(AGENT_URI, "tombolo").unwrap();
            arrived.greet(&agent, &host(), |_| Ok(())).await.unwrap()
        };
        let dialing = endpoint.dial(link.address(), SERVER_NAME, &tls, hello, HANDSHAKE_MAX);
        let ((server, server_driver, _), dialed) = tokio::join!(accepting, dialing);
        let dialed = dialed.unwrap();
        tokio::spawn(server_driver.run(|_| {}));
        tokio::spawn(dialed.driver.run(|_| {}));
        let ends = Ends::Ours { server, agent: dialed.tunnel };
        Pair { ends, server: self.address(false), _endpoint: Box::new(endpoint) }
    }

    pub(crate) async fn stock(&self, link: &Link) -> Pair {
        let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.server_root.clone()).unwrap();
        let mut config = quinn::ClientConfig::with_root_certificates(Arc::new(roots)).unwrap();
        config.transport_config(Arc::new(stock_parameters()));
        let connecting = endpoint.connect_with(config, link.address(), SERVER_NAME).unwrap();
        let accepting = async { self.stock.accept().await.unwrap().await.unwrap() };
        let (server, agent) = tokio::join!(accepting, connecting);
        let ends = Ends::Stock { server, agent: agent.unwrap() };
        Pair { ends, server: self.address(true), _endpoint: Box::new(endpoint) }
    }
}

impl Pair {
    /// A stream, the server's end first.
    pub(crate) async fn stream(&self) -> (Duplex, Duplex) {
        match &self.ends {
            Ends::Ours { server, agent } => {
                let alice = Assert { user: "alice".to_owned(), groups: Vec::new() };
                let open = StreamOpen::http(alice, "audit".to_owned(), true);
                let (there, here) = tokio::join!(server.open(&open), agent.accept());
                let mut here = here.unwrap();
                here.read_open().await.unwrap();
                (Box::new(there.unwrap()), Box::new(here))
            }
            Ends::Stock { server, agent } => {
                let opening = async {
                    let (mut send, recv) = server.open_bi().await.unwrap();
                    send.write_all(b"x").await.unwrap();
                    (send, recv)
                };
                let (there, here) = tokio::join!(opening, agent.accept_bi());
                let (here_send, mut here_recv) = here.unwrap();
                here_recv.read_exact(&mut [0]).await.unwrap();
                (Box::new(tokio::io::join(there.1, there.0)), Box::new(tokio::io::join(here_recv, here_send)))
            }
        }
    }

    /// Looks for packets that arrive at either end.
    pub(crate) fn watch_packets(&self, at_server: Watch, at_agent: Watch) {
        match &self.ends {
            Ends::Ours { server, agent } => {
                for (tunnel, watch) in [(server.clone(), at_server), (agent.clone(), at_agent)] {
                    look(watch, move || tunnel.link().wire_bytes_received);
                }
            }
            Ends::Stock { server, agent } => {
                for (connection, watch) in [(server.clone(), at_server), (agent.clone(), at_agent)] {
                    look(watch, move || connection.stats().udp_rx.bytes);
                }
            }
        }
    }

    pub(crate) fn server(&self) -> SocketAddr {
        self.server
    }

    pub(crate) fn is_stock(&self) -> bool {
        matches!(self.ends, Ends::Stock { .. })
    }
}

fn look(watch: Watch, count: impl Fn() -> u64 + Send + 'static) {
    tokio::spawn(async move {
        let mut before = count();
        loop {
            sleep(Duration::from_millis(10)).await;
            let now = count();
            if now != before {
                watch.saw();
            }
            before = now;
        }
    });
}

/// As ours, but for what is measured.
fn stock_parameters() -> quinn::TransportConfig {
    let mut config = quinn::TransportConfig::default();
    config
        .max_idle_timeout(Some(Duration::from_secs(700).try_into().unwrap()))
        .keep_alive_interval(Some(Duration::from_secs(1)))
        .congestion_controller_factory(Arc::new(BbrConfig::default()));
    config
}

impl Authority {
    fn new() -> Self {
        let (server_root, server) = issue(SanType::DnsName(SERVER_NAME.try_into().unwrap()));
        let (agent_root, agent) = issue(SanType::URI(AGENT_URI.try_into().unwrap()));
        Self { server_root, server, agent_root, agent }
    }

    fn agent_material(&self) -> Material {
        material(&self.agent, &self.server_root)
    }

    fn server_material(&self) -> Material {
        material(&self.server, &self.agent_root)
    }
}

fn material((chain, key): &(CertificateDer<'static>, Vec<u8>), root: &CertificateDer<'static>) -> Material {
    Material {
        chain: vec![chain.clone()],
        key: PrivateKeyDer::try_from(key.clone()).unwrap(),
        peer_roots: vec![root.clone()],
    }
}

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

fn host() -> Host {
    Host {
        server_id: "server".to_owned(),
        software: "outage".to_owned(),
        boot: BootNonce([7; 16]),
        keys_mark: [7; 8],
    }
}

struct Tokio;

impl Spawn for Tokio {
    fn spawn(&self, driver: Pin<Box<dyn Future<Output = ()> + Send>>) {
        tokio::spawn(driver);
    }
}
