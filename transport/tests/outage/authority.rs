//! Makes certificates, endpoints and greeted tunnels for the tests.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use proto::greeting::{BootNonce, ServerInfo, VERSIONS};
use proto::server_list::ServerList;
use proto::spiffe::AgentId;
use proto::wire::Hello;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use transport::tls::{ExpectedServers, Material};
use transport::{
    DialTls, Dialed, Driver, Endpoint, EndpointKeys, HANDSHAKE_MAX, ServerNumber, Spawn, Tunnel,
};

pub(crate) const SERVER_NAME: &str = "gateway.test";
const AGENT_URI: &str = "spiffe://tombolo/cluster/edge-a/agent/x";

pub(crate) struct Authority {
    pub(crate) server_root: CertificateDer<'static>,
    server: (CertificateDer<'static>, Vec<u8>),
    agent_root: CertificateDer<'static>,
    agent: (CertificateDer<'static>, Vec<u8>),
}

impl Authority {
    pub(crate) fn new() -> Self {
        let name = SanType::DnsName(SERVER_NAME.try_into().unwrap());
        let uri = |uri: &str| SanType::URI(uri.try_into().unwrap());
        let names = vec![name, uri("spiffe://tombolo/server/gateway")];
        let (server_root, server) = issue(names, ExtendedKeyUsagePurpose::ServerAuth);
        let (agent_root, agent) = issue(vec![uri(AGENT_URI)], ExtendedKeyUsagePurpose::ClientAuth);
        Self { server_root, server, agent_root, agent }
    }

    pub(crate) fn server(&self) -> Endpoint {
        let keys = EndpointKeys::generate().unwrap();
        let address = "127.0.0.1:0".parse().unwrap();
        Endpoint::serve(address, self.server_material(), &keys, ServerNumber(1), Arc::new(Tokio)).unwrap()
    }

    /// A tunnel to `server`, dialed at `address` by an agent with this limit for silence, or with zero
    /// whatever the server does: the agent's endpoint, the server's end, the agent's end.
    pub(crate) async fn greeted(
        &self,
        server: &Endpoint,
        address: SocketAddr,
        agent_silence_max: Duration,
    ) -> (Endpoint, (Tunnel, Driver), Dialed) {
        let keys = EndpointKeys::generate().unwrap();
        let endpoint = Endpoint::dialing(address, &keys, Arc::new(Tokio)).unwrap();
        let tls = DialTls::new(self.agent_material(), expected_servers()).unwrap();
        let hello = Hello {
            versions: VERSIONS.to_vec(),
            cluster: "edge-a".to_owned(),
            boot_nonce: vec![1; 16],
            sequence: 1,
            silence_max_ms: agent_silence_max.as_millis().try_into().unwrap(),
            ..Hello::default()
        };
        let accepting = async {
            let accepted = server.accept().await.unwrap().handshake().await.unwrap();
            let agent = AgentId::parse(AGENT_URI, "tombolo").unwrap();
            accepted.greet(&agent, &server_info(), |_| Ok(())).await.unwrap()
        };
        let dialing = endpoint.dial(address, SERVER_NAME, &tls, hello, HANDSHAKE_MAX);
        let ((tunnel, driver, _), dialed) = tokio::join!(accepting, dialing);
        let dialed = dialed.unwrap();
        (endpoint, (tunnel, driver), dialed)
    }

    fn agent_material(&self) -> Material {
        material(&self.agent, &self.server_root)
    }

    pub(crate) fn server_material(&self) -> Material {
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

fn expected_servers() -> ExpectedServers {
    ExpectedServers { trust_domain: "tombolo".to_owned(), ids: Vec::new() }
}

fn issue(
    names: Vec<SanType>,
    purpose: ExtendedKeyUsagePurpose,
) -> (CertificateDer<'static>, (CertificateDer<'static>, Vec<u8>)) {
    let mut root = CertificateParams::default();
    root.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let root = CertifiedIssuer::self_signed(root, KeyPair::generate().unwrap()).unwrap();
    let mut leaf = CertificateParams::default();
    leaf.subject_alt_names = names;
    leaf.extended_key_usages = vec![purpose];
    let key = KeyPair::generate().unwrap();
    let certificate = leaf.signed_by(&key, &root).unwrap();
    (root.der().clone(), (certificate.der().clone(), key.serialize_der()))
}

fn server_info() -> ServerInfo {
    ServerInfo {
        server_id: "server".to_owned(),
        software: "outage".to_owned(),
        boot: BootNonce([7; 16]),
        keys_mark: [7; 8],
        trust_bundle: Vec::new(),
        servers: ServerList::default(),
    }
}

struct Tokio;

impl Spawn for Tokio {
    fn spawn(&self, driver: Pin<Box<dyn Future<Output = ()> + Send>>) {
        tokio::spawn(driver);
    }
}
