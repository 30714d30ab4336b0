//! Makes the two ends of a greeted tunnel, with their certificates.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use proto::greeting::{BootNonce, Greeting, ServerInfo, VERSIONS};
use proto::server_list::ServerList;
use proto::session::SILENCE_MAX;
use proto::spiffe::AgentId;
use proto::wire::{Assert, Hello, StreamOpen};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use transport::tls::{self, ExpectedServers, Material};
use transport::{
    AcceptedConnection, Carrier, DialError, DialPath, DialTls, Dialed, Driver, Endpoint, EndpointError,
    EndpointKeys, GreetError, HANDSHAKE_MAX, ServerNumber, Spawn, Tunnel, TunnelEnded, TunnelEvent,
    TunnelStream, dial_tcp,
};

/// No event of these tests is later than this.
const SOON: Duration = Duration::from_secs(30);

/// A greeted tunnel, both ends driven.
pub(crate) struct Pair {
    pub(crate) server: Tunnel,
    pub(crate) agent: Tunnel,
    pub(crate) server_events: mpsc::Receiver<TunnelEvent>,
    pub(crate) server_task: tokio::task::AbortHandle,
    pub(crate) server_ended: tokio::task::JoinHandle<TunnelEnded>,
    pub(crate) agent_ended: tokio::task::JoinHandle<TunnelEnded>,
    /// Because a closed endpoint closes its connections.
    pub(crate) kept: (Server, Option<Endpoint>),
}

/// A server's listener for agents.
pub(crate) enum Server {
    Quic(Box<Endpoint>),
    Http2(TcpListener, TlsAcceptor),
}

/// Certificate authorities and certificates of both roles.
pub(crate) struct Authority {
    pub(crate) server_root: CertificateDer<'static>,
    server: (CertificateDer<'static>, Vec<u8>),
    agent_root: CertificateDer<'static>,
    agent: (CertificateDer<'static>, Vec<u8>),
}

/// Tasks of the test's own runtime.
pub(crate) struct Tokio;

impl Pair {
    pub(crate) async fn greeted(carrier: Carrier) -> Self {
        let authority = Authority::new();
        let server = authority.server(carrier).await;
        authority.greet(server).await
    }

    pub(crate) async fn accepted(&self) -> TunnelStream {
        soon(self.agent.accept()).await.unwrap()
    }
}

impl Server {
    pub(crate) fn carrier(&self) -> Carrier {
        match self {
            Self::Quic(_) => Carrier::Quic,
            Self::Http2(..) => Carrier::Http2,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        match self {
            Self::Quic(endpoint) => endpoint.address().unwrap(),
            Self::Http2(listener, _) => listener.local_addr().unwrap(),
        }
    }

    /// The next agent, unless its handshake fails.
    pub(crate) async fn accept_connection(&self) -> Option<AcceptedConnection> {
        match self {
            Self::Quic(endpoint) => endpoint.accept().await.unwrap().handshake().await.ok(),
            Self::Http2(listener, tls) => {
                let (tcp, peer) = listener.accept().await.unwrap();
                let stream = tls.accept(tcp).await.ok()?;
                AcceptedConnection::from_tls_stream(stream, peer, SILENCE_MAX, &Tokio).await.ok()
            }
        }
    }

    pub(crate) async fn accept(&self) -> Result<(Tunnel, Driver, Greeting), GreetError> {
        Self::greet(self.accept_connection().await.unwrap()).await
    }

    pub(crate) async fn greet(
        accepted: AcceptedConnection,
    ) -> Result<(Tunnel, Driver, Greeting), GreetError> {
        let agent = AgentId::parse("spiffe://tombolo/cluster/edge-a/agent/x", "tombolo").unwrap();
        let server_info = ServerInfo {
            server_id: "server".to_owned(),
            software: "test".to_owned(),
            boot: BootNonce([7; 16]),
            keys_mark: [7; 8],
            trust_bundle: Vec::new(),
            servers: ServerList::default(),
        };
        accepted.greet(&agent, &server_info, |_| Ok(())).await
    }
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self::with_server_uris(&["spiffe://tombolo/server/gateway"])
    }

    /// With these URIs in the certificate of its server.
    pub(crate) fn with_server_uris(uris: &[&str]) -> Self {
        let (server_root, server) = issue(&["gateway.test"], uris, ExtendedKeyUsagePurpose::ServerAuth);
        let agent = ["spiffe://tombolo/cluster/edge-a/agent/x"];
        let (agent_root, agent) = issue(&[], &agent, ExtendedKeyUsagePurpose::ClientAuth);
        Self { server_root, server, agent_root, agent }
    }

    pub(crate) fn agent_material(&self) -> Material {
        Material {
            chain: vec![self.agent.0.clone()],
            key: PrivateKeyDer::try_from(self.agent.1.clone()).unwrap(),
            peer_roots: vec![self.server_root.clone()],
        }
    }

    pub(crate) fn server_material(&self) -> Material {
        Material {
            chain: vec![self.server.0.clone()],
            key: PrivateKeyDer::try_from(self.server.1.clone()).unwrap(),
            peer_roots: vec![self.agent_root.clone()],
        }
    }

    pub(crate) async fn server(&self, carrier: Carrier) -> Server {
        match carrier {
            Carrier::Quic => {
                let keys = EndpointKeys::generate().unwrap();
                let address = "127.0.0.1:0".parse().unwrap();
                Server::Quic(Box::new(self.endpoint(address, &keys, Arc::new(Tokio)).unwrap()))
            }
            Carrier::Http2 => {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                Server::Http2(
                    listener,
                    tls::tcp_server_config(self.server_material().try_into().unwrap()).unwrap().into(),
                )
            }
        }
    }

    pub(crate) fn endpoint(
        &self,
        address: SocketAddr,
        keys: &EndpointKeys,
        spawn: Arc<dyn Spawn>,
    ) -> Result<Endpoint, EndpointError> {
        Endpoint::serve(address, self.server_material(), keys, ServerNumber(1), spawn)
    }

    pub(crate) async fn greet(&self, server: Server) -> Pair {
        let address = server.address();
        self.greet_at(address, server).await
    }

    /// The same with a server that is reached at another address than its own.
    pub(crate) async fn greet_at(&self, address: SocketAddr, server: Server) -> Pair {
        let carrier = server.carrier();
        let dialing = dial(carrier, address, "gateway.test", self.agent_material(), hello());
        let (dialed, greeted) = soon(async { tokio::join!(dialing, server.accept()) }).await;
        let ((server_tunnel, server_driver, _), (dialed, endpoint)) = (greeted.unwrap(), dialed.unwrap());
        assert_eq!((server_tunnel.carrier(), dialed.tunnel.carrier()), (carrier, carrier));
        let (events, server_events) = mpsc::channel(8);
        let server_ended = tokio::spawn(server_driver.run(move |event| events.try_send(event).unwrap()));
        Pair {
            server: server_tunnel,
            agent: dialed.tunnel,
            server_events,
            server_task: server_ended.abort_handle(),
            server_ended,
            agent_ended: tokio::spawn(dialed.driver.run(|_| {})),
            kept: (server, endpoint),
        }
    }

    pub(crate) async fn try_greet(&self, carrier: Carrier, hello: Hello) -> Result<Dialed, DialError> {
        let server = self.server(carrier).await;
        let dialing = dial(carrier, server.address(), "gateway.test", self.agent_material(), hello);
        let (dialed, _greeted) = soon(async { tokio::join!(dialing, server.accept()) }).await;
        dialed.map(|(dialed, _)| dialed)
    }
}

/// Dials as an agent does. The caller has to keep the endpoint, if there is one.
pub(crate) async fn dial(
    carrier: Carrier,
    address: SocketAddr,
    server_name: &str,
    material: Material,
    hello: Hello,
) -> Result<(Dialed, Option<Endpoint>), DialError> {
    dial_one_of(carrier, address, server_name, material, expected_servers(), hello).await
}

/// The same of an agent that means these servers.
pub(crate) async fn dial_one_of(
    carrier: Carrier,
    address: SocketAddr,
    server_name: &str,
    material: Material,
    expected: ExpectedServers,
    hello: Hello,
) -> Result<(Dialed, Option<Endpoint>), DialError> {
    let tls = DialTls::new(material, expected).unwrap();
    match carrier {
        Carrier::Quic => {
            let keys = EndpointKeys::generate().unwrap();
            let endpoint = Endpoint::dialing(address, &keys, Arc::new(Tokio)).unwrap();
            let dialed = endpoint.dial(address, server_name, &tls, hello, HANDSHAKE_MAX).await?;
            Ok((dialed, Some(endpoint)))
        }
        Carrier::Http2 => {
            let dialed =
                dial_tcp(&DialPath::Direct(address), server_name, &tls, hello, HANDSHAKE_MAX, &Tokio).await?;
            Ok((dialed, None))
        }
    }
}

/// Servers of the trust domain that everything here is of.
pub(crate) fn expected_servers() -> ExpectedServers {
    ExpectedServers { trust_domain: "tombolo".to_owned(), ids: Vec::new() }
}

/// A root of its own, and one leaf of it.
pub(crate) fn issue(
    names: &[&str],
    uris: &[&str],
    purpose: ExtendedKeyUsagePurpose,
) -> (CertificateDer<'static>, (CertificateDer<'static>, Vec<u8>)) {
    let mut root = CertificateParams::default();
    root.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let root = CertifiedIssuer::self_signed(root, KeyPair::generate().unwrap()).unwrap();
    let mut leaf = CertificateParams::default();
    let names = names.iter().map(|name| SanType::DnsName((*name).try_into().unwrap()));
    let uris = uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap()));
    leaf.subject_alt_names = names.chain(uris).collect();
    leaf.extended_key_usages = vec![purpose];
    let key = KeyPair::generate().unwrap();
    let certificate = leaf.signed_by(&key, &root).unwrap();
    (root.der().clone(), (certificate.der().clone(), key.serialize_der()))
}

pub(crate) fn open() -> StreamOpen {
    let alice = Assert { user: "alice".to_owned(), groups: vec!["ops".to_owned()] };
    StreamOpen::http(alice, "audit".to_owned(), false)
}

/// The same as it arrives: the tunnel numbers its streams from 1.
pub(crate) fn open_numbered(number: u64) -> StreamOpen {
    StreamOpen { number, ..open() }
}

pub(crate) fn hello() -> Hello {
    Hello {
        versions: VERSIONS.to_vec(),
        cluster: "edge-a".to_owned(),
        boot_nonce: vec![1; 16],
        sequence: 1,
        ..Hello::default()
    }
}

pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, what).await.expect("soon")
}

impl Spawn for Tokio {
    fn spawn(&self, driver: Pin<Box<dyn Future<Output = ()> + Send>>) {
        tokio::spawn(driver);
    }
}
