//! What a server is told: flags over environment over file over default.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use daemon::config::{KeyError, LoadError};
use daemon::{Failure, Layout, LogOptions};
use http::Uri;
use jsonwebtoken::Algorithm;
use proto::AllowList;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use transport::tls::Material;
use trust::Signer;
use trust::names::Label;

mod admin;
mod audit_log;
mod authentication;
mod by_place;
mod clusters;
mod egress;
mod enrollment;
mod flags;
mod help;
mod issuers;
mod limits;
mod passthrough;
mod pem;
mod proxy;
mod sources;
mod valid;
mod value;
mod vip;
mod written;

pub use admin::admin_rules;
pub use by_place::{ByPlace, Site};
pub use egress::{Egress, EgressDoor, EgressTcp, EgressUnix};
pub use enrollment::GRACE_DAYS_MAX;
pub use flags::Flags;
pub use limits::{
    AgentLimits, CallerLimits, ClusterLimits, DoorLimits, GatewayLimits, LIMIT_MAX, Limits,
    QUEUE_SECONDS_MAX, REQUESTS_PER_SECOND_MAX, SourceLimits,
};
pub use passthrough::Passthrough;
pub use sources::SourceConditions;
pub use valid::trust_bundle;
pub use vip::{Vip, VipPublish, VipRange, VipWay};

/// The file that is read unless `--config` names another.
pub const FILE_DEFAULT: &str = "/etc/tombolo/server.yaml";

/// The `kind` of the file.
pub const KIND: &str = "ServerConfig";

/// Most issuers of callers' tokens.
pub const ISSUERS_MAX: usize = 16;

/// Most names in one list.
pub const NAMES_MAX: usize = 1_000;

/// Most ways in for the egress of API servers.
pub const EGRESS_MAX: usize = 64;

/// Most connections that one of them may be given.
pub const EGRESS_CONNECTIONS_MAX: usize = 2_000;

/// Most connections that a way in may be given at which nobody proves anything.
pub const WAY_IN_CONNECTIONS_MAX: usize = 5_000;

/// Most ways in by the clusters' addresses.
pub const VIP_WAYS_MAX: usize = 64;

/// Most administrators who may have a role from other machines.
pub const ADMINS_MAX: usize = 1_000;

/// Longest wait for a cluster that is away that may be configured: beyond it people have given up.
pub const PARK_LIMIT_SECONDS_MAX: u64 = 300;

/// Requests that wait for clusters that are away, of all clusters; beyond, they are refused at once.
pub const PARKED_MAX: usize = 2_000;

/// Longest wait of a watch for its cluster that may be configured: what it was told before is forgotten by most API servers
/// long before.
pub const WATCH_LIMIT_SECONDS_MAX: u64 = 3_600;

/// Watches that wait for clusters that are away, of all clusters: half of all exchanges that are served at once, so that a
/// long outage of many sites leaves room for the requests to all others.
pub const WATCHES_PARKED_MAX: usize = 5_000;

/// The longest that one request may be allowed to run: a credential that never ends is asked for that often.
pub const SESSION_AGE_SECONDS_MAX: u64 = 7 * 24 * 3_600;

/// Bounds of the largest event that may be configured. Objects have at most 1.5 MiB in etcd, and more in JSON.
pub const WATCH_EVENT_BYTES_MIN: usize = 4 * 1024;
/// The upper one.
pub const WATCH_EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A valid configuration, the files that it names included.
#[derive(Debug)]
pub struct Config {
    /// Where it was read.
    pub file: PathBuf,
    /// This server's name among its like, a DNS label.
    pub server_id: String,
    /// The trust domain of all certificates.
    pub trust_domain: String,
    /// What the server shows to callers and to agents.
    pub certificate: CertifiedPair,
    /// Where the trust bundle stands, if there is one.
    pub trust_bundle_file: Option<PathBuf>,
    /// The trust bundle that agents are given, signed by a root of servers that is in it; empty, if there is none.
    pub trust_bundle: Vec<u8>,
    /// The door for callers.
    pub gateway: Gateway,
    /// The door for agents.
    pub tunnel: Tunnel,
    /// The door at which agents enroll, if there is one.
    pub enrollment: Option<Enrollment>,
    /// Ways in for the egress of API servers, no two of one name; at most [`EGRESS_MAX`].
    pub egress: Vec<Egress>,
    /// The door at which TLS passes through to clusters, if there is one.
    pub passthrough: Option<Passthrough>,
    /// The clusters' addresses that this host has, if it has any.
    pub vip: Option<Vip>,
    /// The door for callers with dial tokens, if there is one.
    pub proxy: Option<Proxy>,
    /// Where the same come by SOCKS5, if they may: a TCP address, of loopback unless it was forced.
    pub socks: Option<SocketAddr>,
    /// The file that says who may do what in which clusters; not read yet.
    pub policy_file: PathBuf,
    /// Who is asked besides whether callers may what policy allows, if anybody is.
    pub delegation: Option<HostCluster>,
    /// What holds for some clusters; at most [`NAMES_MAX`]. The first that is about a cluster does.
    pub clusters: Vec<ClusterRules>,
    /// How requests wait for a cluster that is away.
    pub parking: Parking,
    /// Whether and how watches outlive the loss of their tunnel.
    pub watches: Watches,
    /// How much one caller and one cluster may take at once.
    pub limits: Limits,
    /// How the audit log is kept; without it nothing is recorded.
    pub audit: Option<audit::Settings>,
    /// Where those who run the server ask it.
    pub admin: Admin,
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

/// A certificate, leaf first, and the key that fits it.
#[derive(Debug)]
pub struct CertifiedPair {
    /// At least one.
    pub chain: Vec<CertificateDer<'static>>,
    /// The leaf's.
    pub key: PrivateKeyDer<'static>,
}

/// The door for callers.
#[derive(Debug)]
pub struct Gateway {
    /// A TCP address.
    pub listen: SocketAddr,
    /// Clusters are reached as `NAME.host_suffix`, in lower case.
    pub host_suffix: Option<String>,
    /// Names and addresses, without brackets and in lower case, under which clusters are reached by path; every name
    /// that is not under the suffix, if empty.
    pub hosts: Vec<String>,
    /// How callers prove who they are; at least one way.
    pub authentication: Authentication,
    /// The origins whose pages may make a browser ask, as a browser writes them; at most [`NAMES_MAX`].
    pub browser_origins: Vec<String>,
    /// For how long one request may run, a watch or an upgraded connection too; 1 s to 7 days.
    pub session_age_max: Duration,
}

/// How callers prove who they are.
#[derive(Debug)]
pub struct Authentication {
    /// By a certificate in the TLS handshake.
    pub client_certificate: Option<ClientCertificate>,
    /// By a bearer token that a file knows.
    pub token_file: Option<TokenFile>,
    /// By a token of one of these issuers, no two of which have a name or an issuer in common; at most [`ISSUERS_MAX`].
    pub oidc: Vec<Oidc>,
    /// By a token that another cluster's API server knows.
    pub token_review: Option<TokenReview>,
}

/// An issuer of OpenID Connect.
#[derive(Debug)]
pub struct Oidc {
    /// A DNS label.
    pub name: String,
    /// An https URL, which tokens name to the byte.
    pub issuer: String,
    /// Whom tokens are for.
    pub audience: String,
    /// What the issuer's certificate must chain to; at least one.
    pub roots: Vec<CertificateDer<'static>>,
    /// By which tokens may be signed; at least one, and no MAC.
    pub algorithms: Vec<Algorithm>,
    /// The claim that names the user.
    pub username_claim: String,
    /// The claim that names the groups.
    pub groups_claim: Option<String>,
    /// Claims and the text that each must have.
    pub required_claims: BTreeMap<String, String>,
    /// In front of their names.
    pub prefixes: Prefixes,
}

/// An API server that reviews tokens.
#[derive(Debug)]
pub struct TokenReview {
    /// A DNS label.
    pub name: String,
    /// Where it is.
    pub host: HostCluster,
    /// Whom tokens are for: one of these, at least one.
    pub audiences: Vec<String>,
    /// In front of their names; none of them empty.
    pub prefixes: Prefixes,
}

/// An API server that this server asks.
#[derive(Debug)]
pub struct HostCluster {
    /// `https://HOST[:PORT]`.
    pub server: Uri,
    /// What its certificate must chain to; at least one.
    pub roots: Vec<CertificateDer<'static>>,
    /// The token with which it is asked, read each time.
    pub token_file: PathBuf,
}

/// Callers' certificates.
#[derive(Debug)]
pub struct ClientCertificate {
    /// The roots that they must chain to; at least one, and none that agents chain to.
    pub roots: Vec<CertificateDer<'static>>,
    /// In front of their names.
    pub prefixes: Prefixes,
}

/// Static bearer tokens. `Debug` shows none of them.
pub struct TokenFile {
    /// Where they were read.
    pub path: PathBuf,
    /// What was read.
    pub contents: Vec<u8>,
    /// In front of their holders' names.
    pub prefixes: Prefixes,
}

/// What stands in front of the names of one method. No method's prefix begins with another's, and at most one is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefixes {
    /// In front of user names.
    pub username: String,
    /// In front of group names.
    pub groups: String,
}

/// The door for agents.
#[derive(Debug)]
pub struct Tunnel {
    /// A UDP address.
    pub listen: SocketAddr,
    /// The roots that agents' certificates must chain to; at least one.
    pub agent_roots: Vec<CertificateDer<'static>>,
    /// For how long a tunnel and what runs on it are held without a sign of life; 9 to 600 s.
    pub outage_limit: Duration,
    /// Which of two processes that use one agent's certificate at the same time is taken.
    pub copied_key: CopiedKey,
}

/// Which of two processes that use one certificate at the same time, and both answer, is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopiedKey {
    /// The one that came first: whoever copies a key gains nothing by it.
    #[default]
    RefuseNewcomer,
    /// The one that came last: where a machine is moved while the old one still runs.
    PreferNewcomer,
}

/// What holds for some clusters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterRules {
    /// The name of one, or a pattern in which `*` stands for any text.
    pub pattern: String,
    /// As whom they are asked.
    pub asked_as: AskedAs,
}

/// As whom a cluster's API server is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskedAs {
    /// As its agent, which asserts the caller, if this list has it.
    Asserted(AllowList),
    /// As whoever the caller's own credential for that cluster says.
    PassedThrough,
}

/// The door at which agents enroll.
#[derive(Debug)]
pub struct Enrollment {
    /// A TCP address.
    pub listen: SocketAddr,
    /// How agents reach it: `HOST:PORT`.
    pub address: String,
    /// What issues their certificates.
    pub signer: Arc<dyn Signer>,
    /// The servers' roots of the trust bundle; at least one.
    pub server_roots: Vec<CertificateDer<'static>>,
    /// How long a certificate holds; 1 h to 7 d.
    pub lifetime: Duration,
    /// How long after its end its key still gets the next one; 1 to 365 d.
    pub grace: Duration,
}

/// The door for callers with dial tokens.
#[derive(Debug)]
pub struct Proxy {
    /// A TCP address.
    pub listen: SocketAddr,
    /// What this door shows, and no other.
    pub certificate: CertifiedPair,
}

/// How requests wait for a cluster that is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parking {
    /// For how long; 0 to [`PARK_LIMIT_SECONDS_MAX`]. Zero: they are refused at once.
    pub limit: Duration,
    /// For how long at most where a caller asks for it; `limit` to [`PARK_LIMIT_SECONDS_MAX`].
    pub caller_limit: Duration,
    /// Most that wait for one cluster; 1 to [`PARKED_MAX`].
    pub per_cluster: usize,
}

/// How watches outlive the loss of their tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watches {
    /// Whether they do at all.
    pub resume: bool,
    /// How long they wait for their cluster; 0 to [`WATCH_LIMIT_SECONDS_MAX`].
    pub limit: Duration,
    /// Most that wait for one cluster; 1 to [`WATCHES_PARKED_MAX`].
    pub per_cluster: usize,
    /// Largest event that is held until it is whole; [`WATCH_EVENT_BYTES_MIN`] to [`WATCH_EVENT_BYTES_MAX`]. The watch of a
    /// larger one ends with its tunnel.
    pub event_bytes_max: usize,
}

/// The doors of the admin API.
#[derive(Debug)]
pub struct Admin {
    /// The Unix socket, if there is one.
    pub socket: Option<PathBuf>,
    /// The door to other machines, if there is one.
    pub tcp: Option<AdminTcp>,
}

/// The admin API's door to other machines.
#[derive(Debug)]
pub struct AdminTcp {
    /// A TCP address.
    pub listen: SocketAddr,
    /// The roots that administrators' certificates must chain to; at least one, and none that agents or callers chain to.
    pub roots: Vec<CertificateDer<'static>>,
    /// What they may do, as the file said it at the start.
    pub rules: AdminRules,
}

/// What administrators may do from other machines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AdminRules {
    /// What each name may do, 1 to [`ADMINS_MAX`]; who is not named may nothing.
    pub roles: BTreeMap<Label, AdminRole>,
    /// Whose certificates are refused, at most [`ADMINS_MAX`].
    pub revoked: Vec<AdminRevocation>,
}

/// Which certificates of administrators are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminRevocation {
    /// One, by its serial number in lower-case hexadecimal.
    Serial(String),
    /// All that were issued earlier.
    IssuedBefore {
        /// Of this name alone, if there is one.
        name: Option<Label>,
        /// Than this.
        time: SystemTime,
    },
}

/// An administrator's certificate is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this administrator's certificate was revoked")]
pub struct AdminRevoked;

/// What an administrator may do from another machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminRole {
    /// Look at everything, and change nothing.
    Viewer,
    /// Make tokens by which agents enroll, and nothing else.
    Enroller,
    /// Everything.
    Operator,
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
    /// What flags, environment and file say together, and the files that are named there.
    ///
    /// # Errors
    ///
    /// [`ConfigError`], which names the key, its value and what is allowed.
    pub fn load(flags: &Flags) -> Result<Self, ConfigError> {
        let path = flags.shared.config.clone().unwrap_or_else(|| FILE_DEFAULT.into());
        let written = daemon::config::load(&path, KIND)?;
        let directory = path.parent().unwrap_or_else(|| Path::new("."));
        Ok(valid::config(written, flags, &path, directory)?)
    }

    /// The TLS material of the door for agents.
    #[must_use]
    pub fn tunnel_material(&self) -> Material {
        Material {
            chain: self.certificate.chain.clone(),
            key: self.certificate.key.clone_key(),
            peer_roots: self.tunnel.agent_roots.clone(),
        }
    }
}

impl TokenFile {
    /// The error for a file that turned out to be wrong when it was read as tokens.
    #[must_use]
    pub fn refused(&self, reason: impl std::fmt::Display) -> KeyError {
        let allowed = format!("a file of lines sha256:DIGEST,user,uid,\"group1,group2\" ({reason})");
        KeyError::new("gateway.authentication.tokenFile.path", self.path.display(), allowed)
    }
}

impl std::fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenFile")
            .field("path", &self.path)
            .field("prefixes", &self.prefixes)
            .finish_non_exhaustive()
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::misconfigured(error)
    }
}

#[cfg(test)]
mod tests;
