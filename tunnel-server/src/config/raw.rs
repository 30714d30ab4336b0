//! The configuration file as `serde` reads it: every key optional, unknown keys refused.

use serde::Deserialize;

use super::admin::RawAdmin;
use super::audit_log::RawAudit;
use super::clusters::RawCluster;
use super::egress::RawEgress;
use super::enrollment::RawEnrollment;
use super::gateway::RawGateway;
use super::limits::RawLimits;
use super::parking::RawParking;
use super::passthrough::RawPassthrough;
use super::policy_file::RawPolicy;
use super::proxy::{RawProxy, RawSocks};
use super::tls::{RawTls, RawTrust};
use super::tunnel::RawTunnel;
use super::vip::RawVip;
use super::watches::RawWatches;

/// The server's own keys of the file. `daemon` reads the keys of every daemon. Each section's raw form stands beside its validation.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawConfig {
    pub(super) server_id: Option<String>,
    pub(super) trust_domain: Option<String>,
    pub(super) tls: Option<RawTls>,
    pub(super) trust: Option<RawTrust>,
    pub(super) gateway: Option<RawGateway>,
    pub(super) tunnel: Option<RawTunnel>,
    pub(super) enrollment: Option<RawEnrollment>,
    pub(super) egress: Option<Vec<RawEgress>>,
    pub(super) passthrough: Option<RawPassthrough>,
    pub(super) vip: Option<RawVip>,
    pub(super) proxy: Option<RawProxy>,
    pub(super) socks: Option<RawSocks>,
    pub(super) policy: Option<RawPolicy>,
    pub(super) clusters: Option<Vec<RawCluster>>,
    pub(super) parking: Option<RawParking>,
    pub(super) watches: Option<RawWatches>,
    pub(super) limits: Option<RawLimits>,
    pub(super) audit: Option<RawAudit>,
    pub(super) admin: Option<RawAdmin>,
}
