//! The server's configuration: flags override the environment, which overrides the file, which overrides the defaults.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use daemon::config::ConfigError;
use daemon::config::{CommonDefaults, KeyError, RawCommon, RawLayout};
use daemon::{Layout, LogOptions};

mod admin;
mod audit_log;
mod authentication;
mod by_source;
mod cluster_sets;
mod clusters;
mod directory;
mod egress;
mod enrollment;
mod file_digest;
mod flags;
mod gateway;
mod help;
mod host_cluster;
mod limits;
mod oidc;
mod parking;
mod passthrough;
mod peering;
mod pem;
mod policy_file;
mod proxy;
mod raw;
mod roots;
mod sources;
mod tls;
mod token_review;
mod tunnel;
mod value;
mod vip;
mod watches;

pub use admin::{ADMINS_MAX, AdminConfig, AdminRevocation, AdminRevoked, AdminRole, AdminRules, AdminTcp};
pub use authentication::{AuthenticationConfig, ClientCertificate, TokenFile};
pub use by_source::{ClusterTarget, ENTRY_POINT_CONNECTIONS_MAX, SourceEntryPoint};
pub use cluster_sets::ClusterSet;
pub use clusters::{AskedAs, ClusterRules};
pub use directory::{EtcdConfig, EtcdTls, STALE_LIMIT_SECONDS_MAX, STALE_LIMIT_SECONDS_MIN};
pub use egress::{EGRESS_CONNECTIONS_MAX, EGRESS_MAX, EgressConfig, EgressListener, EgressTcp, EgressUnix};
pub use enrollment::{EnrollmentConfig, GRACE_DAYS_MAX, SignerFiles};
pub use file_digest::file_digest;
pub use flags::Flags;
pub use gateway::{GatewayConfig, SESSION_AGE_SECONDS_MAX};
pub use host_cluster::HostCluster;
pub use limits::{
    AgentLimits, CallerLimits, ClusterLimits, GatewayLimits, LIMIT_MAX, LimitsConfig, ListenerTotals,
    QUEUE_SECONDS_MAX, SERVER_TUNNELS_MAX, ServerLimits, SourceLimitsConfig,
};
pub use oidc::{ISSUERS_MAX, OidcConfig};
pub use parking::{PARK_LIMIT_SECONDS_MAX, PARKED_MAX, Parking};
pub use passthrough::PassthroughConfig;
pub use peering::{PeerCarrier, PeeringConfig};
pub use pem::{CertifiedPair, PairFiles};
pub use proxy::ProxyConfig;
pub use roots::{ClientRole, ClientRoots, RootsFile, TrustedRoots};
pub use sources::SourceConditions;
pub use tls::trust_bundle;
pub use token_review::TokenReviewConfig;
pub use tunnel::{ADDRESSES_FOR_AGENTS_MAX, CopiedKey, TunnelConfig};
pub use value::{NAMES_MAX, NamePrefixes, REQUESTS_PER_SECOND_MAX};
pub use vip::{VIP_ENTRY_POINTS_MAX, VipConfig, VipEntryPoint, VipPublish, VipRange};
pub use watches::{
    WATCH_EVENT_BYTES_MAX, WATCH_EVENT_BYTES_MIN, WATCH_LIMIT_SECONDS_MAX, WATCHES_PARKED_MAX, WatchesConfig,
};

use raw::RawConfig;

/// The file that is read unless `--config` names another.
pub const FILE_DEFAULT: &str = "/etc/tombolo/server.yaml";

/// The `kind` of the file.
pub const KIND: &str = "ServerConfig";

/// The defaults of the settings that every daemon has. The layout: docs/decisions/0001-runtime-layout.md.
const COMMON_DEFAULTS: CommonDefaults = CommonDefaults {
    state_dir: "/var/lib/tombolo/server",
    probes_listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090),
    layout: RawLayout::PerCore,
    threads: None,
};

/// A valid configuration, with the contents of most files that it names.
#[derive(Debug)]
pub struct Config {
    /// The path of the configuration file.
    pub file: PathBuf,
    /// This server's name among the servers of an installation, a DNS label.
    pub server_id: String,
    /// The trust domain of all certificates.
    pub trust_domain: String,
    /// The certificate that the server shows to callers and to agents.
    pub certificate: CertifiedPair,
    /// The roots by which all listeners accept clients.
    pub client_roots: ClientRoots,
    /// The path of the trust bundle, if there is one.
    pub trust_bundle_file: Option<PathBuf>,
    /// The trust bundle for agents, signed by a server root that is in it; empty if there is none.
    pub trust_bundle: Vec<u8>,
    /// The etcd in which many servers share their records; `None` if they are in the state directory.
    pub etcd: Option<EtcdConfig>,
    /// The listener for the other servers of the installation, if there is one.
    pub peering: Option<PeeringConfig>,
    /// The listener for callers, `gateway`.
    pub gateway: GatewayConfig,
    /// The listener for agents, `tunnel`.
    pub tunnel: TunnelConfig,
    /// The listener at which agents enroll, if there is one.
    pub enrollment: Option<EnrollmentConfig>,
    /// Entry points for the egress of API servers, each with a name of its own; at most [`EGRESS_MAX`].
    pub egress: Vec<EgressConfig>,
    /// The listener that forwards TLS to clusters unterminated, if there is one.
    pub passthrough: Option<PassthroughConfig>,
    /// The clusters' addresses that this host takes, if it takes any.
    pub vip: Option<VipConfig>,
    /// The TLS listener for callers with dial tokens, if there is one.
    pub proxy: Option<ProxyConfig>,
    /// The SOCKS5 listener for callers with dial tokens, if there is one: a TCP address, loopback unless forced.
    pub socks: Option<SocketAddr>,
    /// The path of the policy file, which is not read yet.
    pub policy_file: PathBuf,
    /// The cluster whose RBAC can forbid what policy allows, if any.
    pub delegation: Option<HostCluster>,
    /// Rules for some clusters; at most [`NAMES_MAX`]. The first that matches a cluster counts.
    pub clusters: Vec<ClusterRules>,
    /// The sets of clusters that are read together, `global` among them; at most [`NAMES_MAX`] and one.
    pub cluster_sets: Vec<ClusterSet>,
    /// The waiting of requests for a cluster that is away.
    pub parking: Parking,
    /// Says whether and how watches outlive the loss of their tunnel.
    pub watches: WatchesConfig,
    /// Limits for one source, one caller and one cluster.
    pub limits: LimitsConfig,
    /// The settings of the audit log; `None` where auditing is off.
    pub audit: Option<audit::Settings>,
    /// The listeners of the admin API.
    pub admin: AdminConfig,
    /// The directory of keys and other state.
    pub state_dir: PathBuf,
    /// The TCP address of `/livez`, `/readyz` and `/metrics`.
    pub probes_listen: SocketAddr,
    /// The time for which running exchanges can continue after the drain began; 1 to 600 s.
    pub drain_grace: Duration,
    /// Format and filter of the log.
    pub logs: LogOptions,
    /// The number of runtimes and threads.
    pub layout: Layout,
}

impl Config {
    /// Loads the configuration from flags, environment and file, and reads the files that it names. Blocks.
    ///
    /// # Errors
    ///
    /// [`ConfigError`], which names the key, its value and what is allowed.
    pub fn load(flags: &Flags) -> Result<Self, ConfigError> {
        let path = flags.shared.config.clone().unwrap_or_else(|| FILE_DEFAULT.into());
        let text = daemon::config::read(&path)?;
        let text = daemon::config::with_server_id(text, flags.server_id.as_deref(), &path)?;
        let (common, raw) = daemon::config::parse_with_common(&text, &path, KIND)?;
        let directory = path.parent().unwrap_or_else(|| Path::new("."));
        Ok(validate(common, raw, flags, &path, directory)?)
    }
}

/// The rules for remote administrators in the text of a configuration file that was read again. Changes of all but these and
/// the cluster sets take effect at a restart.
///
/// # Errors
///
/// [`ConfigError`]: it is no configuration, or has no `admin.tcp` any more.
pub fn admin_rules(text: &str, path: &Path) -> Result<AdminRules, ConfigError> {
    let (_, raw) = daemon::config::parse_with_common::<RawConfig>(text, path, KIND)?;
    Ok(admin::reread_rules(raw.admin)?)
}

/// The cluster sets in the text of a configuration file that was read again.
///
/// # Errors
///
/// [`ConfigError`]: it is no configuration, or one of the sets is invalid.
pub fn cluster_sets_of(text: &str, path: &Path) -> Result<Vec<ClusterSet>, ConfigError> {
    let (_, raw) = daemon::config::parse_with_common::<RawConfig>(text, path, KIND)?;
    Ok(cluster_sets::cluster_sets(raw.cluster_sets.unwrap_or_default())?)
}

fn validate(
    common: RawCommon,
    raw: RawConfig,
    flags: &Flags,
    path: &Path,
    directory: &Path,
) -> Result<Config, KeyError> {
    let RawConfig {
        server_id,
        trust_domain,
        tls,
        trust,
        directory: records,
        peering,
        gateway,
        tunnel,
        enrollment,
        egress,
        passthrough,
        vip,
        proxy,
        socks,
        policy,
        clusters,
        cluster_sets,
        parking,
        watches,
        limits,
        audit,
        admin,
    } = raw;
    let common = common.resolve(&flags.shared, &COMMON_DEFAULTS, directory)?;
    let trust_domain = tls::trust_domain(trust_domain)?;
    let certificate = tls::certificate(tls.unwrap_or_default(), directory)?;
    let gateway = gateway::gateway(gateway.unwrap_or_default(), flags, directory)?;
    let tunnel = tunnel::tunnel(tunnel.unwrap_or_default(), flags, directory)?;
    let admin = admin::admin(admin.unwrap_or_default(), flags, directory)?;
    let egress = egress::egress(egress.unwrap_or_default(), directory)?;
    let passthrough = passthrough::passthrough(passthrough, &gateway, &certificate, &egress)?;
    let bundle = tls::bundle_file(trust.unwrap_or_default(), &trust_domain, directory)?;
    let server_id = tls::server_id(flags.server_id.clone().or(server_id), &certificate, &trust_domain)?;
    let (policy_file, delegation) = policy_file::policy(policy.unwrap_or_default(), directory)?;
    let etcd = directory::etcd(records, &trust_domain, directory)?;
    let peering = peering::peering(peering, etcd.is_some(), &server_id, &trust_domain, directory)?;
    Ok(Config {
        file: path.to_owned(),
        audit: audit_log::audit(audit.unwrap_or_default(), &server_id, &common.state_dir, directory)?,
        enrollment: enrollment::enrollment(enrollment, &trust_domain, &bundle.1, directory)?,
        server_id,
        trust_domain,
        certificate,
        client_roots: client_roots(&gateway, &tunnel, &admin, &egress, peering.as_ref())?,
        trust_bundle_file: bundle.0,
        trust_bundle: bundle.1,
        etcd,
        peering,
        gateway,
        tunnel,
        vip: vip::vip(vip, &egress, passthrough.as_ref(), directory)?,
        egress,
        passthrough,
        proxy: proxy::proxy(proxy, directory)?,
        socks: proxy::socks(socks)?,
        policy_file,
        delegation,
        clusters: clusters::clusters(clusters.unwrap_or_default())?,
        cluster_sets: cluster_sets::cluster_sets(cluster_sets.unwrap_or_default())?,
        parking: parking::parking(parking.unwrap_or_default())?,
        watches: watches::watches(watches.unwrap_or_default())?,
        limits: limits::limits(limits.unwrap_or_default())?,
        admin,
        state_dir: common.state_dir,
        probes_listen: common.probes_listen,
        drain_grace: common.drain_grace,
        logs: common.logs,
        layout: common.layout,
    })
}

/// The roots by which listeners accept clients.
fn client_roots(
    gateway: &GatewayConfig,
    tunnel: &TunnelConfig,
    admin: &AdminConfig,
    egress: &[EgressConfig],
    peering: Option<&PeeringConfig>,
) -> Result<ClientRoots, KeyError> {
    let callers = gateway.authentication.client_certificate.as_ref().map(|method| &method.roots);
    let admins = admin.tcp.as_ref().map(|tcp| &tcp.roots);
    let egress = egress.iter().filter_map(EgressConfig::tcp).map(|tcp| &tcp.roots);
    let mut all = ClientRoots::default().with(ClientRole::Agent, &tunnel.agent_roots)?;
    for (role, roots) in callers
        .map(|roots| (ClientRole::Caller, roots))
        .into_iter()
        .chain(admins.map(|roots| (ClientRole::Administrator, roots)))
        .chain(egress.map(|roots| (ClientRole::ApiServer, roots)))
        .chain(peering.map(|peering| (ClientRole::Peer, &peering.roots)))
    {
        all = all.with(role, roots)?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
