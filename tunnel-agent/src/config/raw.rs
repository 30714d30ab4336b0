//! The configuration file as it is written, before validation.

use std::path::PathBuf;

use serde::Deserialize;

use super::limits::RawLimits;
use super::tenants::RawTenants;

/// The agent's own keys of the file. `daemon` reads the keys of every daemon.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawConfig {
    pub(super) cluster: Option<String>,
    pub(super) servers: Option<Vec<String>>,
    pub(super) server_name: Option<String>,
    pub(super) server_ids: Option<Vec<String>>,
    pub(super) carrier: Option<String>,
    pub(super) proxy: Option<RawProxy>,
    pub(super) tunnel: Option<RawTunnel>,
    pub(super) trust_domain: Option<String>,
    pub(super) tls: Option<RawTls>,
    pub(super) enrollment: Option<RawEnrollment>,
    pub(super) api_server: Option<RawApiServer>,
    pub(super) impersonation: Option<RawImpersonation>,
    pub(super) pass_through: Option<bool>,
    pub(super) limits: Option<RawLimits>,
    pub(super) advertise: Option<Vec<String>>,
    pub(super) targets: Option<Vec<String>>,
    pub(super) service_networks: Option<Vec<String>>,
    pub(super) tenants: Option<Vec<RawTenants>>,
}

/// A proxy. `Debug` does not show its URL, which may contain a password.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawProxy {
    pub(super) url: Option<String>,
    pub(super) no_proxy: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawTunnel {
    pub(super) outage_limit_seconds: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawTls {
    pub(super) certificate_file: Option<PathBuf>,
    pub(super) key_file: Option<PathBuf>,
    #[serde(rename = "serverCAFile")]
    pub(super) server_ca_file: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawEnrollment {
    pub(super) server: Option<String>,
    pub(super) pin: Option<String>,
    pub(super) token_file: Option<PathBuf>,
    pub(super) service_account_token_file: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawApiServer {
    pub(super) in_cluster: Option<RawInCluster>,
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) context: Option<String>,
    pub(super) discover_endpoints: Option<bool>,
    pub(super) endpoints: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawInCluster {
    pub(super) directory: Option<PathBuf>,
    pub(super) host: Option<String>,
    pub(super) port: Option<u16>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawImpersonation {
    pub(super) users: Option<Vec<String>>,
    pub(super) groups: Option<Vec<String>>,
    pub(super) system_names: Option<Vec<String>>,
}

impl std::fmt::Debug for RawProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawProxy").field("no_proxy", &self.no_proxy).finish_non_exhaustive()
    }
}
