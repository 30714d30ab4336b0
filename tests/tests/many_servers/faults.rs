//! Faults between servers, and between a server and etcd.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use daemon::Scope;
use rustix::process::Signal;
use tests::etcd::EtcdCluster;
use tests::evil_quic::relay::Relay;
use tests::fake_api::FakeApi;
use tests::faulty_relay::TcpRelay;
use tests::members::{join, join_first, join_first_through, prepare};
use tests::rig::{ApiServer, Rig, free_port, parts_ready};
use tests::skip::skip;
use tokio::time::sleep;
use tunnel_server::directory::{
    Agent, AgentCredential, BearerToken, ClusterSpecUpdate, Directory, Freshness, IssuedChain, NAME_RESERVED,
    Revoked, TokenRefused, UnixSeconds,
};

use crate::directory::{self, PREFIX, STALE_LIMIT, TTL, agent, agent_id, cluster};
use crate::hop::HopTrial;
use crate::{PATH, SERVED, SOCKET, until};

/// Each sync to a disk of etcd takes this much longer.
const SYNC_DELAY: Duration = Duration::from_millis(200);

/// Tokens that are used while answers are lost.
const TOKENS: usize = 15;

/// Answers are lost for this long, and then pass for as long.
const LOST_FOR: Duration = Duration::from_millis(300);

/// The clusters' agents have tunnels to both servers, so nothing waits for the frozen one.
#[tokio::test]
async fn a_frozen_server_is_replaced_and_serves_again_when_it_goes_on() {
    let mut trial = HopTrial::start().await;
    let servers = format!("servers: [\"{}\", \"{}\"]\n", trial.rig.gateway(), trial.other.gateway);
    let api = ApiServer::of_fake(&trial.rig, &trial.api);
    let _agent = trial.rig.agent_of_id("edge-a", "both", &api, &servers).await;
    let own = "tombolo_server_tunnels{carrier=\"quic\"}";
    trial.rig.measured(own, |tunnels| tunnels >= 1.0).await;
    let process = trial.other.process.as_mut().expect("it runs");

    process.signal(Signal::STOP).expect("it runs");

    for _ in 0..20 {
        assert_eq!(trial.rig.ask_at(trial.rig.gateway(), PATH).await.status, SERVED);
    }
    let process = trial.other.process.as_mut().expect("it runs");
    process.signal(Signal::CONT).expect("it runs");
    let (rig, other) = (&trial.rig, trial.other.gateway);
    until(
        "it serves again",
        async || matches!(rig.try_ask_at(other, PATH).await, Ok(reply) if reply.status == SERVED),
    )
    .await;
}

/// A change of etcd waits for the disks of two members, and nothing else does.
#[tokio::test]
async fn slow_disks_of_etcd_delay_changes_and_no_request() {
    if Command::new("strace").arg("--version").output().is_err() {
        return skip("slow_disks_of_etcd_delay_changes_and_no_request", "strace is not installed");
    }
    let (etcd, api) = (EtcdCluster::start_syncing().await, FakeApi::start().await.expect("a fake starts"));
    let mut rig = Rig::start().await;
    join_first(&mut rig, &etcd).await;
    let _other = join(&rig, &etcd, "other").await;
    let _agent = rig.agent_with("edge-a", &ApiServer::of_fake(&rig, &api), "").await;
    rig.connected("edge-a").await;
    let _slow = etcd.slow_disks(SYNC_DELAY).await.expect("strace runs");
    until("its disks are slow", async || {
        let began = Instant::now();
        // Beside other work a change may not be made in time, which is slow as well.
        etcd.try_put("/elsewhere", b"value").await.is_err() || began.elapsed() >= SYNC_DELAY
    })
    .await;

    for number in 0..5 {
        let name = format!("new-{number}");
        rig.tombolo(&[["cluster", "create", &name].as_slice(), &SOCKET].concat()).await;
        assert_eq!(rig.ask_at(rig.gateway(), PATH).await.status, SERVED);
    }
}

#[tokio::test]
async fn a_server_cut_off_from_the_others_says_so_and_goes_on_afterwards() {
    let (etcd, api) = (EtcdCluster::start().await, FakeApi::start().await.expect("a fake starts"));
    let mut rig = Rig::start().await;
    let listen = free_port();
    let relay = Relay::before(listen).await.expect("a relay");
    join_first_through(&mut rig, &etcd, (listen, relay.address())).await;
    let other = join(&rig, &etcd, "other").await;
    let servers = format!("servers: [\"{}\"]\ntunnels: 1\n", other.gateway);
    let _agent = rig.agent_with("edge-a", &ApiServer::of_fake(&rig, &api), &servers).await;
    let status = async || rig.ask_at(rig.gateway(), PATH).await.status;
    until("it is reached", async || status().await == SERVED).await;

    relay.cut(true);

    until("the way is lost", async || status().await == 503).await;
    assert_eq!(rig.ask_at(other.gateway, PATH).await.status, SERVED);
    relay.cut(false);
    until("it is reached again", async || status().await == SERVED).await;
}

/// A caller of the new server would be parked for a cluster that is connected to another one.
#[tokio::test]
async fn a_starting_server_waits_for_its_sessions_but_not_for_ever() {
    let (etcd, mut rig) = (EtcdCluster::start().await, Rig::start().await);
    let listen = free_port();
    let relay = Relay::before(listen).await.expect("a relay");
    join_first_through(&mut rig, &etcd, (listen, relay.address())).await;
    let mut other = prepare(&rig, &etcd, "other", "").await;
    relay.cut(true);
    let probes = other.probes;
    let waits = async || parts_ready(probes).await.contains("[-]peers not ready: it has no session yet");

    tokio::join!(other.start(&rig), until("it waits", waits));

    assert!(parts_ready(probes).await.contains("[+]peers ok"));
}

/// The outcome of such a change is unknown, so it is made again, and must not be made twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_enrolls_once_where_etcds_answers_are_lost() {
    let etcd = EtcdCluster::start().await;
    let (relays, server) = through_relays(&etcd).await;
    let now = SystemTime::now();
    server.create_cluster(cluster("edge-a"), ClusterSpecUpdate::default(), now).await.unwrap();
    let mut bearers = Vec::new();
    for _ in 0..TOKENS {
        bearers.push(server.create_token(cluster("edge-a"), TTL, now).await.unwrap().0);
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let losing = tokio::spawn(lose_in_turns(relays, Arc::clone(&is_over)));

    for (number, bearer) in bearers.iter().enumerate() {
        let name = format!("agent-{number}");
        enroll(&server, bearer, &name).await.unwrap();
    }

    is_over.store(true, Ordering::Relaxed);
    let relays = losing.await.expect("it ends");
    let lost: u64 = relays.iter().map(TcpRelay::lost_bytes).sum();
    assert!(lost > 0, "no answer was lost, so the trial shows nothing");
    let again = enroll(&server, &bearers[0], "another").await;
    assert!(matches!(again, Err(TokenRefused::Used)), "{again:?}");
    assert_eq!(server.agents(Some(cluster("edge-a"))).await.unwrap().len(), TOKENS);
}

/// The watch cannot go on from where it was, so everything is read anew, and what is gone by then is removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_cut_off_past_a_compaction_knows_afterwards_what_was_revoked() {
    let etcd = EtcdCluster::start().await;
    let (other, (relays, cut_off)) = (directory::open(&etcd).await, through_relays(&etcd).await);
    let (now, agent) = (SystemTime::now(), agent_id("edge-a"));
    let admits =
        || cut_off.admits(&agent, &AgentCredential { serial: "1".to_owned(), issued: now.into() }).is_ok();
    for name in ["edge-a", "edge-b"] {
        other.create_cluster(cluster(name), ClusterSpecUpdate::default(), now).await.unwrap();
    }
    until("it knows both", async || cut_off.entry(&cluster("edge-b")).is_some() && admits()).await;

    relays.iter().for_each(|relay| relay.lose_answers(true));
    until("it is cut off", async || cut_off.freshness() == Freshness::Behind).await;
    other.revoke(Revoked::agent(&agent), now).await.unwrap();
    other.delete_cluster(cluster("edge-b"), now, NAME_RESERVED).await.unwrap();
    etcd.compact(etcd.revision().await).await;
    assert!(admits(), "it has no way to know of it");
    relays.iter().for_each(|relay| relay.lose_answers(false));

    until("the revocation is in force", async || !admits()).await;
    until("the cluster is gone", async || cut_off.entry(&cluster("edge-b")).is_none()).await;
    until("it is fresh", async || cut_off.freshness() == Freshness::Fresh).await;
}

/// Relays to each member of etcd, and the directory of a server that reaches etcd through them.
async fn through_relays(etcd: &EtcdCluster) -> (Vec<TcpRelay>, Directory) {
    let (relays, scope) = (etcd.relays().await, Scope::here());
    let client = etcd.client_through(relays.iter().map(TcpRelay::address), &scope);
    let server = Directory::open_shared(client, PREFIX.to_owned(), STALE_LIMIT, scope).await.unwrap();
    (relays, server)
}

/// As an agent does that gets an error of the server: it asks again, with the same key.
async fn enroll(server: &Directory, bearer: &BearerToken, name: &str) -> Result<IssuedChain, TokenRefused> {
    let (names, now) = ((name.to_owned(), name.to_owned()), SystemTime::now());
    // One that has expired would be swept.
    let agent = Agent { expires: UnixSeconds::from(now) + TTL, ..agent(name) };
    loop {
        match server.enroll(bearer.clone(), names.clone(), agent.clone(), None, now).await {
            Err(TokenRefused::Store(_)) => {}
            answered => return answered,
        }
    }
}

async fn lose_in_turns(relays: Vec<TcpRelay>, is_over: Arc<AtomicBool>) -> Vec<TcpRelay> {
    while !is_over.load(Ordering::Relaxed) {
        for loses in [true, false] {
            relays.iter().for_each(|relay| relay.lose_answers(loses));
            sleep(LOST_FOR).await;
        }
    }
    relays
}
