//! The configuration of the load balancer: flags win over the environment, the file, and the defaults, in this
//! order.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use daemon::args::SharedFlags;
pub use daemon::config::ConfigError;
use daemon::{Layout, LogOptions};
use rustls_pki_types::ServerName;

use crate::pods::PodAccess;

mod help;
mod raw;
mod validate;

/// The configuration file, unless `--config` names another one.
pub const FILE_DEFAULT: &str = "/etc/tombolo/node-lb.yaml";

/// The `kind` that the configuration file has to have.
pub const KIND: &str = "NodeLBConfig";

/// Most API servers that the configuration names.
pub const SEEDS_MAX: usize = crate::members::API_SERVERS_MAX;

/// Most addresses at which callers are accepted.
pub const LISTENERS_MAX: usize = 4;

/// The addresses for callers, if the configuration names none.
const LISTEN_DEFAULT: [&str; 2] = ["127.0.0.1:7443", "[::1]:7443"];

/// The address for pods, if the configuration names none.
const POD_ADDRESS_DEFAULT: &str = "169.254.10.21:7443";

/// Most networks of pods that the configuration names.
pub const POD_NETWORKS_MAX: usize = 8;

/// Callers come by this address, so the certificates of API servers must bear it.
const SERVER_NAME_DEFAULT: &str = "127.0.0.1";

/// A load balancer on a worker for the API servers of its cluster: kubelet and other programs of the worker use
/// it by 127.0.0.1
#[derive(Debug, Clone, Default, Parser)]
#[command(name = "node-lb", version, after_long_help = help::AFTER)]
pub struct Flags {
    /// The flags of every daemon.
    #[command(flatten)]
    pub shared: SharedFlags,

    /// An API server to begin with; several by a comma or by repeating the flag
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub api_servers: Vec<String>,
}

/// The configuration of node-lb after validation.
#[derive(Debug, Clone)]
pub struct Config {
    /// The API servers to begin with, 1 to [`SEEDS_MAX`]. They are never dropped.
    pub seeds: Vec<Seed>,
    /// The addresses at which callers are accepted, of this host alone.
    pub listen: Vec<SocketAddr>,
    /// True if the configuration names these addresses, so each must be bound.
    pub listens_as_configured: bool,
    /// The host cluster whose list of the API servers is followed, if there is one.
    pub host_cluster: Option<HostCluster>,
    /// Access of pods, if they are served.
    pub pods: Option<PodAccess>,
    /// The CA of the cluster, and our credential.
    pub tls: TlsFiles,
    /// The folder for the state file.
    pub state_dir: PathBuf,
    /// The address at which `/livez`, `/readyz` and `/metrics` answer.
    pub probes_listen: SocketAddr,
    /// Longest time for connections after the drain began, 1 to 600 s.
    pub drain_grace: Duration,
    /// Form and filter of the log.
    pub logs: LogOptions,
    /// The layout of runtimes and threads.
    pub layout: Layout,
}

/// An API server that the configuration names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seed {
    /// An address that needs no resolver.
    Address(SocketAddr),
    /// A name and a port. All addresses of the name count.
    Name(String, u16),
}

/// The host cluster that runs the API servers of this worker's cluster as a Service.
#[derive(Debug, Clone)]
pub struct HostCluster {
    /// The host and the port of its API server.
    pub address: (String, u16),
    /// Its CA, and the name that its certificate must bear. There is no client certificate.
    pub tls: TlsFiles,
    /// The file with the token that is sent.
    pub token: PathBuf,
    /// The namespace of the Service, a label of DNS-1123.
    pub namespace: String,
    /// The name of the Service, a label of DNS-1123.
    pub service: String,
}

/// The files by which API servers and we prove who we are.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The CA of the cluster, PEM. Nothing is relayed to what shows no certificate of it.
    pub ca: PathBuf,
    /// The client certificate of the kubelet. It may be absent until the kubelet has one.
    pub certificate: Option<PathBuf>,
    /// The key of the certificate, which may be in the same file.
    pub key: Option<PathBuf>,
    /// The name that the certificates of API servers must bear.
    pub server_name: ServerName<'static>,
}

impl Config {
    /// Loads the configuration from flags, environment and file.
    ///
    /// # Errors
    ///
    /// [`ConfigError`], which names the key, its value and the allowed values.
    pub fn load(flags: &Flags) -> Result<Self, ConfigError> {
        let path = flags.shared.config.clone().unwrap_or_else(|| FILE_DEFAULT.into());
        let (common, raw) = daemon::config::load_with_common(&path, KIND)?;
        let directory = path.parent().unwrap_or_else(|| Path::new("."));
        Ok(validate::config(common, raw, flags, directory)?)
    }
}

#[cfg(test)]
mod tests;
