//! A route to an API server: the destination of callers, their requests, and the processes on the route.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::tests::cpu_time::{cpu_time, cpu_time_of};
use ::tests::pki::Issued;
use clap::ValueEnum;
use http::Uri;
use serde::Serialize;

use crate::process::resident_bytes;

/// The name of the route without a tunnel.
pub const DIRECT: &str = "direct";

/// One of the routes that are compared.
#[derive(Debug)]
pub struct Route {
    /// The name of the route in tables.
    pub name: String,
    /// The server that callers connect to.
    pub destination: Destination,
    /// The URI of the small request for each cluster. Callers use them in turn.
    pub small: Vec<Uri>,
    /// The URI of large transfers, if there is one: GET downloads, PUT uploads.
    pub bulk: Option<Uri>,
    /// The processes between callers and API server; none on the direct route.
    pub daemons: Option<Daemons>,
    /// The process id of the API server.
    pub target: u32,
}

/// A server, and the credentials and protocol with which callers connect to it.
#[derive(Debug, Clone)]
pub struct Destination {
    /// The address of the server.
    pub address: SocketAddr,
    /// The CA certificate that callers trust, PEM.
    pub ca_pem: String,
    /// The callers' client certificate, if they have one.
    pub identity: Option<Issued>,
    /// The version of HTTP that callers use.
    pub http: Http,
    /// The gateway through which callers connect by CONNECT; `None` for a direct connection.
    pub via: Option<Arc<ConnectVia>>,
}

/// A gateway that connects callers to an address in a cluster, by CONNECT.
#[derive(Debug)]
pub struct ConnectVia {
    /// The address of the gateway.
    pub gateway: SocketAddr,
    /// The CA certificate that callers trust for the gateway, PEM.
    pub ca_pem: String,
    /// The callers' client certificate for the gateway.
    pub identity: Issued,
    /// The cluster that has the address.
    pub cluster: String,
}

/// A version of HTTP that callers use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
pub enum Http {
    /// HTTP/1.1: a connection carries one exchange at a time.
    #[value(name = "1")]
    One,
    /// HTTP/2: a connection carries many exchanges.
    #[value(name = "2")]
    Two,
}

/// The process ids of the daemons.
#[derive(Debug, Clone)]
pub struct Daemons {
    /// The process id of the server.
    pub server: u32,
    /// The process ids of further servers on the route.
    pub further_servers: Vec<u32>,
    /// The process ids of the agents, one for each cluster.
    pub agents: Vec<u32>,
}

/// CPU time that processes have used since they started, user and system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// The CPU time of all servers together.
    pub server: Duration,
    /// The CPU time of all agents together.
    pub agents: Duration,
    /// The CPU time of the API server.
    pub target: Duration,
}

impl Destination {
    /// The URI of a path at this server.
    pub fn uri(&self, path: &str) -> Uri {
        format!("https://{}{path}", self.address).parse().expect("a path makes a URI")
    }
}

impl Route {
    /// The CPU time that its processes have used so far.
    ///
    /// # Errors
    /// A process has ended.
    pub fn cpu_time(&self) -> io::Result<CpuTime> {
        let target = cpu_time(self.target)?;
        let Some(daemons) = &self.daemons else { return Ok(CpuTime { target, ..CpuTime::default() }) };
        let server = cpu_time(daemons.server)? + cpu_time_of(&daemons.further_servers)?;
        Ok(CpuTime { server, agents: cpu_time_of(&daemons.agents)?, target })
    }
}

impl Daemons {
    /// The resident memory of the server and of the first agent, in bytes.
    ///
    /// # Errors
    /// A process has ended.
    pub fn resident_bytes(&self) -> io::Result<(u64, u64)> {
        Ok((resident_bytes(self.server)?, resident_bytes(self.agents[0])?))
    }
}

impl CpuTime {
    /// The CPU time that was used since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            server: self.server - earlier.server,
            agents: self.agents - earlier.agents,
            target: self.target - earlier.target,
        }
    }
}
