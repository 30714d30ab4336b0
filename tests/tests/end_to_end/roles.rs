//! Every role's certificate, tried at every listener.

use std::net::SocketAddr;

use proto::greeting::VERSIONS;
use proto::wire::Hello;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tests::admin::{AdminWire, remote_admin_listener};
use tests::fake_api::{Behaviour, FakeApi};
use tests::pki::Issued;
use tests::rig::{Agent, ApiServer, GROUP, Rig, ask};
use tests::rogue_server::spawner;
use tonic::Code;
use transport::tls::{ExpectedServers, Material};
use transport::{DialError, DialPath, DialTls, Dialed, Endpoint, EndpointKeys, HANDSHAKE_MAX, dial_tcp};

/// The URI in the certificates of each role.
const URIS: [(&str, &str); 5] = [
    ("server", "spiffe://tombolo/server/gateway"),
    ("agent", "spiffe://tombolo/cluster/edge-b/agent/x"),
    ("caller", "spiffe://tombolo/caller"),
    ("admin", "spiffe://tombolo/admin/olga"),
    ("peer", "spiffe://tombolo/peer/other"),
];

/// A listener of the server, with the role that it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RoleListener {
    AgentsQuic,
    AgentsTcp,
    Callers,
    Admins,
}

const LISTENERS: [RoleListener; 4] =
    [RoleListener::AgentsQuic, RoleListener::AgentsTcp, RoleListener::Callers, RoleListener::Admins];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_accepted_only_at_its_own_roles_listener() {
    let trial = RoleTrial::start().await;
    for (role, _) in URIS {
        let shown = trial.issued(role).await;
        for listener in LISTENERS {
            assert_eq!(
                trial.opens(listener, &shown).await.is_ok(),
                role == listener.role(),
                "{role} at {listener:?}"
            );
        }
    }
    trial.nobody_else_came();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listeners_own_root_cannot_vouch_for_another_role() {
    let trial = RoleTrial::start().await;
    for listener in LISTENERS {
        let root = trial.rig.root_of(listener.role());
        for (role, uri) in URIS {
            let forged = root.issue_named("alice", &[GROUP], uri);
            let opened = trial.opens(listener, &forged).await;
            assert_eq!(opened.is_ok(), role == listener.role(), "{role} at {listener:?}: {opened:?}");
        }
    }
    trial.nobody_else_came();
}

/// A server with an agent of its own, whose cluster callers of the group may reach.
struct RoleTrial {
    rig: Rig,
    admins: SocketAddr,
    _api: FakeApi,
    _agent: Agent,
}

impl RoleListener {
    fn role(self) -> &'static str {
        match self {
            Self::AgentsQuic | Self::AgentsTcp => "agent",
            Self::Callers => "caller",
            Self::Admins => "admin",
        }
    }
}

impl RoleTrial {
    async fn start() -> Self {
        let (admins, config) = remote_admin_listener(&[("olga", "viewer")]);
        let (rig, api) = (Rig::start_with(&config).await, FakeApi::start().await.expect("a fake starts"));
        api.on("/version", Behaviour::json("{}"));
        let agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
        Self { rig, admins, _api: api, _agent: agent }
    }

    /// A certificate as the role's authority issues it.
    async fn issued(&self, role: &str) -> Issued {
        let (words, name): (&[&str], &str) = match role {
            "server" => (&["server", "--name", "gateway.test", "--id", "other"], "other-server"),
            "agent" => (&["agent", "--cluster", "edge-b"], "edge-b-agent"),
            "caller" => (&["caller", "--user", "alice", "--group", GROUP], "alice-caller"),
            "admin" => (&["admin", "--name", "olga"], "olga-admin"),
            "peer" => (&["peer", "--id", "other"], "other-peer"),
            other => unreachable!("{other}"),
        };
        self.rig.tombolo(&[&["ca", "issue"], &words[..1], &["--dir", "pki"], &words[1..]].concat()).await;
        self.rig.issued(name)
    }

    /// Checks that the listener accepts the certificate: up to an open tunnel, or to an answer of the
    /// cluster.
    async fn opens(&self, listener: RoleListener, shown: &Issued) -> Result<(), String> {
        match listener {
            RoleListener::AgentsQuic | RoleListener::AgentsTcp => {
                let dialed = self.dial(listener, shown).await.map_err(|error| error.to_string())?;
                dialed.tunnel.close(proto::CloseCode::Drained);
                Ok(())
            }
            RoleListener::Admins => {
                let wire = AdminWire::dial(self.admins, &self.rig.server_ca(), Some(shown)).await;
                let mut wire = wire.map_err(|error| error.to_string())?;
                match wire
                    .ask("/tombolo.admin.v1.Admin/ListClusters")
                    .await
                    .map_err(|error| error.to_string())?
                {
                    Code::Ok => Ok(()),
                    code => Err(code.to_string()),
                }
            }
            RoleListener::Callers => {
                let (gateway, ca) = (self.rig.gateway(), self.rig.server_ca());
                let asked = ask(gateway, &ca, Some(shown), "GET", "/clusters/edge-a/version", &[]).await;
                match asked.map_err(|error| error.to_string())?.status {
                    200 => Ok(()),
                    status => Err(status.to_string()),
                }
            }
        }
    }

    async fn dial(&self, listener: RoleListener, shown: &Issued) -> Result<Dialed, DialError> {
        let certificates = |pem: &str| -> Vec<CertificateDer<'static>> {
            CertificateDer::pem_slice_iter(pem.as_bytes()).map(|one| one.expect("PEM")).collect()
        };
        let material = Material {
            chain: certificates(&shown.certificate_pem),
            key: PrivateKeyDer::from_pem_slice(shown.key_pem.as_bytes()).expect("PEM"),
            peer_roots: certificates(&self.rig.server_ca()),
        };
        let expected_servers = ExpectedServers { trust_domain: "tombolo".to_owned(), ids: Vec::new() };
        let tls = DialTls::new(material, expected_servers).expect("a pair");
        let (cluster, boot_nonce) = ("edge-b".to_owned(), vec![7; 16]);
        let hello =
            Hello { versions: VERSIONS.to_vec(), cluster, boot_nonce, sequence: 1, ..Hello::default() };
        let (gateway, name) = (self.rig.gateway(), "127.0.0.1");
        if listener == RoleListener::AgentsTcp {
            return dial_tcp(&DialPath::Direct(gateway), name, &tls, hello, HANDSHAKE_MAX, &*spawner()).await;
        }
        let keys = EndpointKeys::generate().expect("chance");
        let endpoint = Endpoint::dialing(gateway, &keys, spawner()).expect("a socket");
        endpoint.dial(gateway, name, &tls, hello, HANDSHAKE_MAX).await
    }

    /// The agent's own tunnel and, by each carrier, at most the one of the role's own certificate.
    fn nobody_else_came(&self) {
        let log = self.rig.server_log();
        assert!(log.matches("tunnel opened").count() <= 3, "{log}");
        assert!(!log.contains("panic"), "{log}");
    }
}
