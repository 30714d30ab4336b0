//! A gateway and an agent in front of a fake API server.

use std::path::PathBuf;

use crate::fake_api::{FakeApi, FakeApiOptions, HttpVersion};
use crate::rig::{AGENT_TOKEN, Agent, ApiServer, Rig};

/// The name of the cluster.
pub const CLUSTER: &str = "edge-a";

/// Lets the agent assert any identity, and configures what it would otherwise request from its API server, so
/// that every request there is a caller's.
const MORE: &str = "impersonation: { users: [\"*\"], groups: [\"*\"] }\nadvertise: [\"192.168.1.10:6443\"]";

/// A server, one agent, and its fake API server.
#[derive(Debug)]
#[must_use = "all of it ends when this is dropped"]
pub struct FakeEdge {
    /// The server and its files.
    pub rig: Rig,
    /// The fake API server of the cluster.
    pub fake: FakeApi,
    /// The agent of the cluster.
    pub agent: Agent,
}

impl FakeEdge {
    /// Starts all of it; the API server speaks this version of HTTP alone.
    pub async fn start(version: HttpVersion) -> Self {
        Self::start_with(FakeApiOptions { versions: vec![version], ..FakeApiOptions::default() }).await
    }

    /// The same with another API server.
    pub async fn start_with(options: FakeApiOptions) -> Self {
        Self::start_behind(Rig::start().await, options).await
    }

    /// The same with further keys in the server's configuration; the API server speaks HTTP/1.1.
    pub async fn start_server_with(more: &str) -> Self {
        let options = FakeApiOptions { versions: vec![HttpVersion::Http1], ..FakeApiOptions::default() };
        Self::start_behind(Rig::start_with(more).await, options).await
    }

    /// The same with further keys in the agent's, too.
    pub async fn start_both_with(server: &str, agent: &str) -> Self {
        let options = FakeApiOptions { versions: vec![HttpVersion::Http1], ..FakeApiOptions::default() };
        let rig = Rig::start_with(server).await;
        let fake = fake(&rig, CLUSTER, options).await;
        let agent = start_agent(&rig, CLUSTER, agent).await;
        rig.connected(CLUSTER).await;
        Self { rig, fake, agent }
    }

    /// The same with another level of the daemons' logs.
    pub async fn start_logging(log_level: &'static str, version: HttpVersion) -> Self {
        let options = FakeApiOptions { versions: vec![version], ..FakeApiOptions::default() };
        Self::start_behind(Rig::start_logging(log_level, "").await, options).await
    }

    async fn start_behind(rig: Rig, options: FakeApiOptions) -> Self {
        let (fake, agent) = add_cluster_with(&rig, CLUSTER, options).await;
        Self { rig, fake, agent }
    }

    /// Kills the agent and starts another process of it, which the server takes for the agent at its first
    /// word. Nobody would know of the death before a long silence otherwise: a dark link looks the same.
    pub async fn kill_agent(&mut self) {
        self.agent.process.kill();
        self.agent = start_agent(&self.rig, CLUSTER, "").await;
    }
}

/// Connects a further cluster to a running server.
pub async fn add_cluster(rig: &Rig, name: &str, version: HttpVersion) -> (FakeApi, Agent) {
    add_cluster_with(rig, name, FakeApiOptions { versions: vec![version], ..FakeApiOptions::default() }).await
}

async fn add_cluster_with(rig: &Rig, name: &str, options: FakeApiOptions) -> (FakeApi, Agent) {
    let fake = fake(rig, name, options).await;
    let agent = start_agent(rig, name, "").await;
    rig.connected(name).await;
    (fake, agent)
}

async fn fake(rig: &Rig, name: &str, options: FakeApiOptions) -> FakeApi {
    let fake = FakeApi::start_with(options).await.expect("the fake starts");
    fake.write_kubeconfig(&kubeconfig(rig, name), AGENT_TOKEN).expect("a file can be written");
    fake
}

async fn start_agent(rig: &Rig, name: &str, more: &str) -> Agent {
    rig.agent_with(name, &ApiServer::Kubeconfig(kubeconfig(rig, name)), &format!("{MORE}\n{more}")).await
}

fn kubeconfig(rig: &Rig, name: &str) -> PathBuf {
    rig.path().join(format!("{name}.kubeconfig"))
}
