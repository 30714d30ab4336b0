//! The configuration file as it is written, before validation.

use std::path::PathBuf;

use serde::Deserialize;

/// The load balancer's own keys of the file. `daemon` reads the keys of every daemon.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawConfig {
    /// The API servers to begin with, `HOST:PORT` each. They are tried for ever. The file, the flag or the variable has
    /// to set it.
    #[cfg_attr(test, schemars(length(min = 1, max = super::SEEDS_MAX)))]
    pub(super) api_servers: Option<Vec<String>>,
    /// PEM file with the CA of the cluster. Nothing is relayed to an address that shows no certificate of it.
    #[cfg_attr(test, schemars(required))]
    #[serde(rename = "caFile")]
    pub(super) ca_file: Option<PathBuf>,
    /// PEM file with the client certificate of the kubelet, by which the cluster's list of API servers is watched.
    /// It may be absent until the kubelet has one. Without this key there is only what `apiServers` names.
    pub(super) client_certificate_file: Option<PathBuf>,
    /// PEM file with the key of the client certificate. The default is the file of the certificate.
    pub(super) client_key_file: Option<PathBuf>,
    /// Name or address that the certificates of API servers must bear.
    #[cfg_attr(test, schemars(extend("default" = super::SERVER_NAME_DEFAULT)))]
    pub(super) server_name: Option<String>,
    /// Addresses of this host at which callers are accepted, `ADDRESS:PORT` each, of loopback only. Of the
    /// defaults, those that this host does not have are left out.
    #[cfg_attr(test, schemars(length(min = 1, max = super::LISTENERS_MAX), extend("default" = super::LISTEN_DEFAULT)))]
    pub(super) listen: Option<Vec<String>>,
    /// The host cluster that runs the API servers, whose list of them is followed, too. Without this key it is not
    /// asked.
    pub(super) host_cluster: Option<RawHostCluster>,
    /// Serves pods, too. It takes the capability CAP_NET_ADMIN. Without this key pods are not served.
    pub(super) pods: Option<RawPods>,
}

/// The keys for the list of a host cluster.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawHostCluster {
    /// The API server of the host cluster, `HOST:PORT`. Its certificate must bear the host.
    #[cfg_attr(test, schemars(required))]
    pub(super) api_server: Option<String>,
    /// PEM file with the CA of the host cluster.
    #[cfg_attr(test, schemars(required))]
    pub(super) ca_file: Option<PathBuf>,
    /// File with a token that may list and watch the EndpointSlices of the namespace. It is read again for each
    /// connection.
    #[cfg_attr(test, schemars(required))]
    pub(super) token_file: Option<PathBuf>,
    /// The namespace of the Service.
    #[cfg_attr(test, schemars(required))]
    pub(super) namespace: Option<String>,
    /// The Service of this worker's API servers. Its port has the name `https`.
    #[cfg_attr(test, schemars(required))]
    pub(super) service: Option<String>,
}

/// The keys for access of pods.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawPods {
    /// Link-local IPv4 address and port at which pods are accepted. node-lb adds the address to the worker.
    #[cfg_attr(test, schemars(extend("default" = super::POD_ADDRESS_DEFAULT)))]
    pub(super) address: Option<String>,
    /// The networks of pods, `ADDRESS/BITS` each. Nobody else but the worker itself is served there.
    #[cfg_attr(test, schemars(required, length(min = 1, max = super::POD_NETWORKS_MAX)))]
    pub(super) networks: Option<Vec<String>>,
    /// IPv4 address and port of the Service `kubernetes`. Its packets are led to node-lb as long as node-lb runs, so
    /// that pods need no change. Without this key pods use `address`.
    pub(super) kubernetes_service: Option<String>,
}
