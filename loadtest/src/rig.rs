//! A server and its agents in processes of their own, as people run them, and the way through them.

use ::tests::rig::{Agent, ApiServer, GROUP, Rig};
use http::Uri;

use crate::way::{Daemons, Door, Way};

/// Who asks.
pub const USER: &str = "alice";

/// What an agent needs to assert any caller.
const IMPERSONATION: &str = "impersonation: { users: [\"*\"], groups: [\"*\"] }";

/// A server, its agents, and their files.
#[derive(Debug)]
pub struct Tunneled {
    rig: Rig,
    agents: Vec<Agent>,
}

impl Tunneled {
    /// Starts a server, and an agent for each cluster; the configuration of all ends with `more`. Returns when all are
    /// connected.
    pub async fn start(api_server: &ApiServer, clusters: u32, more: &str) -> Self {
        let rig = Rig::start_logging("info", more).await;
        let mut agents = Vec::new();
        for number in 0..clusters {
            let cluster = cluster(number);
            agents.push(rig.agent_with(&cluster, api_server, &format!("{IMPERSONATION}\n{more}")).await);
            rig.connected(&cluster).await;
        }
        Self { rig, agents }
    }

    /// The way through them, to these paths of each cluster.
    pub async fn way(&mut self, name: String, small: &str, bulk: Option<&str>) -> Way {
        let identity = self.rig.caller(USER, &[GROUP]).await;
        let door =
            Door { address: self.rig.gateway(), ca_pem: self.rig.server_ca(), identity: Some(identity) };
        let uri = |number, path| door.uri(&format!("/clusters/{}{path}", cluster(number)));
        let small: Vec<Uri> = (0..).take(self.agents.len()).map(|number| uri(number, small)).collect();
        let bulk = bulk.map(|path| uri(0, path));
        let server = self.rig.server().id().expect("the server runs");
        let agents = self.agents.iter().map(|agent| agent.process.id().expect("the agent runs")).collect();
        Way { name, door, small, bulk, daemons: Some(Daemons { server, agents }) }
    }
}

fn cluster(number: u32) -> String {
    format!("edge-{number}")
}
