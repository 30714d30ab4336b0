//! The configuration file as it is written, before validation.

use std::path::PathBuf;

use serde::Deserialize;

use super::limits::RawLimits;
use super::tenants::RawTenants;

/// The agent's own keys of the file. `daemon` reads the keys of every daemon.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawConfig {
    /// The cluster that this agent serves, as in its certificate. The file, the flag or TOMBOLO_AGENT_CLUSTER has to set
    /// it.
    pub(super) cluster: Option<String>,
    /// The servers to dial, `HOST:PORT` each. The file, the flag or the variable has to set it.
    #[cfg_attr(test, schemars(length(min = 1, max = super::SERVERS_MAX)))]
    pub(super) servers: Option<Vec<String>>,
    /// Name that the certificates of the servers have to have. The default is the host that is dialed.
    pub(super) server_name: Option<String>,
    /// Ids of the servers that are trusted. If the list is empty, all servers of the trust domain are.
    #[cfg_attr(test, schemars(length(min = 0, max = super::SERVERS_MAX), extend("default" = [])))]
    pub(super) server_ids: Option<Vec<String>>,
    /// Tunnels to different servers that the agent keeps if a server tells of others.
    #[cfg_attr(test, schemars(range(min = 1, max = super::TUNNELS_MAX), extend("default" = super::TUNNELS_DEFAULT)))]
    pub(super) tunnels: Option<usize>,
    /// The carrier of the tunnel. auto is QUIC over UDP, and HTTP/2 over TCP if UDP is blocked.
    #[cfg_attr(test, schemars(extend("default" = "auto"), extend("enum" = ["auto", "quic", "http2", null])))]
    pub(super) carrier: Option<String>,
    /// The proxy for TCP. HTTPS_PROXY and NO_PROXY win over it.
    pub(super) proxy: Option<RawProxy>,
    /// Settings of the tunnel to a server.
    pub(super) tunnel: Option<RawTunnel>,
    /// Trust domain of all certificates of the installation.
    #[cfg_attr(test, schemars(extend("default" = proto::spiffe::TRUST_DOMAIN_DEFAULT)))]
    pub(super) trust_domain: Option<String>,
    /// The agent's own certificate in files. A configuration has either `tls` or `enrollment`.
    pub(super) tls: Option<RawTls>,
    /// Enrollment with a token, after which the agent makes and renews its certificate itself.
    pub(super) enrollment: Option<RawEnrollment>,
    /// The API server of the cluster, and the agent's credential for it. In a pod it can be left out.
    pub(super) api_server: Option<RawApiServer>,
    /// The identities that the agent may assert. The server cannot widen this list.
    pub(super) impersonation: Option<RawImpersonation>,
    /// Lets requests with their caller's own token for this cluster pass.
    #[cfg_attr(test, schemars(extend("default" = false)))]
    pub(super) pass_through: Option<bool>,
    /// Limits of requests at the API server.
    pub(super) limits: Option<RawLimits>,
    /// Endpoints of the control plane, `HOST:PORT` each, in place of those that the cluster lists.
    #[cfg_attr(test, schemars(length(min = 0, max = proto::greeting::ENDPOINTS_MAX), extend("default" = [])))]
    pub(super) advertise: Option<Vec<String>>,
    /// Further targets that callers may reach by address: a network, address or name with one port, such as
    /// 10.96.0.0/12:443 or hook.shop.svc:443.
    #[cfg_attr(test, schemars(length(min = 0, max = super::TARGETS_MAX), extend("default" = [])))]
    pub(super) targets: Option<Vec<String>>,
    /// Networks in which endpoints of Services may be. If the list is empty, any address that is not special.
    #[cfg_attr(test, schemars(length(min = 0, max = super::SERVICE_NETWORKS_MAX), extend("default" = [])))]
    pub(super) service_networks: Option<Vec<String>>,
    /// Searches for API servers of tenants whose control planes run in this cluster.
    #[cfg_attr(test, schemars(length(min = 0, max = super::TENANTS_MAX), extend("default" = [])))]
    pub(super) tenants: Option<Vec<RawTenants>>,
}

/// A proxy. `Debug` does not show its URL, which may contain a password.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawProxy {
    /// `http://HOST:PORT`, with USER:PASSWORD@ before the host if needed, %-encoded.
    pub(super) url: Option<String>,
    /// Hosts, domains and networks that are reached without the proxy.
    #[cfg_attr(test, schemars(extend("default" = []), length(min = 0, max = 256)))]
    pub(super) no_proxy: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawTunnel {
    /// Time for which a tunnel and its exchanges are kept while the link is dark. By default, and if it is longer, the
    /// server's limit applies.
    #[cfg_attr(test, schemars(range(min = proto::session::SILENCE_LEAST.as_secs(), max = proto::session::SILENCE_MOST.as_secs())))]
    pub(super) outage_limit_seconds: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawTls {
    /// PEM file with the agent's certificate, and intermediates after it.
    #[cfg_attr(test, schemars(required))]
    pub(super) certificate_file: Option<PathBuf>,
    /// PEM file with the private key of the certificate.
    #[cfg_attr(test, schemars(required))]
    pub(super) key_file: Option<PathBuf>,
    /// PEM file with the roots of servers. No other root is trusted.
    #[cfg_attr(test, schemars(required))]
    #[serde(rename = "serverCAFile")]
    pub(super) server_ca_file: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawEnrollment {
    /// `HOST:PORT` of the enrollment listener. The file, the flag or the variable has to set it.
    pub(super) server: Option<String>,
    /// Pin of the root of servers, `sha256:` and 64 digits, as `tombolo token create` prints it.
    pub(super) pin: Option<String>,
    /// File with the enrollment token, or - for standard input.
    pub(super) token_file: Option<PathBuf>,
    /// File with a projected token of the pod's ServiceAccount, by which further pods enroll.
    pub(super) service_account_token_file: Option<PathBuf>,
    /// The API server of the cluster that the agent's pod runs in, if this is not the cluster that the agent serves. That
    /// cluster issues the token of the pod's ServiceAccount, so the agent reads the issuer's keys there.
    pub(super) host_cluster: Option<RawInCluster>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawApiServer {
    /// The credential of a pod. An agent has either this or `kubeconfig`.
    pub(super) in_cluster: Option<RawInCluster>,
    /// Path of a kubeconfig, for an agent that is not in a pod.
    pub(super) kubeconfig: Option<PathBuf>,
    /// The context of that kubeconfig. The default is its current-context.
    pub(super) context: Option<String>,
    /// Balances requests among the API servers that the cluster lists. The default is true in a pod, and false with a
    /// kubeconfig.
    pub(super) discover_endpoints: Option<bool>,
    /// Addresses of API servers, `ADDRESS:PORT` each, among which requests are balanced.
    #[cfg_attr(test, schemars(length(min = 2, max = super::API_SERVERS_MAX)))]
    pub(super) endpoints: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawInCluster {
    /// Folder with `token` and `ca.crt`.
    #[cfg_attr(test, schemars(extend("default" = super::IN_CLUSTER_DIRECTORY)))]
    pub(super) directory: Option<PathBuf>,
    /// Host of the API server. The default is KUBERNETES_SERVICE_HOST.
    pub(super) host: Option<String>,
    /// Port of the API server. The default is KUBERNETES_SERVICE_PORT, or 443.
    #[cfg_attr(test, schemars(range(min = 1, max = u16::MAX)))]
    pub(super) port: Option<u16>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawImpersonation {
    /// Users that may be asserted: full names, or patterns in which `*` matches any text.
    #[cfg_attr(test, schemars(extend("default" = ["tombolo:*"]), length(min = 0, max = proto::allow_list::PATTERNS_MAX)))]
    pub(super) users: Option<Vec<String>>,
    /// Groups that may be asserted, in the same form.
    #[cfg_attr(test, schemars(extend("default" = ["tombolo:*"]), length(min = 0, max = proto::allow_list::PATTERNS_MAX)))]
    pub(super) groups: Option<Vec<String>>,
    /// Names of Kubernetes' own (system:, kubeadm:) that may be asserted, each in full. system:masters and system:nodes
    /// are never allowed.
    #[cfg_attr(test, schemars(extend("default" = []), length(min = 0, max = proto::allow_list::PATTERNS_MAX)))]
    pub(super) system_names: Option<Vec<String>>,
}

impl std::fmt::Debug for RawProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawProxy").field("no_proxy", &self.no_proxy).finish_non_exhaustive()
    }
}
