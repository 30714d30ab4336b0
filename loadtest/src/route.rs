//! A way to an API server: where callers come, what they ask for, and which processes do the work.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::tests::pki::Issued;
use clap::ValueEnum;
use http::Uri;
use serde::Serialize;

use crate::process::{cpu_time, resident_bytes};

/// The way without a tunnel.
pub const DIRECT: &str = "direct";

/// One of the ways that are compared.
#[derive(Debug)]
pub struct Route {
    /// What tables call it.
    pub name: String,
    /// Where its callers come.
    pub destination: Destination,
    /// The small request, once for each cluster; callers take them in turn.
    pub small: Vec<Uri>,
    /// What is large, if there is such a thing: a GET answers with much, a PUT takes much.
    pub bulk: Option<Uri>,
    /// The processes between callers and API server; none on the direct way.
    pub daemons: Option<Daemons>,
    /// The process of the API server.
    pub target: u32,
}

/// How callers connect.
#[derive(Debug, Clone)]
pub struct Destination {
    /// Where.
    pub address: SocketAddr,
    /// Whom they trust, PEM.
    pub ca_pem: String,
    /// Who they are, if they are asked.
    pub identity: Option<Issued>,
    /// What they speak.
    pub http: Http,
    /// By whom they are connected to it, if not by themselves.
    pub via: Option<Arc<ConnectVia>>,
}

/// A gateway that connects callers to an address of a cluster, by CONNECT.
#[derive(Debug)]
pub struct ConnectVia {
    /// Where it is.
    pub gateway: SocketAddr,
    /// Whom callers trust there, PEM.
    pub ca_pem: String,
    /// Who they are there.
    pub identity: Issued,
    /// The cluster.
    pub cluster: String,
}

/// A version of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
pub enum Http {
    /// HTTP/1.1: a connection for each exchange at a time.
    #[value(name = "1")]
    One,
    /// HTTP/2.
    #[value(name = "2")]
    Two,
}

/// Process ids.
#[derive(Debug, Clone)]
pub struct Daemons {
    /// The server's.
    pub server: u32,
    /// The agents', one for each cluster.
    pub agents: Vec<u32>,
}

/// CPU time that processes have used since they started, user and system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// The server.
    pub server: Duration,
    /// All agents together.
    pub agents: Duration,
    /// The API server.
    pub target: Duration,
}

impl Destination {
    /// The URI of a path here.
    pub fn uri(&self, path: &str) -> Uri {
        format!("https://{}{path}", self.address).parse().expect("a path makes a URI")
    }
}

impl Route {
    /// What its processes have used so far.
    ///
    /// # Errors
    /// Where one has ended.
    pub fn cpu_time(&self) -> io::Result<CpuTime> {
        let target = cpu_time(self.target)?;
        let Some(daemons) = &self.daemons else { return Ok(CpuTime { target, ..CpuTime::default() }) };
        let agents: io::Result<Duration> = daemons.agents.iter().map(|&agent| cpu_time(agent)).sum();
        Ok(CpuTime { server: cpu_time(daemons.server)?, agents: agents?, target })
    }
}

impl Daemons {
    /// The resident memory of the server and of the first agent, in bytes.
    ///
    /// # Errors
    /// Where one has ended.
    pub fn resident_bytes(&self) -> io::Result<(u64, u64)> {
        Ok((resident_bytes(self.server)?, resident_bytes(self.agents[0])?))
    }
}

impl CpuTime {
    /// What was used between an earlier time and this one.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            server: self.server - earlier.server,
            agents: self.agents - earlier.agents,
            target: self.target - earlier.target,
        }
    }
}
