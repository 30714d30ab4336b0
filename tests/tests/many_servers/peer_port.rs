//! The listener for other servers: the certificates and processes that open a session there.

use std::net::SocketAddr;

use daemon::{Scope, error_chain};
use proto::CloseCode;
use proto::greeting::BootNonce;
use proto::peering::PeerInfo;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tests::etcd::EtcdCluster;
use tests::members::{join, join_first};
use tests::pki::Issued;
use tests::rig::{GROUP, Peer, Rig};
use tests::rogue_server::spawner;
use transport::tls::{ExpectedPeer, SharedCertificate};
use transport::{DialTls, Endpoint, EndpointKeys, HANDSHAKE_MAX, PeerOpening};
use tunnel_server::directory::Directory;

use crate::directory::STALE_LIMIT;
use crate::servers::entry;
use crate::{SOCKET, until};

/// The beginning of all keys of the rig's servers.
const PREFIX: &str = "/tombolo/tombolo/";

/// The server that the test plays.
const GUEST: &str = "guest";

const OPENED: &str = "opened";

/// Its own certificate opens a session, so the others are refused for what they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_peers_certificate_opens_a_session_at_the_peering_port() {
    let port = PeerPort::start().await;
    let (rig, boot) = (&port.rig, BootNonce([7; 16]));
    port.register(boot).await;
    for (words, name) in [
        (vec!["peer", "--id", GUEST], "guest-peer"),
        (vec!["server", "--name", "gateway.test", "--id", GUEST], "guest-server"),
        (vec!["agent", "--cluster", "edge-b"], "edge-b-agent"),
        (vec!["caller", "--user", "alice", "--group", GROUP], "alice-caller"),
        (vec!["admin", "--name", "olga"], "olga-admin"),
    ] {
        rig.tombolo(&[&["ca", "issue"], &words[..1], &["--dir", "pki"], &words[1..]].concat()).await;
        let opened = port.dial(&rig.issued(name), GUEST, boot).await;
        assert_eq!(opened == OPENED, name == "guest-peer", "{name}: {opened}");
    }
    // The root of peers vouches for no other role, and for no other server.
    for uri in [
        "spiffe://tombolo/server/guest",
        "spiffe://tombolo/cluster/edge-b/agent/x",
        "spiffe://tombolo/caller",
        "spiffe://tombolo/admin/olga",
        "spiffe://tombolo/peer/other",
        "spiffe://elsewhere/peer/guest",
    ] {
        let forged = rig.root_of("peer").issue_named("alice", &[GROUP], uri);
        let opened = port.dial(&forged, GUEST, boot).await;
        assert_ne!(opened, OPENED, "{uri}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_registered_process_of_a_server_opens_a_session() {
    let port = PeerPort::start().await;
    port.rig.tombolo(&["ca", "issue", "peer", "--dir", "pki", "--id", GUEST]).await;
    let shown = port.rig.issued("guest-peer");
    let (first, second) = (BootNonce([1; 16]), BootNonce([2; 16]));
    let refused = "is not the one that is registered";

    let unregistered = port.dial(&shown, GUEST, first).await;
    assert!(unregistered.contains(refused), "{unregistered}");

    port.register(first).await;
    assert_eq!(port.dial(&shown, GUEST, first).await, OPENED);

    port.register(second).await;
    let old = port.dial(&shown, GUEST, first).await;
    assert!(old.contains(refused), "{old}");
    assert_eq!(port.dial(&shown, GUEST, second).await, OPENED);
}

/// Its files are those of a renewed certificate. Sessions that run go on with the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_peer_certificate_is_shown_from_the_next_session_on() {
    let mut port = PeerPort::start().await;
    let serial = |rig: &Rig| rig.issued("first-peer").certificate_pem;
    let before = serial(&port.rig);

    port.rig.tombolo(&["ca", "issue", "peer", "--dir", "pki", "--id", "first", "--force"]).await;

    assert_ne!(serial(&port.rig), before);
    port.rig
        .logged("server.log", 0, "the certificate has changed, and new connections see the new one")
        .await;
    let opened = || std::fs::read_to_string(port.rig.path().join("other.log")).unwrap_or_default();
    let sessions = opened().matches("another server has opened a session").count();
    // A restart of the other server needs a new session of the first one.
    port.other.kill();
    port.other.start(&port.rig).await;
    until("the first one is back", async || {
        opened().matches("another server has opened a session").count() > sessions
    })
    .await;
}

/// Two servers, of which the test dials the second one.
struct PeerPort {
    rig: Rig,
    other: Peer,
    address: SocketAddr,
    directory: Directory,
    _etcd: EtcdCluster,
}

impl PeerPort {
    async fn start() -> Self {
        let (etcd, mut rig) = (EtcdCluster::start().await, Rig::start().await);
        join_first(&mut rig, &etcd).await;
        let other = join(&rig, &etcd, "other").await;
        let scope = Scope::here();
        let opened = Directory::open_shared(etcd.client(&scope), PREFIX.to_owned(), STALE_LIMIT, scope);
        let directory = opened.await.expect("etcd answers");
        let address = directory.servers().get("other").and_then(|server| server.peering.clone());
        let address = address.expect("it is registered").parse().expect("an address");
        Self { rig, other, address, directory, _etcd: etcd }
    }

    /// Registers this process of the guest, and waits until the other server knows it. Nobody can dial it.
    async fn register(&self, boot: BootNonce) {
        let entry = entry(&boot.to_string(), "guest");
        let mut registration = self.directory.registration(GUEST, entry).expect("it is shared");
        registration.keep().await.expect("etcd answers");
        let epoch = boot.to_string();
        let is_known = || self.directory.servers().get(GUEST).is_some_and(|entry| entry.epoch == epoch);
        until("it is registered", async || is_known()).await;
        // The other server confirms a later change, and the guest never does.
        let name = format!("after-{epoch}");
        let words = [["user", "revoke", "--name", &name].as_slice(), &SOCKET].concat();
        let is_known = async || self.rig.tombolo_writes(&words).await.contains("in force on 2 of 3 servers");
        until("the other server knows it", is_known).await;
    }

    /// Dials as a server of this ID. Returns [`OPENED`], or why there is no session.
    async fn dial(&self, shown: &Issued, server_id: &str, boot: BootNonce) -> String {
        let chain = |pem: &str| -> Vec<CertificateDer<'static>> {
            CertificateDer::pem_slice_iter(pem.as_bytes()).map(|one| one.expect("PEM")).collect()
        };
        let key = PrivateKeyDer::from_pem_slice(shown.key_pem.as_bytes()).expect("PEM");
        let certificate = SharedCertificate::new(chain(&shown.certificate_pem), key).expect("a pair");
        let expected = ExpectedPeer { trust_domain: "tombolo".to_owned(), server_id: "other".to_owned() };
        let tls = DialTls::for_peer(certificate, chain(&self.rig.server_ca()), expected).expect("a pair");
        let own = PeerInfo { server_id: server_id.to_owned(), boot, epoch: 0, software: "test".to_owned() };
        let opening = PeerOpening { own, dialed_id: "other".to_owned() };
        let keys = EndpointKeys::generate().expect("chance");
        let endpoint = Endpoint::dialing(self.address, &keys, spawner()).expect("a socket");
        match endpoint.dial(self.address, "127.0.0.1", &tls, opening, HANDSHAKE_MAX).await {
            Ok(dialed) => {
                dialed.tunnel.close(CloseCode::Drained);
                OPENED.to_owned()
            }
            Err(error) => error_chain(&error).to_string(),
        }
    }
}
