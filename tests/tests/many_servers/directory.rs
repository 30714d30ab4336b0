//! Directories of several servers over one etcd: what one changes the others know, and nothing is given twice.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use daemon::Scope;
use futures::future::join_all;
use proto::ClusterId;
use proto::spiffe::AgentId;
use rustls_pki_types::CertificateDer;
use tests::etcd::EtcdCluster;
use tokio::time::timeout;
use tunnel_server::directory::{
    AddressRange, Agent, AgentCredential, ClusterSpecUpdate, Directory, IssuedChain, NAME_RESERVED, Revoked,
    SeenOutcome, TokenRefused, UnixSeconds,
};

use crate::until;

/// The beginning of all keys of the servers.
pub(crate) const PREFIX: &str = "/tombolo/example.org/";

const SERVERS: usize = 3;

/// Agents that use one token at once.
const AGENTS: usize = 30;

/// Clusters that get an address.
const CLUSTERS: usize = 120;

/// The limit for a change to reach every server.
const TOLD_MAX: Duration = Duration::from_secs(20);

/// A limit that is longer than the test.
pub(crate) const STALE_LIMIT: Duration = Duration::from_secs(300);

pub(crate) const TTL: Duration = Duration::from_secs(900);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_server_changes_the_others_know() {
    let (_etcd, servers) = servers().await;
    let [one, two, _] = &servers;
    let (agent, now) = (agent_id("edge-a"), SystemTime::now());
    let credential = AgentCredential { serial: "1".to_owned(), issued: now.into() };

    one.create_cluster(cluster("edge-a"), ClusterSpecUpdate::default(), now).await.unwrap();
    told(two, |directory| directory.entry(&cluster("edge-a")).is_some()).await;
    assert!(two.admits(&agent, &credential).is_ok());

    two.revoke(Revoked::agent(&agent), now).await.unwrap();
    told(one, |directory| directory.admits(&agent, &credential).is_err()).await;
    assert!(one.restore(Revoked::agent(&agent)).await.unwrap());
    told(two, |directory| directory.admits(&agent, &credential).is_ok()).await;

    one.delete_cluster(cluster("edge-a"), now, NAME_RESERVED).await.unwrap();
    told(two, |directory| directory.admits(&agent, &credential).is_err()).await;
    let refused = two.create_cluster(cluster("edge-a"), ClusterSpecUpdate::default(), now).await;
    assert!(refused.is_err(), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_token_enrolls_one_agent_at_all_servers_together() {
    let (_etcd, servers) = servers().await;
    let now = SystemTime::now();
    servers[0].create_cluster(cluster("edge-a"), ClusterSpecUpdate::default(), now).await.unwrap();
    let (bearer, _) = servers[0].create_token(cluster("edge-a"), TTL, now).await.unwrap();

    let all = (0..AGENTS).map(|number| {
        let (server, name) = (&servers[number % SERVERS], format!("agent-{number}"));
        server.enroll(bearer.clone(), (name.clone(), name.clone()), agent(&name), None, now)
    });
    let all = join_all(all).await;

    let enrolled: Vec<_> =
        all.iter().enumerate().filter_map(|(number, done)| Some((number, done.as_ref().ok()?))).collect();
    let [(winner, chain)] = enrolled.as_slice() else { panic!("{enrolled:?}") };
    assert!(
        all.iter().filter_map(|done| done.as_ref().err()).all(|error| matches!(error, TokenRefused::Used))
    );
    let name = format!("agent-{winner}");
    for server in &servers {
        let again =
            server.enroll(bearer.clone(), (name.clone(), name.clone()), agent("another"), None, now).await;
        assert_eq!(again.as_ref().ok(), Some(*chain), "the same key gets the same certificate");
        assert_eq!(server.agents(Some(cluster("edge-a"))).await.unwrap().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_start_together_assign_no_address_twice() {
    let (_etcd, servers) = servers().await;
    let names: BTreeSet<ClusterId> = (0..CLUSTERS).map(|number| cluster(&format!("edge-{number}"))).collect();
    let range = AddressRange { network: "100.100.0.0/24".parse().unwrap(), clusters: names };

    let assigned =
        servers.iter().map(|server| server.assign_addresses(vec![range.clone()], SystemTime::now()));
    let assigned = join_all(assigned).await;

    let plans: Vec<BTreeMap<ClusterId, IpAddr>> = assigned
        .into_iter()
        .map(|plan| plan.unwrap().into_iter().map(|(cluster, given)| (cluster, given.address)).collect())
        .collect();
    let addresses: BTreeSet<IpAddr> = plans[0].values().copied().collect();
    assert_eq!((plans[0].len(), addresses.len()), (CLUSTERS, CLUSTERS));
    assert!(plans.iter().all(|plan| *plan == plans[0]), "all servers have one plan");
}

/// As after a restart of everything. Each agent's tunnel waits for its cluster to be stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_that_are_seen_at_once_are_written_together() {
    let (etcd, [one, two, _]) = servers().await;
    let (before, now) = (etcd.revision().await, SystemTime::now());
    let seen = |server: &Directory, at| {
        (0..CLUSTERS)
            .map(|number| server.mark_seen(&cluster(&format!("edge-{number}")), at))
            .collect::<Vec<_>>()
    };
    assert_eq!(seen(&one, now), [SeenOutcome::First; CLUSTERS]);

    join_all((0..CLUSTERS).map(|_| one.save_new())).await.into_iter().collect::<Result<(), _>>().unwrap();

    // 50 clusters a change.
    assert_eq!(etcd.revision().await - before, 3);
    let last = cluster(&format!("edge-{}", CLUSTERS - 1));
    until("the other server knows them", async || two.was_seen(&last)).await;
    assert_eq!(seen(&two, now + TTL), [SeenOutcome::Again; CLUSTERS]);
    two.save_new().await.unwrap();
    assert_eq!(etcd.revision().await - before, 3, "a tunnel to another server is no news");
    two.save().await.unwrap();
    assert_eq!(etcd.revision().await - before, 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revocations_compacted_in_etcd_hold_at_a_server_that_starts() {
    let (etcd, servers) = servers().await;
    let (now, agent) = (SystemTime::now(), agent_id("edge-a"));
    servers[0].revoke(Revoked::agent(&agent), now).await.unwrap();
    let client = etcd.client(&Scope::here());
    let revision = client.list(&etcd::KeyRange::key("none"), None).await.unwrap().revision;
    etcd.compact(revision.0).await;

    let late = open(&etcd).await;

    let credential = AgentCredential { serial: "1".to_owned(), issued: now.into() };
    assert!(late.admits(&agent, &credential).is_err());
}

/// The directories of three servers over one etcd.
pub(crate) async fn servers() -> (EtcdCluster, [Directory; SERVERS]) {
    let etcd = EtcdCluster::start().await;
    let (one, two, three) = tokio::join!(open(&etcd), open(&etcd), open(&etcd));
    (etcd, [one, two, three])
}

/// The directory of one more server.
pub(crate) async fn open(etcd: &EtcdCluster) -> Directory {
    let scope = Scope::here();
    let client = etcd.client(&scope);
    Directory::open_shared(client, PREFIX.to_owned(), STALE_LIMIT, scope).await.expect("etcd answers")
}

/// Waits until a server knows it.
async fn told(server: &Directory, knows: impl Fn(&Directory) -> bool) {
    let mut changes = server.changes();
    let known = timeout(TOLD_MAX, async {
        while !knows(server) {
            changes.changed().await.expect("the directory is open");
        }
    });
    known.await.expect("in time");
}

pub(crate) fn cluster(name: &str) -> ClusterId {
    name.parse().unwrap()
}

pub(crate) fn agent_id(cluster: &str) -> AgentId {
    AgentId::parse(&format!("spiffe://tombolo/cluster/{cluster}/agent/x"), "tombolo").unwrap()
}

pub(crate) fn agent(name: &str) -> Agent {
    let (issued, expires) = (UnixSeconds(5), UnixSeconds(5) + TTL);
    Agent {
        public_key: name.to_owned(),
        serial: "1".to_owned(),
        issued,
        expires,
        answer: IssuedChain::of(&[CertificateDer::from(name.as_bytes().to_vec())]),
        previous: None,
        pod: None,
    }
}
