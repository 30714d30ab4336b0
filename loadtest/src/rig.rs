//! A server and its agents in processes of their own, as people run them, and the way through them.

use std::net::SocketAddr;
use std::sync::Arc;

use ::tests::enroll::at;
use ::tests::rig::policy::{may_dial, usual};
use ::tests::rig::{Agent, ApiServer, GROUP, Rig};
use http::Uri;

use crate::route::{ConnectVia, Daemons, Destination, Http, Route};
use crate::scrape::Gauges;

/// Who asks.
pub const USER: &str = "alice";

/// What an agent needs to assert any caller.
const IMPERSONATION: &str = "impersonation: { users: [\"*\"], groups: [\"*\"] }";

/// A server, its agents, and their files.
#[derive(Debug)]
pub struct TunnelRig {
    rig: Rig,
    agents: Vec<Agent>,
}

impl TunnelRig {
    /// Starts a server, and an agent for each cluster; the configuration of all ends with `more`. ReconnectCurves when all are
    /// connected.
    pub async fn start(api_server: &ApiServer, clusters: u32, more: &str) -> Self {
        Self::start_with(api_server, clusters, more, more).await
    }

    /// The same where the server's configuration ends with another text than the agents'.
    pub async fn start_with(api_server: &ApiServer, clusters: u32, server: &str, agents: &str) -> Self {
        let rig = Rig::start_logging("info", server).await;
        let mut started = Vec::new();
        for number in 0..clusters {
            let cluster = cluster(number);
            started.push(rig.agent_with(&cluster, api_server, &format!("{IMPERSONATION}\n{agents}")).await);
            rig.connected(&cluster).await;
        }
        Self { rig, agents: started }
    }

    /// Starts an agent of the next cluster that keeps a tunnel to these servers as well. ReconnectCurves when it is connected.
    pub async fn add_agent(&mut self, api_server: &ApiServer, further: &[SocketAddr]) {
        let cluster = cluster(self.agents.len() as u32);
        let servers = std::iter::once(self.rig.gateway()).chain(further.iter().copied());
        let servers: Vec<String> = servers.map(|address| format!("\"{address}\"")).collect();
        let more = format!("servers: [{}]\n{IMPERSONATION}", servers.join(", "));
        self.agents.push(self.rig.agent_with(&cluster, api_server, &more).await);
        self.rig.connected(&cluster).await;
    }

    /// The server with its files.
    pub fn rig(&self) -> &Rig {
        &self.rig
    }

    /// The way through them, to these paths of each cluster of an API server whose process is `target`.
    pub async fn route(
        &mut self,
        name: &str,
        http: Http,
        small: &str,
        bulk: Option<&str>,
        target: u32,
    ) -> Route {
        let destination = self.destination(http).await;
        let uri = |number, path| destination.uri(&format!("/clusters/{}{path}", cluster(number)));
        let small: Vec<Uri> = (0..).take(self.agents.len()).map(|number| uri(number, small)).collect();
        let bulk = bulk.map(|path| uri(0, path));
        let daemons = Some(self.daemons());
        Route { name: name.to_owned(), destination, small, bulk, daemons, target }
    }

    /// The way through them by the address of an API server that callers else reach `direct`ly: their TLS ends there. Its address has
    /// to stand in the agent's configuration.
    pub async fn way_by_address(&mut self, direct: &Route) -> Route {
        let cluster = cluster(0);
        let identity = self.rig.caller(USER, &[GROUP]).await;
        at(
            &self.rig,
            &["cluster", "update", &cluster, "--advertise", &direct.destination.address.to_string()],
        )
        .await;
        self.rig
            .put_policy(&[&usual()[..], &[may_dial("dials", ("client-certificate", GROUP), &["*"])]].concat())
            .await;
        let (gateway, ca_pem) = (self.rig.gateway(), self.rig.server_ca());
        let via = Some(Arc::new(ConnectVia { gateway, ca_pem, identity, cluster }));
        let destination = Destination { via, ..direct.destination.clone() };
        let (name, daemons) = ("by address".to_owned(), Some(self.daemons()));
        Route {
            name,
            destination,
            small: direct.small.clone(),
            bulk: direct.bulk.clone(),
            daemons,
            target: direct.target,
        }
    }

    /// Where callers come.
    pub async fn destination(&self, http: Http) -> Destination {
        let identity = self.rig.caller(USER, &[GROUP]).await;
        let (address, ca_pem) = (self.rig.gateway(), self.rig.server_ca());
        Destination { address, ca_pem, identity: Some(identity), http, via: None }
    }

    /// The processes.
    pub fn daemons(&mut self) -> Daemons {
        let server = self.rig.server().id().expect("the server runs");
        let agents = self.agents.iter().map(|agent| agent.process.id().expect("the agent runs")).collect();
        Daemons { server, agents }
    }

    /// Where the first agent's metrics are.
    pub fn agent_probes(&self) -> SocketAddr {
        self.agents[0].probes
    }

    /// The gauges of the server and of the first agent.
    pub async fn gauges(&self) -> (Gauges, Gauges) {
        let server = Gauges::parse(&self.rig.metrics(self.rig.probes()).await);
        (server, Gauges::parse(&self.rig.metrics(self.agent_probes()).await))
    }
}

/// The name of a cluster.
pub fn cluster(number: u32) -> String {
    format!("edge-{number}")
}
