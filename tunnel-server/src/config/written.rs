//! The configuration file as people write it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use daemon::config::{LogKeys, ProbesKeys, RuntimeKeys};
use serde::Deserialize;

use super::{admin, audit_log, egress, limits, passthrough, vip};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Written {
    pub(super) server_id: Option<String>,
    pub(super) trust_domain: Option<String>,
    pub(super) tls: Option<Tls>,
    pub(super) trust: Option<Trust>,
    pub(super) gateway: Option<Gateway>,
    pub(super) tunnel: Option<Tunnel>,
    pub(super) enrollment: Option<Enrollment>,
    pub(super) egress: Option<Vec<egress::Written>>,
    pub(super) passthrough: Option<passthrough::Written>,
    pub(super) vip: Option<vip::Written>,
    pub(super) proxy: Option<Proxy>,
    pub(super) socks: Option<Socks>,
    pub(super) policy: Option<Policy>,
    pub(super) clusters: Option<Vec<Cluster>>,
    pub(super) parking: Option<Parking>,
    pub(super) watches: Option<Watches>,
    pub(super) limits: Option<limits::Written>,
    pub(super) audit: Option<audit_log::Written>,
    pub(super) admin: Option<admin::Written>,
    pub(super) state_dir: Option<PathBuf>,
    pub(super) probes: Option<ProbesKeys>,
    pub(super) drain_grace_seconds: Option<u64>,
    pub(super) log: Option<LogKeys>,
    pub(super) runtime: Option<RuntimeKeys>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Tls {
    pub(super) certificate_file: Option<PathBuf>,
    pub(super) key_file: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Trust {
    pub(super) bundle_file: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Gateway {
    pub(super) listen: Option<String>,
    pub(super) host_suffix: Option<String>,
    pub(super) hosts: Option<Vec<String>>,
    pub(super) authentication: Option<Authentication>,
    pub(super) browser_origins: Option<Vec<String>>,
    pub(super) max_session_age_seconds: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Authentication {
    pub(super) client_certificate: Option<ClientCertificate>,
    pub(super) token_file: Option<TokenFile>,
    pub(super) oidc: Option<Vec<Oidc>>,
    pub(super) token_review: Option<TokenReview>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ClientCertificate {
    pub(super) ca_file: Option<PathBuf>,
    pub(super) username_prefix: Option<String>,
    pub(super) groups_prefix: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Oidc {
    pub(super) name: Option<String>,
    pub(super) issuer: Option<String>,
    pub(super) audience: Option<String>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) algorithms: Option<Vec<String>>,
    pub(super) username_claim: Option<String>,
    pub(super) groups_claim: Option<String>,
    pub(super) required_claims: Option<BTreeMap<String, String>>,
    pub(super) username_prefix: Option<String>,
    pub(super) groups_prefix: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct TokenReview {
    pub(super) name: Option<String>,
    pub(super) server: Option<String>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) token_file: Option<PathBuf>,
    pub(super) audiences: Option<Vec<String>>,
    pub(super) username_prefix: Option<String>,
    pub(super) groups_prefix: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct TokenFile {
    pub(super) path: Option<PathBuf>,
    pub(super) username_prefix: Option<String>,
    pub(super) groups_prefix: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Tunnel {
    pub(super) listen: Option<String>,
    #[serde(rename = "agentCAFile")]
    pub(super) agent_ca_file: Option<PathBuf>,
    pub(super) outage_limit_seconds: Option<u64>,
    pub(super) copied_key: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Enrollment {
    pub(super) listen: Option<String>,
    pub(super) address: Option<String>,
    pub(super) signer_file: Option<PathBuf>,
    pub(super) sealing_key_file: Option<PathBuf>,
    pub(super) certificate_lifetime_seconds: Option<u64>,
    pub(super) renewal_grace_days: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Proxy {
    pub(super) listen: Option<String>,
    pub(super) certificate_file: Option<PathBuf>,
    pub(super) key_file: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Socks {
    pub(super) listen: Option<String>,
    pub(super) insecure_non_loopback: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Policy {
    pub(super) file: Option<PathBuf>,
    pub(super) delegation: Option<HostCluster>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct HostCluster {
    pub(super) server: Option<String>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) token_file: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Cluster {
    pub(super) name: Option<String>,
    pub(super) pattern: Option<String>,
    pub(super) impersonation: Option<Impersonation>,
    pub(super) pass_through: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Impersonation {
    pub(super) users: Option<Vec<String>>,
    pub(super) groups: Option<Vec<String>>,
    pub(super) system_names: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Parking {
    pub(super) limit_seconds: Option<u64>,
    pub(super) caller_limit_seconds: Option<u64>,
    pub(super) per_cluster: Option<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Watches {
    pub(super) resume: Option<bool>,
    pub(super) limit_seconds: Option<u64>,
    pub(super) per_cluster: Option<usize>,
    pub(super) event_bytes_max: Option<usize>,
}
