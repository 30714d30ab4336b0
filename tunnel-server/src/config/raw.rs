//! The configuration file as `serde` reads it: every key optional, unknown keys refused.

use serde::Deserialize;

use super::admin::RawAdmin;
use super::audit_log::RawAudit;
use super::cluster_sets::RawClusterSet;
use super::clusters::RawCluster;
use super::directory::RawDirectory;
use super::egress::RawEgress;
use super::enrollment::RawEnrollment;
use super::gateway::RawGateway;
use super::limits::RawLimits;
use super::parking::RawParking;
use super::passthrough::RawPassthrough;
use super::peering::RawPeering;
use super::policy_file::RawPolicy;
use super::proxy::{RawProxy, RawSocks};
use super::tls::{RawTls, RawTrust};
use super::tunnel::RawTunnel;
use super::vip::RawVip;
use super::watches::RawWatches;

/// The server's own keys of the file. `daemon` reads the keys of every daemon. Each section's raw form stands beside its validation.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawConfig {
    /// Name of this server among the servers of an installation. It may be left out if the certificate holds
    /// spiffe://TRUST-DOMAIN/server/ID.
    pub(super) server_id: Option<String>,
    /// Trust domain of all certificates of the installation, as `tombolo ca init` wrote it.
    #[cfg_attr(test, schemars(extend("default" = proto::spiffe::TRUST_DOMAIN_DEFAULT)))]
    pub(super) trust_domain: Option<String>,
    /// The certificate that the server shows to callers and to agents.
    #[cfg_attr(test, schemars(required))]
    pub(super) tls: Option<RawTls>,
    /// The roots of servers, which agents get from this server.
    pub(super) trust: Option<RawTrust>,
    /// The records of clusters, tokens, agents and revocations. Without this key they are in `stateDir`, for one server.
    pub(super) directory: Option<RawDirectory>,
    /// The listener for the other servers of the installation. It needs `directory.etcd`, in which servers find each other.
    pub(super) peering: Option<RawPeering>,
    /// The listener for callers, who use kubectl.
    #[cfg_attr(test, schemars(required))]
    pub(super) gateway: Option<RawGateway>,
    /// The listener for agents, which dial it.
    #[cfg_attr(test, schemars(required))]
    pub(super) tunnel: Option<RawTunnel>,
    /// The listener at which agents enroll with a token and renew their certificates. Without it, every agent has files.
    pub(super) enrollment: Option<RawEnrollment>,
    /// Entry points for the egress of API servers elsewhere, as konnectivity's proxy-server has them.
    #[cfg_attr(test, schemars(length(min = 0, max = super::EGRESS_MAX), extend("default" = [])))]
    pub(super) egress: Option<Vec<RawEgress>>,
    /// The listener that forwards TLS unchanged to the API server that its server name selects.
    pub(super) passthrough: Option<RawPassthrough>,
    /// Addresses of clusters that this host takes on an interface of its own (Linux, CAP_NET_ADMIN).
    pub(super) vip: Option<RawVip>,
    /// The TLS listener for callers with dial tokens, who use HTTP CONNECT.
    pub(super) proxy: Option<RawProxy>,
    /// The SOCKS5 listener for the same callers.
    pub(super) socks: Option<RawSocks>,
    /// The policy: the actions that callers may take in each cluster.
    #[cfg_attr(test, schemars(required))]
    pub(super) policy: Option<RawPolicy>,
    /// Rules for some clusters. The first entry that matches a cluster applies.
    #[cfg_attr(test, schemars(length(min = 0, max = super::NAMES_MAX), extend("default" = [])))]
    pub(super) clusters: Option<Vec<RawCluster>>,
    /// Sets of clusters that are read together, under /clustersets/NAME. The set `global` of all clusters is always there.
    /// Changes take effect without a restart.
    #[cfg_attr(test, schemars(length(min = 0, max = super::NAMES_MAX), extend("default" = [])))]
    pub(super) cluster_sets: Option<Vec<RawClusterSet>>,
    /// The waiting of requests for a cluster whose link is dark.
    pub(super) parking: Option<RawParking>,
    /// The resumption of watches that lost their tunnel.
    pub(super) watches: Option<RawWatches>,
    /// Limits for one address, one caller, one cluster, and all together.
    pub(super) limits: Option<RawLimits>,
    /// The log of each request, its caller and its outcome.
    pub(super) audit: Option<RawAudit>,
    /// The admin API, which `tombolo cluster`, `token`, `agent` and `user` use.
    pub(super) admin: Option<RawAdmin>,
}
