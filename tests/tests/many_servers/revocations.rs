//! Changes at one server, which hold at the others.

use tests::etcd::EtcdCluster;
use tests::fake_api::FakeApi;
use tests::rig::{Agent, ApiServer, GROUP, Peer, Rig, ask};

use crate::{PATH, SERVED, SOCKET, until};

#[tokio::test]
async fn a_caller_revoked_at_one_server_is_refused_at_another() {
    let trial = Trial::start().await;
    let ann = trial.rig.caller("ann", &[GROUP]).await;
    let answer = async || {
        let answer = ask(trial.other.gateway, &trial.rig.server_ca(), Some(&ann), "GET", PATH, &[]).await;
        answer.expect("an answer")
    };
    assert_eq!(answer().await.status, SERVED);

    trial.at_first(&["user", "revoke", "--name", "ann"]).await;

    until("she is refused", async || answer().await.body.contains("CredentialRevoked")).await;
    trial.at_first(&["user", "restore", "--name", "ann"]).await;
    until("she is served", async || answer().await.status == SERVED).await;
}

#[tokio::test]
async fn an_agent_revoked_at_one_server_loses_its_tunnel_at_another() {
    let trial = Trial::start().await;

    trial.at_first(&["agent", "revoke", "--cluster", "edge-a", "--yes"]).await;

    trial.rig.logged("edge-a.log", 0, "this agent's certificate was revoked").await;
    let (rig, other) = (&trial.rig, trial.other.gateway);
    until("its cluster is away", async || rig.ask_at(other, PATH).await.status == 503).await;
}

#[tokio::test]
async fn a_cluster_created_at_one_server_is_listed_at_another() {
    let trial = Trial::start().await;

    trial.at_first(&["cluster", "create", "edge-new", "--label", "site=harbour"]).await;

    let (rig, other) = (&trial.rig, trial.other.gateway);
    until("it is listed", async || rig.ask_at(other, "/clusters").await.body.contains("edge-new")).await;
}

/// Two servers over one etcd, and an agent with a tunnel to the second one alone.
struct Trial {
    rig: Rig,
    other: Peer,
    _agent: Agent,
    _api: FakeApi,
    _etcd: EtcdCluster,
}

impl Trial {
    async fn start() -> Self {
        let (etcd, api) = (EtcdCluster::start().await, FakeApi::start().await.expect("a fake starts"));
        let rig = Rig::start_with(&etcd.section("")).await;
        let other = rig.peer("other", &etcd.section("")).await;
        let servers = format!("servers: [\"{}\"]\ntunnels: 1\n", other.gateway);
        let agent = rig.agent_with("edge-a", &ApiServer::of_fake(&rig, &api), &servers).await;
        until("it is connected", async || rig.ask_at(other.gateway, PATH).await.status == SERVED).await;
        Self { rig, other, _agent: agent, _api: api, _etcd: etcd }
    }

    /// Runs `tombolo` at the first server. Without sessions nobody confirms a revocation, so its exit code is 1.
    async fn at_first(&self, words: &[&str]) -> String {
        self.rig.tombolo_writes(&[words, &SOCKET].concat()).await
    }
}
