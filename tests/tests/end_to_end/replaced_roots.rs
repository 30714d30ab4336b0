//! Files of CAs that are replaced while the server runs: each listener verifies new clients by the newest roots.

use std::net::SocketAddr;
use std::sync::Arc;

use quinn::ConnectionError;
use quinn::crypto::rustls::QuicClientConfig;
use tests::admin::remote_admin_listener;
use tests::caller::{GATEWAY, Http1Caller, SOON};
use tests::dial::{self, dial};
use tests::enroll;
use tests::fake_api::{Behaviour, FakeApi};
use tests::pki::{Authority, Issued};
use tests::rig::{ApiServer, GROUP, Rig, free_port};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

/// The client name at the entry point for egress.
const API_SERVER: &str = "kube-apiserver-egress";

/// A request that every HTTP/1.1 listener answers, if only to refuse it.
const REQUEST: &str = "GET /clusters HTTP/1.1\r\nHost: gateway.test\r\n\r\n";

/// The log's line about roots that are in force.
const TAKEN: &str = "new connections are verified by it";

/// First the old and the new root are valid, then the new one alone. Sessions go on, as with a replaced server certificate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_listener_verifies_by_replaced_roots_without_restart() {
    let trial = RootsTrial::start().await;
    let api = FakeApi::start().await.unwrap();
    api.on("/version", Behaviour::json("{}"));
    let _agent = trial.rig.agent("edge-a", &ApiServer::of_fake(&trial.rig, &api)).await;
    trial.rig.connected("edge-a").await;
    let (old, new) = (trial.old_clients().await, trial.new_clients());
    let mut session = Http1Caller::dial_name(&trial.rig, GATEWAY, Some(&old[0].identity)).await;
    assert_eq!((trial.accepted(&old).await, trial.accepted(&new).await), (all(), none()));

    for file in &trial.files {
        trial.replace(file, &(file.old.clone() + file.new.certificate_pem())).await;
    }
    assert_eq!((trial.accepted(&old).await, trial.accepted(&new).await), (all(), all()));
    for file in &trial.files {
        trial.replace(file, file.new.certificate_pem()).await;
    }

    assert_eq!((trial.accepted(&old).await, trial.accepted(&new).await), (none(), all()));
    session.write(REQUEST).await;
    assert!(session.read_head().await.starts_with("HTTP/1.1 200 "), "a session goes on");
    let through = trial.rig.ask_with_token("GET", "/clusters/edge-a/version", &[]).await;
    assert_eq!(through.status, 200, "a tunnel goes on: {through:?}");
}

/// A bad file is one without a certificate, and one with a root of another role.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_ca_files_leave_the_last_good_roots_in_force_at_every_listener() {
    let trial = RootsTrial::start().await;
    let (old, new) = (trial.old_clients().await, trial.new_clients());
    let current =
        |file: &CaFile| format!("tombolo_server_file_reload_last_successful{{file=\"{}\"}}", file.label);
    for (index, file) in trial.files.iter().enumerate() {
        let of_another_role = &trial.files[(index + 1) % trial.files.len()];
        for bad in ["no certificate", of_another_role.old.as_str()] {
            let from = trial.rig.server_log().len();
            trial.rig.write(file.path, bad);
            trial.rig.logged("server.log", from, "the last valid one stays in force").await;
            trial.rig.measured(&current(file), |is_current| is_current == 0.0).await;
        }
    }
    assert_eq!((trial.accepted(&old).await, trial.accepted(&new).await), (all(), none()));

    for file in &trial.files {
        trial.replace(file, file.new.certificate_pem()).await;
        trial.rig.measured(&current(file), |is_current| is_current == 1.0).await;
    }

    assert_eq!((trial.accepted(&old).await, trial.accepted(&new).await), (none(), all()));
}

/// The roots of agents and the signer of their certificates are replaced, and then an agent enrolls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agents_authority_is_exchanged_without_restart() {
    let (rig, enrollment) = enroll::start("").await;
    let api = FakeApi::start().await.unwrap();
    rig.tombolo(&["ca", "init", "--dir", "other"]).await;
    let other = |name: &str| rig.path().join("other").join(name);
    let from = rig.server_log().len();
    std::fs::copy(other("agent-ca.crt"), rig.path().join("pki/agent-ca.crt")).expect("a copy");
    rig.logged("server.log", from, TAKEN).await;
    let from = rig.server_log().len();
    for name in ["agent-intermediate.sealed", "sealing.key"] {
        std::fs::copy(other(name), rig.path().join("pki").join(name)).expect("a copy");
    }
    rig.logged("server.log", from, "the next certificates are issued by it").await;
    let _token = enroll::token(&rig, "edge-a").await;

    let _agent = enroll::agent(&rig, &enrollment, "one", "edge-a", &ApiServer::of_fake(&rig, &api)).await;

    rig.connected("edge-a").await;
}

/// A server with every listener that verifies clients.
struct RootsTrial {
    rig: Rig,
    admins: SocketAddr,
    egress: SocketAddr,
    egress_ca: Authority,
    files: [CaFile; 4],
}

/// A file of roots beside the server's configuration.
struct CaFile {
    path: &'static str,
    /// The name of the file in the metric of reloads.
    label: &'static str,
    old: String,
    new: Authority,
}

/// A client of one listener, with a certificate.
struct ListenerClient {
    listener: &'static str,
    identity: Issued,
}

/// The listeners, in the order of the results; an agent arrives at two.
const LISTENERS: [&str; 5] = ["gateway", "tunnel over TCP", "tunnel over QUIC", "admin", "egress"];

fn all() -> Vec<&'static str> {
    LISTENERS.to_vec()
}

fn none() -> Vec<&'static str> {
    Vec::new()
}

impl RootsTrial {
    async fn start() -> Self {
        let (admins, config) = remote_admin_listener(&[("olga", "viewer"), ("nora", "viewer")]);
        let (mut rig, _) = enroll::start(&config).await;
        let (egress, egress_ca) = (free_port(), Authority::new("egress"));
        rig.write("pki/egress-ca.crt", egress_ca.certificate_pem());
        rig.kill_server();
        rig.write_config(|config| {
            format!(
                "{config}egress: [{{ name: host-a, cluster: edge-a, tcp: {{ listen: \"{egress}\", clientCAFile: \
                 pki/egress-ca.crt, clientName: {API_SERVER} }} }}]\n"
            )
        });
        rig.start_server().await;
        let file = |path: &'static str, label: &'static str| CaFile {
            path,
            label,
            old: std::fs::read_to_string(rig.path().join(path)).expect("a CA file"),
            new: Authority::new(label),
        };
        let files = [
            file("pki/caller-ca.crt", "caller_ca"),
            file("pki/agent-ca.crt", "agent_ca"),
            file("pki/admin-ca.crt", "admin_ca"),
            file("pki/egress-ca.crt", "egress_ca"),
        ];
        Self { rig, admins, egress, egress_ca, files }
    }

    /// Writes other roots, and waits until they are in force.
    async fn replace(&self, file: &CaFile, roots: &str) {
        let from = self.rig.server_log().len();
        self.rig.write(file.path, roots);
        self.rig.logged("server.log", from, TAKEN).await;
    }

    /// A client of each listener, by the roots that were there at the start.
    async fn old_clients(&self) -> [ListenerClient; 5] {
        self.rig
            .tombolo(&["ca", "issue", "agent", "--dir", "pki", "--cluster", "edge-a", "--id", "old"])
            .await;
        let agent = self.rig.issued("edge-a.old-agent");
        clients([
            self.rig.caller("alice", &[GROUP]).await,
            agent.clone(),
            agent,
            self.rig.admin("olga").await,
            self.egress_ca.issue_user(API_SERVER, &[]),
        ])
    }

    /// The same by the roots that replace them.
    fn new_clients(&self) -> [ListenerClient; 5] {
        let [callers, agents, admins, egress] = self.files.each_ref().map(|file| &file.new);
        let agent = agents.issue_named("new", &[], "spiffe://tombolo/cluster/edge-a/agent/new");
        clients([
            callers.issue_user("bob", &[GROUP]),
            agent.clone(),
            agent,
            admins.issue_named("nora", &[], "spiffe://tombolo/admin/nora"),
            egress.issue_user(API_SERVER, &[]),
        ])
    }

    /// The listeners that accept their client.
    async fn accepted(&self, clients: &[ListenerClient]) -> Vec<&'static str> {
        let mut accepted = Vec::new();
        for ListenerClient { listener, identity } in clients {
            let gateway = self.rig.gateway();
            let is_accepted = match *listener {
                "gateway" => self.answers(gateway, &["http/1.1"], REQUEST, identity).await,
                "tunnel over TCP" => self.answers(gateway, &["tombolo/1"], "", identity).await,
                "tunnel over QUIC" => self.answers_by_quic(identity).await,
                "admin" => self.answers(self.admins, &["h2"], "", identity).await,
                "egress" => self.answers(self.egress, &[], REQUEST, identity).await,
                other => unreachable!("{other}"),
            };
            if is_accepted {
                accepted.push(*listener);
            }
        }
        accepted
    }

    /// Returns true if a listener sends data after the handshake. In TLS 1.3 a client learns only then whether its certificate
    /// is accepted.
    async fn answers(&self, address: SocketAddr, protocols: &[&str], says: &str, identity: &Issued) -> bool {
        let exchange = async {
            let mut tls = dial(address, &self.rig.server_ca(), protocols, Some(identity)).await?;
            tls.write_all(says.as_bytes()).await?;
            tls.flush().await?;
            tls.read_exact(&mut [0; 9]).await
        };
        timeout(SOON, exchange).await.expect("data or an end comes").is_ok()
    }

    /// The same over QUIC, where a greeting that is none tells an accepted agent from a refused one.
    async fn answers_by_quic(&self, identity: &Issued) -> bool {
        let mut tls = dial::config(&self.rig.server_ca(), Some(identity)).unwrap();
        tls.alpn_protocols = vec![b"tombolo/1".to_vec()];
        let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
        let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
        let closed = async {
            let connection = endpoint.connect_with(config, self.rig.dialed(), "127.0.0.1").unwrap().await?;
            let (mut send, _receive) = connection.open_bi().await?;
            // A connection that is closed meanwhile says so below.
            let _ = send.write_all(&[0xff; 100]).await;
            Err::<(), ConnectionError>(connection.closed().await)
        };
        match timeout(SOON, closed).await.expect("it is closed") {
            Err(ConnectionError::ApplicationClosed(_)) => true,
            Err(ConnectionError::ConnectionClosed(_)) => false,
            other => panic!("{other:?}"),
        }
    }
}

fn clients(identities: [Issued; 5]) -> [ListenerClient; 5] {
    let mut listeners = LISTENERS.into_iter();
    identities.map(|identity| ListenerClient { listener: listeners.next().expect("one for each"), identity })
}
