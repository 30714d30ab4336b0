//! The time from a revocation at one server to the end of what runs at the others.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use proto::admin::admin_client::AdminClient;
use proto::admin::{RevokeUserRequest, Users, users};
use tests::admin::AdminWire;
use tests::caller::GATEWAY;
use tests::dial::dial_name;
use tests::pki::Issued;
use tests::rig::GROUP;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::client::TlsStream;

use super::{ALONE, CONFIGMAPS, HANGS_AFTER, Spread, Trio};

const REVOCATIONS: usize = 200;
const ENDED_MAX: Duration = Duration::from_secs(1);

/// Revocations each of which is made right after the leader of etcd was killed.
const ELECTIONS: usize = 6;
const ENDED_IN_ELECTION_MAX: Duration = Duration::from_secs(3);

/// The pause of an administrator whose change was refused.
const PAUSE: Duration = Duration::from_millis(50);

/// Each user has a watch at both other servers. Each watch must get an ERROR event, and be cut after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: 200 revocations, and six with an election of etcd"]
async fn two_hundred_revocations_end_watches_at_the_other_servers() {
    let _alone = ALONE.lock().await;
    let mut trio = Trio::start().await;
    let gateways = trio.servers().map(|(gateway, _)| gateway);
    let _agent = trio.agent(&gateways).await;

    let mut took = Vec::new();
    for number in 0..REVOCATIONS {
        let (revoked, _) = trio.revoke(&format!("user-{number}"), async |_| ()).await;
        took.push(revoked);
    }
    let took = Spread::of(took);
    println!("soak revocations: {REVOCATIONS} at one server, ended at both others: {took}");

    let (mut in_election, mut refused) = (Vec::new(), 0);
    for number in 0..ELECTIONS {
        let mut killed = None;
        let kill_leader = async |trio: &mut Trio| {
            let leader = trio.etcd.leader().await;
            trio.etcd.kill_member(leader);
            killed = Some(leader);
        };
        let (revoked, tries) = trio.revoke(&format!("user-of-election-{number}"), kill_leader).await;
        in_election.push(revoked);
        refused += tries - 1;
        trio.etcd.start_member(killed.expect("a leader was killed")).await;
        trio.settled().await;
    }
    let in_election = Spread::of(in_election);
    println!(
        "soak revocations in an election: {ELECTIONS} right after the leader was killed: {in_election}; {refused} tries were refused"
    );
    assert!(took.longest <= ENDED_MAX, "{took}");
    assert!(in_election.longest <= ENDED_IN_ELECTION_MAX, "{in_election}");
}

impl Trio {
    /// Opens the watches of a new user, lets `before` happen, and revokes the user. Returns the time from the first try to the
    /// event that ends the last watch, and the number of tries.
    async fn revoke(&mut self, user: &str, before: impl AsyncFnOnce(&mut Self)) -> (Duration, usize) {
        let identity = self.rig.root_of("caller").issue_user(user, &[GROUP]);
        let [_, second, third] = self.servers().map(|(gateway, _)| gateway);
        let watches = [self.open(second, &identity).await, self.open(third, &identity).await];
        before(self).await;

        let began = Instant::now();
        let revoking = async {
            let mut tries = 1;
            while self.ask_to_revoke(user).await.is_err() {
                tries += 1;
                sleep(PAUSE).await;
            }
            tries
        };
        let [one, other] = watches.map(ended);
        let all = async { tokio::join!(revoking, one, other) };
        let (tries, one, other) = timeout(HANGS_AFTER, all).await.expect("the watches end");
        (one.max(other).duration_since(began), tries)
    }

    async fn ask_to_revoke(&self, user: &str) -> Result<(), tonic::Status> {
        let wire = AdminWire::connect(&self.rig.admin_socket()).await.expect("the admin API");
        let mut client = AdminClient::with_origin(wire, AdminWire::origin());
        let users = Some(Users { users: Some(users::Users::Name(user.to_owned())) });
        client.revoke_user(RevokeUserRequest { users, issued_before: None }).await.map(drop)
    }

    /// Opens a watch, and waits for its head.
    async fn open(&self, gateway: SocketAddr, identity: &Issued) -> TlsStream<TcpStream> {
        let dialed = dial_name(gateway, GATEWAY, &self.rig.server_ca(), &["http/1.1"], Some(identity)).await;
        let mut stream = dialed.expect("the gateway shakes hands");
        let target =
            format!("/clusters/edge-a{CONFIGMAPS}?watch=1&resourceVersion={}", self.store.revision());
        let head = format!("GET {target} HTTP/1.1\r\nHost: {GATEWAY}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.expect("it is sent");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await.expect("a head"));
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
        stream
    }

    /// Waits until all members of etcd answer, and servers take changes again.
    async fn settled(&mut self) {
        self.etcd.start_members().await;
        while self.ask_to_revoke("nobody").await.is_err() {
            sleep(PAUSE).await;
        }
        // The member that was started again has to follow the leader before the next one is killed.
        while !self.etcd.is_whole().await {
            sleep(PAUSE).await;
        }
    }
}

/// Waits for the ERROR event by which a watch ends, and returns when it came. Its body is cut afterwards, and must not look complete.
async fn ended(mut watch: TlsStream<TcpStream>) -> Instant {
    let (mut rest, mut at) = (Vec::new(), None);
    // A cut is an error, and wanted.
    while watch.read_buf(&mut rest).await.is_ok_and(|bytes| bytes > 0) {
        if at.is_none() && String::from_utf8_lossy(&rest).contains("\"ERROR\"") {
            at = Some(Instant::now());
        }
    }
    let rest = String::from_utf8_lossy(&rest);
    assert!(!rest.ends_with("0\r\n\r\n"), "it looks complete: {rest}");
    at.unwrap_or_else(|| panic!("no ERROR event: {rest}"))
}
