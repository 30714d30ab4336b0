//! The tunnels of an agent to different servers, of which it was told.

use std::net::SocketAddr;

use rustix::process::Signal;
use tests::etcd::EtcdCluster;
use tests::evil_quic::relay::Relay;
use tests::fake_api::FakeApi;
use tests::members::{join, join_first, join_first_listed, join_listed};
use tests::rig::{Agent, ApiServer, Peer, Rig};

use crate::{PATH, SERVED, has_tunnel, until};

#[tokio::test]
async fn an_agent_that_knows_one_name_gets_two_tunnels_to_three_servers() {
    let trial = ListedTrial::start().await;

    let connected = trial.two_connected().await;

    assert_eq!(trial.rig.metric(trial.agent().probes, "tombolo_agent_servers_known").await, 3.0);
    for gateway in trial.gateways() {
        let (rig, agent) = (&trial.rig, &connected);
        until("it is reached", async || rig.ask_at(gateway, PATH).await.status == SERVED).await;
        assert_eq!(trial.connected().await, *agent, "the tunnels stay");
    }
}

#[tokio::test]
async fn a_killed_server_is_replaced_by_the_third() {
    let mut trial = ListedTrial::start().await;
    let before = trial.two_connected().await;

    trial.kill(before[0]);

    let third = trial.gateways().into_iter().find(|gateway| !before.contains(gateway)).expect("a third");
    until("the third has a tunnel", async || trial.connected().await.contains(&third)).await;
    assert_eq!(trial.rig.ask_at(third, PATH).await.status, SERVED);
}

#[tokio::test]
async fn an_agent_that_starts_without_its_first_name_finds_the_others() {
    let mut trial = ListedTrial::start().await;
    trial.two_connected().await;
    trial.agent = None;
    let first = trial.rig.gateway();
    trial.kill(first);

    trial.start_agent().await;

    let connected = trial.two_connected().await;
    assert!(!connected.contains(&first), "{connected:?}");
}

#[tokio::test]
async fn a_stopping_server_is_left_before_it_ends() {
    let mut trial = ListedTrial::start().await;
    let before = trial.two_connected().await;
    let third = trial.gateways().into_iter().find(|gateway| !before.contains(gateway)).expect("a third");

    let leaves = before.into_iter().find(|gateway| *gateway != trial.rig.gateway()).expect("another");
    let peer = trial.others.iter_mut().find(|peer| peer.gateway == leaves).expect("a peer");
    let process = peer.process.as_mut().expect("it runs");
    let from = trial.rig.agent_log("edge-a").len();
    process.signal(Signal::TERM).expect("it runs");

    until("the third has a tunnel", async || trial.connected().await.contains(&third)).await;
    let text = "the tunnel moves to another server";
    trial.rig.logged("edge-a.log", from, text).await;
    let log = trial.rig.agent_log("edge-a");
    let (moves, ends) = (log[from..].find(text), log[from..].find("the server is stopping"));
    assert!(ends.is_none_or(|ends| moves.is_some_and(|moves| moves < ends)), "{log}");
}

#[tokio::test]
async fn behind_one_name_two_different_servers_are_found() {
    let (etcd, api) = (EtcdCluster::start().await, FakeApi::start().await.expect("a fake starts"));
    let mut rig = Rig::start().await;
    join_first(&mut rig, &etcd).await;
    let other = join(&rig, &etcd, "other").await;
    // The first three dials reach the same server.
    let (first, second) = (rig.gateway(), other.gateway);
    let relay = Relay::before_all(vec![first, first, first, second]).await.expect("a relay");
    let servers = format!("servers: [\"{}\"]\ncarrier: quic\n", relay.address());

    let _agent = rig.agent_with("edge-a", &ApiServer::of_fake(&rig, &api), &servers).await;

    for probes in [rig.probes(), other.probes] {
        let tunnels = "tombolo_server_tunnels{carrier=\"quic\"}";
        let rig = &rig;
        until("it has a tunnel", async || rig.metric(probes, tunnels).await >= 1.0).await;
    }
}

/// Three servers with addresses of their own, and an agent that knows the name of the first one.
struct ListedTrial {
    rig: Rig,
    others: Vec<Peer>,
    agent: Option<Agent>,
    api: FakeApi,
    _etcd: EtcdCluster,
}

impl ListedTrial {
    async fn start() -> Self {
        let (etcd, api) = (EtcdCluster::start().await, FakeApi::start().await.expect("a fake starts"));
        let mut rig = Rig::start().await;
        join_first_listed(&mut rig, &etcd).await;
        let others = vec![join_listed(&rig, &etcd, "second").await, join_listed(&rig, &etcd, "third").await];
        let mut trial = Self { rig, others, agent: None, api, _etcd: etcd };
        trial.start_agent().await;
        trial
    }

    async fn start_agent(&mut self) {
        let api = ApiServer::of_fake(&self.rig, &self.api);
        let agent = self.rig.agent_with("edge-a", &api, "").await;
        self.rig.ready(agent.probes).await;
        self.agent = Some(agent);
    }

    fn agent(&self) -> &Agent {
        self.agent.as_ref().expect("it runs")
    }

    fn gateways(&self) -> Vec<SocketAddr> {
        [self.rig.gateway()].into_iter().chain(self.others.iter().map(|peer| peer.gateway)).collect()
    }

    fn kill(&mut self, gateway: SocketAddr) {
        match self.others.iter_mut().find(|peer| peer.gateway == gateway) {
            Some(peer) => peer.kill(),
            None => self.rig.kill_server(),
        }
    }

    /// The servers to which the agent has tunnels, by their addresses.
    async fn connected(&self) -> Vec<SocketAddr> {
        let metrics = self.rig.metrics(self.agent().probes).await;
        self.gateways().into_iter().filter(|gateway| has_tunnel(&metrics, *gateway)).collect()
    }

    /// Waits until the agent has tunnels to two servers and to no third one.
    async fn two_connected(&self) -> Vec<SocketAddr> {
        until("two servers have tunnels", async || {
            let log = self.rig.agent_log("edge-a");
            // The tunnel by the name has given way to one by an address of a server's own.
            let has_moved = ["the tunnel moves to another server", "reached by another address meanwhile"];
            has_moved.iter().any(|text| log.contains(text)) && self.connected().await.len() == 2
        })
        .await;
        self.connected().await
    }
}
