//! The configuration file as people write it.

use std::path::PathBuf;

use daemon::config::{LogKeys, ProbesKeys, RuntimeKeys};
use serde::Deserialize;

use super::{limits, tenants};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Written {
    pub(super) cluster: Option<String>,
    pub(super) servers: Option<Vec<String>>,
    pub(super) server_name: Option<String>,
    pub(super) server_ids: Option<Vec<String>>,
    pub(super) carrier: Option<String>,
    pub(super) proxy: Option<Proxy>,
    pub(super) tunnel: Option<Tunnel>,
    pub(super) trust_domain: Option<String>,
    pub(super) tls: Option<Tls>,
    pub(super) enrollment: Option<Enrollment>,
    pub(super) api_server: Option<ApiServer>,
    pub(super) impersonation: Option<Impersonation>,
    pub(super) pass_through: Option<bool>,
    pub(super) limits: Option<limits::Written>,
    pub(super) advertise: Option<Vec<String>>,
    pub(super) targets: Option<Vec<String>>,
    pub(super) service_networks: Option<Vec<String>>,
    pub(super) tenants: Option<Vec<tenants::Written>>,
    pub(super) state_dir: Option<PathBuf>,
    pub(super) probes: Option<ProbesKeys>,
    pub(super) drain_grace_seconds: Option<u64>,
    pub(super) log: Option<LogKeys>,
    pub(super) runtime: Option<RuntimeKeys>,
}

/// Not shown by `Debug`: the URL may hold a password.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Proxy {
    pub(super) url: Option<String>,
    pub(super) no_proxy: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Tunnel {
    pub(super) outage_limit_seconds: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Tls {
    pub(super) certificate_file: Option<PathBuf>,
    pub(super) key_file: Option<PathBuf>,
    #[serde(rename = "serverCAFile")]
    pub(super) server_ca_file: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Enrollment {
    pub(super) server: Option<String>,
    pub(super) pin: Option<String>,
    pub(super) token_file: Option<PathBuf>,
    pub(super) service_account_token_file: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ApiServer {
    pub(super) in_cluster: Option<InCluster>,
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) context: Option<String>,
    pub(super) discover_endpoints: Option<bool>,
    pub(super) endpoints: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct InCluster {
    pub(super) directory: Option<PathBuf>,
    pub(super) host: Option<String>,
    pub(super) port: Option<u16>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Impersonation {
    pub(super) users: Option<Vec<String>>,
    pub(super) groups: Option<Vec<String>>,
    pub(super) system_names: Option<Vec<String>>,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("no_proxy", &self.no_proxy).finish_non_exhaustive()
    }
}
