//! What an agent is told: flags over environment over file over default.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use daemon::args::SharedFlags;
use daemon::config::{KeyError, LoadError};
use daemon::{Failure, Layout, LogOptions};
use policy::{Network, TargetEntry};
use proto::{AllowList, ClusterId};
use transport::{Carrier, Proxy};
use trust::Pin;

mod carriers;
mod help;
mod limits;
mod tenants;
mod valid;
mod written;

pub use tenants::{TenantKind, Tenants};

pub use limits::{Limits, QUEUE_MAX, QUEUE_SECONDS_MAX, REQUESTS_MAX};

/// The file that is read unless `--config` names another.
pub const FILE_DEFAULT: &str = "/etc/tombolo/agent.yaml";

/// The `kind` of the file.
pub const KIND: &str = "AgentConfig";

/// Most servers that one agent dials.
pub const SERVERS_MAX: usize = 8;

/// Most entries of the list of targets.
pub const TARGETS_MAX: usize = 32;

/// Most networks in which endpoints of Services may be.
pub const SERVICE_NETWORKS_MAX: usize = 16;

/// Most entries of the list of tenants.
pub const TENANTS_MAX: usize = 16;

/// Most API servers of one cluster among which requests are balanced.
pub const API_SERVERS_MAX: usize = 16;

/// Where Kubernetes puts a pod's credential.
pub const IN_CLUSTER_DIRECTORY: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The agent of a Tombolo tunnel: dials the servers, and hands what comes through the tunnel to the cluster's API server
#[derive(Debug, Clone, Default, Parser)]
#[command(name = "tunnel-agent", version, after_long_help = help::AFTER)]
pub struct Flags {
    /// The flags of every daemon.
    #[command(flatten)]
    pub shared: SharedFlags,

    /// The cluster that this agent serves; the same as in its certificate
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,

    /// A server to dial (UDP, and TCP where that is blocked); several by a comma or by repeating the flag
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub servers: Vec<String>,

    /// The name that the server's certificate must bear [default: the host that is dialed]
    #[arg(long, value_name = "NAME")]
    pub server_name: Option<String>,

    /// What carries the tunnel: auto, quic (UDP) or http2 (TCP, for where UDP is blocked) [default: auto]
    #[arg(long, value_name = "CARRIER")]
    pub carrier: Option<String>,

    /// Where this agent enrolls, in place of a certificate that was issued by hand
    #[arg(long, value_name = "HOST:PORT")]
    pub enrollment_server: Option<String>,

    /// The root by which the enrollment server is known: sha256: and 64 digits
    #[arg(long, value_name = "PIN")]
    pub enrollment_pin: Option<String>,

    /// A file with the token that enrolls this agent; - for standard input
    #[arg(long, value_name = "FILE")]
    pub enrollment_token_file: Option<PathBuf>,

    /// A file with a token of the pod's ServiceAccount, by which further pods enroll without a token of their own
    #[arg(long, value_name = "FILE")]
    pub enrollment_service_account_token_file: Option<PathBuf>,

    /// A kubeconfig for the cluster's API server, instead of the credential of the pod
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig [default: its current-context]
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    pub context: Option<String>,
}

/// A valid configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The cluster that this agent serves.
    pub cluster: ClusterId,
    /// Where servers listen for agents; 1 to [`SERVERS_MAX`].
    pub servers: Vec<ServerAddress>,
    /// The name that a server's certificate must bear; the host that is dialed, if `None`.
    pub server_name: Option<String>,
    /// The ids of the servers that may be dialed; any of the trust domain, if empty. At most [`SERVERS_MAX`] DNS labels.
    pub server_ids: Vec<String>,
    /// What may carry tunnels.
    pub carrier: CarrierChoice,
    /// Through which proxy servers are reached over TCP.
    pub proxies: Proxies,
    /// How long a tunnel whose link is dark, and what runs on it, are held; the server's limit, if `None` or if that is shorter.
    pub outage_limit: Option<Duration>,
    /// The trust domain of all certificates.
    pub trust_domain: String,
    /// Where certificate, key and CA of the tunnel come from.
    pub credential: CredentialSource,
    /// Where the cluster's API server is, and as whom the agent speaks to it.
    pub api_server: ApiServerSource,
    /// Which further API servers of the cluster there are.
    pub api_servers: ApiServers,
    /// Which identities may be asserted.
    pub impersonation: AllowList,
    /// Whether requests pass through that bear their callers' own credential for the API server.
    pub pass_through: bool,
    /// How much is asked of the API server at once.
    pub limits: Limits,
    /// Endpoints of the control plane to advertise instead of what the cluster says; `host:port` each.
    pub advertise: Vec<String>,
    /// What else may be dialed for callers, besides the API server and what is advertised; advertised, too.
    pub targets: Vec<TargetEntry>,
    /// Where that may be to which Services lead; anywhere that is not special, if empty. At most [`SERVICE_NETWORKS_MAX`].
    pub service_networks: Vec<Network>,
    /// Where API servers of tenants are looked for, to be advertised and dialed, too.
    pub tenants: Vec<Tenants>,
    /// Where keys and other state are kept.
    pub state_dir: PathBuf,
    /// Where `/livez`, `/readyz` and `/metrics` answer.
    pub probes_listen: SocketAddr,
    /// How long running exchanges may go on after the drain began; 1 to 600 s.
    pub drain_grace: Duration,
    /// Form and filter of the log.
    pub logs: LogOptions,
    /// Runtimes and threads.
    pub layout: Layout,
}

/// A host, by name or address, and its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    /// A DNS name or an IP address, without brackets.
    pub host: String,
    /// 1 to 65535.
    pub port: u16,
}

/// What may carry tunnels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarrierChoice {
    /// QUIC, and HTTP/2 over TCP where UDP does not pass.
    Auto,
    /// This and nothing else.
    Only(Carrier),
}

/// Through which proxy servers are reached over TCP.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    /// The proxy.
    pub proxy: Option<Proxy>,
    /// Hosts that are reached without it, as in `NO_PROXY`.
    pub except: Vec<String>,
}

/// Where the agent's own TLS identity comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialSource {
    /// Somebody put it there.
    Files(TlsFiles),
    /// The agent sees to it itself.
    Enrolled(EnrollAt),
}

/// Where and as whom the agent enrolls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnrollAt {
    /// The enrollment door.
    pub server: ServerAddress,
    /// The name that its certificate must bear; the host that is dialed, if `None`.
    pub server_name: Option<String>,
    /// The root that its certificate must chain to.
    pub pin: Pin,
    /// Where the token is; `-` for standard input. Read only while the agent has no certificate, and never if `None`: then the
    /// other one is there.
    pub token_file: Option<PathBuf>,
    /// Where Kubernetes puts a token of the pod's ServiceAccount that is meant for the enrollment door.
    pub service_account_token_file: Option<PathBuf>,
}

/// The files of the agent's own TLS identity. PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The agent's certificate, and intermediates behind it.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The roots that servers' certificates must chain to; no other is trusted.
    pub server_ca: PathBuf,
}

/// Where the API server is, and where the agent's credential for it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiServerSource {
    /// The files that Kubernetes mounts into a pod: `token` and `ca.crt`.
    InCluster {
        /// Where they are.
        directory: PathBuf,
        /// The API server's host, a name or an address without brackets.
        host: String,
        /// Its port.
        port: u16,
    },
    /// A kubeconfig.
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// One of its contexts; `current-context`, if `None`.
        context: Option<String>,
    },
}

/// Which API servers of the cluster there are, beside the one that the credential names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiServers {
    /// That one alone, or whatever is behind it.
    One,
    /// Those that the cluster says there are.
    Found,
    /// These: 2 to [`API_SERVERS_MAX`].
    Listed(Vec<SocketAddr>),
}

/// Why a configuration was not taken.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A value.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl Config {
    /// What flags, environment and file say together.
    ///
    /// # Errors
    ///
    /// [`ConfigError`], which names the key, its value and what is allowed.
    pub fn load(flags: &Flags) -> Result<Self, ConfigError> {
        let path = flags.shared.config.clone().unwrap_or_else(|| FILE_DEFAULT.into());
        let written = daemon::config::load(&path, KIND)?;
        let directory = path.parent().unwrap_or_else(|| Path::new("."));
        Ok(valid::config(written, flags, directory, &|name| std::env::var(name).ok())?)
    }

    /// What may be dialed because it is written here.
    #[must_use]
    pub fn dialed(&self) -> Vec<TargetEntry> {
        let listed = match &self.api_servers {
            ApiServers::Listed(addresses) => addresses.as_slice(),
            ApiServers::Found | ApiServers::One => &[],
        };
        let listed = listed.iter().filter_map(|address| address.to_string().parse().ok());
        let advertised = self.advertise.iter().filter_map(|endpoint| endpoint.parse().ok());
        listed.chain(advertised).chain(self.targets.iter().cloned()).collect()
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::misconfigured(error)
    }
}

impl std::fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests;
