//! A server and its agents as processes, as in production, and the route through them.

use std::net::SocketAddr;
use std::sync::Arc;

use ::tests::enroll::at;
use ::tests::rig::policy::{may_dial, usual};
use ::tests::rig::{Agent, ApiServer, GROUP, Rig};
use http::Uri;

use crate::route::{ConnectVia, Daemons, Destination, Http, Route};
use crate::scrape::Gauges;

/// The user name of all callers.
pub const USER: &str = "alice";

/// The configuration with which an agent may impersonate any caller.
pub const IMPERSONATION: &str = "impersonation: { users: [\"*\"], groups: [\"*\"] }";

/// A running server with its agents and their files.
#[derive(Debug)]
pub struct TunnelRig {
    rig: Rig,
    agents: Vec<Agent>,
}

impl TunnelRig {
    /// Starts a server, and an agent for each cluster. The configuration of all ends with `more`. Returns
    /// when all are connected.
    pub async fn start(api_server: &ApiServer, clusters: u32, more: &str) -> Self {
        Self::start_with(api_server, clusters, more, more).await
    }

    /// Starts them with different ends of the server's and the agents' configuration.
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

    /// Starts an agent of the next cluster that also keeps a tunnel to each of these servers. Returns when it
    /// is connected.
    pub async fn add_agent(&mut self, api_server: &ApiServer, further: &[SocketAddr]) {
        let cluster = cluster(self.agents.len() as u32);
        let servers = std::iter::once(self.rig.gateway()).chain(further.iter().copied());
        let servers: Vec<String> = servers.map(|address| format!("\"{address}\"")).collect();
        let more = format!("servers: [{}]\n{IMPERSONATION}", servers.join(", "));
        self.agents.push(self.rig.agent_with(&cluster, api_server, &more).await);
        self.rig.connected(&cluster).await;
    }

    /// The rig of the server.
    pub fn rig(&self) -> &Rig {
        &self.rig
    }

    /// The route through them to these paths of each cluster. `target` is the process id of the API server.
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

    /// The route through them by CONNECT to the address of an API server, at which the callers' TLS ends.
    /// `direct` is the direct route to it. The agent's configuration must have the address.
    pub async fn route_by_address(&mut self, direct: &Route) -> Route {
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

    /// The gateway, with a client certificate.
    pub async fn destination(&self, http: Http) -> Destination {
        let identity = self.rig.caller(USER, &[GROUP]).await;
        let (address, ca_pem) = (self.rig.gateway(), self.rig.server_ca());
        Destination { address, ca_pem, identity: Some(identity), http, via: None }
    }

    /// The process ids of the server and its agents.
    pub fn daemons(&mut self) -> Daemons {
        let server = self.rig.server().id().expect("the server runs");
        let agents = self.agents.iter().map(|agent| agent.process.id().expect("the agent runs")).collect();
        Daemons { server, further_servers: Vec::new(), agents }
    }

    /// The address of the first agent's metrics.
    pub fn agent_probes(&self) -> SocketAddr {
        self.agents[0].probes
    }

    /// Scrapes the gauges of the server and of the first agent.
    pub async fn gauges(&self) -> (Gauges, Gauges) {
        let server = Gauges::parse(&self.rig.metrics(self.rig.probes()).await);
        (server, Gauges::parse(&self.rig.metrics(self.agent_probes()).await))
    }
}

/// The name of the cluster with this number.
pub fn cluster(number: u32) -> String {
    format!("edge-{number}")
}
