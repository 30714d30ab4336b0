//! A cluster with as many agents as it may have, whose agents have two tunnels each, and one agent more.

use std::net::SocketAddr;

use proto::CloseCode;
use proto::greeting::VERSIONS;
use proto::spiffe::TRUST_DOMAIN_DEFAULT;
use proto::wire::Hello;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tests::fake_api::{Behaviour, FakeApi};
use tests::pki::Authority;
use tests::rig::{ApiServer, Rig};
use tests::rogue_server::spawner;
use transport::tls::{ExpectedServers, Material};
use transport::{DialTls, Dialed, Endpoint, EndpointKeys, HANDSHAKE_MAX, Tunnel};

/// 64 agents, and 16 more while agents are replaced.
const AGENTS: usize = 80;

const CLUSTER: &str = "edge-a";

/// The version that the agents of the crowd claim.
const VERSION: &str = "9.8.7";

const FULL: &str = "tombolo_server_tunnel_handshakes_failed_total{reason=\"full\"}";

/// The refused agent says so in its log, its metrics and to the doctor. It gets in once another agent begins
/// to stop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_of_a_full_cluster_is_told_and_gets_in_once_one_leaves() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    api.otherwise(Behaviour::json("{}"));
    let mut crowd = Crowd::new(&rig);
    for number in 0..AGENTS {
        crowd.join(number).await;
        crowd.join(number).await;
    }
    rig.measured("tombolo_server_agents_connected{cluster=\"edge-a\"}", |agents| agents == 80.0).await;
    assert_eq!(rig.metric(rig.probes(), FULL).await, 0.0, "{}", rig.server_log());

    let late = rig.agent_with(CLUSTER, &ApiServer::of_fake(&rig, &api), "").await;

    let words = "the cluster is full: 80 agents are connected, which is the most";
    rig.logged("edge-a.log", 0, words).await;
    rig.logged("edge-a.log", 0, "run fewer agents").await;
    rig.measured(FULL, |times| times >= 1.0).await;
    assert!(rig.metric(late.probes, "tombolo_agent_dials_failed_total{reason=\"full\"}").await >= 1.0);
    let doctor = rig.tombolo_writes(&["doctor", "agent", "--config", "edge-a.yaml"]).await;
    assert!(doctor.contains(words), "{doctor}");

    crowd.leave(0);

    let of_version = |version: &str| format!("tombolo_server_agents_by_version{{version=\"{version}\"}}");
    rig.measured(&of_version(env!("CARGO_PKG_VERSION")), |agents| agents == 1.0).await;
    rig.measured(&of_version(VERSION), |agents| agents == 79.0).await;
    let wide = rig.tombolo(&["clusters", CLUSTER, "-o", "wide", "--socket", "admin/admin.sock"]).await;
    assert!(wide.contains("VERSION") && wide.contains(VERSION), "{wide}");
    assert!(wide.contains(env!("CARGO_PKG_VERSION")), "{wide}");
}

/// Agents of one cluster in this process. They keep their tunnels, and serve nothing.
struct Crowd {
    endpoint: Endpoint,
    server: SocketAddr,
    root: Authority,
    server_root: CertificateDer<'static>,
    /// The tunnels, each with the number of its agent.
    tunnels: Vec<(usize, Tunnel)>,
}

impl Crowd {
    fn new(rig: &Rig) -> Self {
        let keys = EndpointKeys::generate().expect("the system has chance");
        Self {
            endpoint: Endpoint::dialing(rig.gateway(), &keys, spawner()).expect("a socket"),
            server: rig.gateway(),
            root: rig.root_of("agent"),
            server_root: CertificateDer::from_pem_slice(rig.server_ca().as_bytes()).expect("PEM"),
            tunnels: Vec::new(),
        }
    }

    /// Opens one more tunnel of an agent, always as the same process.
    async fn join(&mut self, number: usize) {
        let uri = format!("spiffe://{TRUST_DOMAIN_DEFAULT}/cluster/{CLUSTER}/agent/crowd-{number}");
        let issued = self.root.issue_named("agent", &[], &uri);
        let material = Material {
            chain: vec![CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).expect("PEM")],
            key: PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes()).expect("PEM"),
            peer_roots: vec![self.server_root.clone()],
        };
        let expected = ExpectedServers { trust_domain: TRUST_DOMAIN_DEFAULT.to_owned(), ids: Vec::new() };
        let tls = DialTls::new(material, expected).expect("TLS");
        let hello = Hello {
            versions: VERSIONS.to_vec(),
            cluster: CLUSTER.to_owned(),
            boot_nonce: vec![1; 16],
            sequence: self.tunnels.len() as u64 + 1,
            software: format!("crowd/{VERSION}"),
            ..Hello::default()
        };
        let dialed = self.endpoint.dial(self.server, "127.0.0.1", &tls, hello, HANDSHAKE_MAX).await;
        let Dialed { tunnel, driver, .. } = dialed.unwrap_or_else(|error| panic!("agent {number}: {error}"));
        tokio::spawn(async move { drop(driver.run(|_| {}).await) });
        self.tunnels.push((number, tunnel));
    }

    /// An agent begins to stop.
    fn leave(&self, number: usize) {
        let own = self.tunnels.iter().filter(|(of, _)| *of == number);
        own.for_each(|(_, tunnel)| tunnel.begin_drain());
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.tunnels.iter().for_each(|(_, tunnel)| tunnel.close(CloseCode::Stopping));
    }
}
