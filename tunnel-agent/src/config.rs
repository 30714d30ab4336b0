//! The agent's configuration: flags win over the environment, the file, and the defaults, in this order.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use daemon::args::SharedFlags;
pub use daemon::config::ConfigError;
use daemon::{Layout, LogOptions};
use policy::{Network, TargetEntry};
use proto::{AllowList, ClusterId};
use transport::Carrier;
use trust::Pin;

mod carriers;
mod help;
mod limits;
mod raw;
mod tenants;
mod validate;

pub use tenants::{TENANTS_MAX, TenantKind, Tenants};
pub use transport::Proxies;

pub use limits::{Limits, QUEUE_MAX, QUEUE_SECONDS_MAX, REQUESTS_MAX};

/// The configuration file, unless `--config` names another one.
pub const FILE_DEFAULT: &str = "/etc/tombolo/agent.yaml";

/// The `kind` that the configuration file has to have.
pub const KIND: &str = "AgentConfig";

/// Most servers that one agent dials.
pub const SERVERS_MAX: usize = 8;

/// Most tunnels to different servers that one agent keeps.
pub const TUNNELS_MAX: usize = 8;

/// Tunnels to different servers, unless the configuration has another number.
const TUNNELS_DEFAULT: usize = 2;

/// Most entries of the list of targets.
pub const TARGETS_MAX: usize = 32;

/// Most networks in which endpoints of Services may be.
pub const SERVICE_NETWORKS_MAX: usize = 16;

/// Most API servers of one cluster among which requests are balanced.
pub const API_SERVERS_MAX: usize = 16;

/// The folder into which Kubernetes mounts a pod's credential.
pub const IN_CLUSTER_DIRECTORY: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The agent of a Tombolo tunnel: dials the servers, and hands what comes through the tunnel to the cluster's
/// API server
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

    /// The carrier of the tunnel: auto, quic (UDP) or http2 (TCP, for networks that block UDP) [default:
    /// auto]
    #[arg(long, value_name = "CARRIER")]
    pub carrier: Option<String>,

    /// The enrollment server, in place of a certificate that was issued by hand
    #[arg(long, value_name = "HOST:PORT")]
    pub enrollment_server: Option<String>,

    /// The pin of the enrollment server's root: sha256: and 64 digits
    #[arg(long, value_name = "PIN")]
    pub enrollment_pin: Option<String>,

    /// A file with the token that enrolls this agent; - for standard input
    #[arg(long, value_name = "FILE")]
    pub enrollment_token_file: Option<PathBuf>,

    /// A file with a token of the pod's ServiceAccount, by which further pods enroll without a token of their
    /// own
    #[arg(long, value_name = "FILE")]
    pub enrollment_service_account_token_file: Option<PathBuf>,

    /// A kubeconfig for the cluster's API server, instead of the credential of the pod
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig [default: its current-context]
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    pub context: Option<String>,
}

/// The agent's configuration after validation.
#[derive(Debug, Clone)]
pub struct Config {
    /// The cluster that this agent serves.
    pub cluster: ClusterId,
    /// The servers' addresses for agents, 1 to [`SERVERS_MAX`].
    pub servers: Vec<ServerAddress>,
    /// The name that servers' certificates must bear. `None` means the host that is dialed.
    pub server_name: Option<String>,
    /// The ids of the servers that are trusted, at most [`SERVERS_MAX`] DNS labels. If empty, all of the
    /// trust domain.
    pub server_ids: Vec<String>,
    /// Tunnels to different servers that are kept if a server tells of others, 1 to [`TUNNELS_MAX`].
    pub tunnels: usize,
    /// The carriers that tunnels may use.
    pub carrier: CarrierChoice,
    /// The proxy by which servers are reached over TCP.
    pub proxies: Proxies,
    /// Longest outage of a link before its tunnel and streams are lost. The server's limit holds if this is
    /// `None` or longer.
    pub outage_limit: Option<Duration>,
    /// The trust domain of all certificates.
    pub trust_domain: String,
    /// The source of the tunnel's certificate, key and CA.
    pub credential: CredentialSource,
    /// The API server's address, and the agent's credential for it.
    pub api_server: ApiServerSource,
    /// The further API servers of the cluster.
    pub api_servers: ApiServers,
    /// The identities that may be asserted.
    pub impersonation: AllowList,
    /// True if requests with their callers' own credential for the API server pass through.
    pub pass_through: bool,
    /// Limits of requests at the API server.
    pub limits: Limits,
    /// Endpoints of the control plane to advertise instead of those that the cluster names, as `host:port`.
    pub advertise: Vec<String>,
    /// Further targets that may be dialed for callers, beside the API server and the advertised endpoints.
    /// Advertised, too.
    pub targets: Vec<TargetEntry>,
    /// Networks in which endpoints of Services may be, at most [`SERVICE_NETWORKS_MAX`]. If empty, any
    /// address that is not special.
    pub service_networks: Vec<Network>,
    /// Searches for API servers of tenants, which are advertised and dialed, too.
    pub tenants: Vec<Tenants>,
    /// The folder for keys and other state.
    pub state_dir: PathBuf,
    /// The address at which `/livez`, `/readyz` and `/metrics` answer.
    pub probes_listen: SocketAddr,
    /// Longest time for running exchanges after the drain began, 1 to 600 s.
    pub drain_grace: Duration,
    /// Form and filter of the log.
    pub logs: LogOptions,
    /// The layout of runtimes and threads.
    pub layout: Layout,
}

/// A host, by name or address, and its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    /// A DNS name or an IP address, without brackets.
    pub host: String,
    /// The port, 1 to 65535.
    pub port: u16,
}

impl ServerAddress {
    /// Parses `host:port`, with an IPv6 address in brackets. `None` if it is not valid.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        validate::address("", text).ok()
    }
}

/// The carriers that tunnels may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarrierChoice {
    /// QUIC, and HTTP/2 over TCP where UDP does not pass.
    Auto,
    /// This carrier and no other.
    Only(Carrier),
}

/// The source of the agent's own TLS identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialSource {
    /// Files that an operator has issued.
    Files(TlsFiles),
    /// Enrollment, by which the agent gets and renews it itself.
    Enrolled(EnrollmentConfig),
}

/// The enrollment server, and the agent's tokens for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnrollmentConfig {
    /// The address of the enrollment server.
    pub server: ServerAddress,
    /// The name that its certificate must bear. `None` means the host that is dialed.
    pub server_name: Option<String>,
    /// The pin of the root to which its certificate has to chain.
    pub pin: Pin,
    /// The file with the token, or `-` for standard input. Read only while the agent has no certificate. If
    /// `None`, the other one is set.
    pub token_file: Option<PathBuf>,
    /// The file with the pod's ServiceAccount token, whose audience is the enrollment server.
    pub service_account_token_file: Option<PathBuf>,
    /// The API server of the cluster that the agent's pod runs in, and that has issued the token. `None` if it is the cluster that
    /// the agent serves.
    pub host_cluster: Option<ApiServerSource>,
}

/// The PEM files of the agent's own TLS identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The agent's certificate, and intermediates after it.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The roots to which servers' certificates have to chain. No other root is trusted.
    pub server_ca: PathBuf,
}

/// The source of the API server's address and of the agent's credential for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiServerSource {
    /// The files that Kubernetes mounts into a pod: `token` and `ca.crt`.
    InCluster {
        /// The folder with both files.
        directory: PathBuf,
        /// The API server's host, a name or an address without brackets.
        host: String,
        /// The port of the API server.
        port: u16,
    },
    /// A kubeconfig with the server and the credential.
    Kubeconfig {
        /// The path of the file.
        path: PathBuf,
        /// One of its contexts. `None` means its `current-context`.
        context: Option<String>,
    },
}

/// The API servers of the cluster, beside the one that the credential names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiServers {
    /// Only that one, or the load balancer behind its address.
    One,
    /// Those that the cluster itself names.
    Found,
    /// These addresses, 2 to [`API_SERVERS_MAX`].
    Listed(Vec<SocketAddr>),
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
        Ok(validate::config(common, raw, flags, directory, &|name| std::env::var(name).ok())?)
    }

    /// The targets that may be dialed because the configuration names them.
    #[must_use]
    pub fn targets_to_dial(&self) -> Vec<TargetEntry> {
        let listed = match &self.api_servers {
            ApiServers::Listed(addresses) => addresses.as_slice(),
            ApiServers::Found | ApiServers::One => &[],
        };
        let listed = listed.iter().filter_map(|address| address.to_string().parse().ok());
        let advertised = self.advertise.iter().filter_map(|endpoint| endpoint.parse().ok());
        listed.chain(advertised).chain(self.targets.iter().cloned()).collect()
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
