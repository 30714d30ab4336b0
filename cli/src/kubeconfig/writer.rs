//! Writes kubeconfigs (`v1`, `Config` of client-go's `clientcmd`) for clusters behind the gateway.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use proto::ClusterId;
use serde::Serialize;
use serde_saphyr::{SerializeError, ser_options};

use crate::names::{GatewayUrl, HostSuffix};

/// A complete kubeconfig, as it is written.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct KubeconfigDocument {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    clusters: Vec<NamedCluster>,
    contexts: Vec<NamedContext>,
    current_context: String,
    users: Vec<NamedUser>,
}

/// The CA certificates of the gateway.
pub(super) enum GatewayCa {
    Embedded(String),
    File(String),
}

/// The credential of the user. Keys that are not used are left out.
#[derive(Serialize, Default)]
#[serde(rename_all = "kebab-case")]
pub(super) struct UserBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client_certificate: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client_certificate_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client_key_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", rename = "tokenFile")]
    pub(super) token_file: Option<String>,
}

#[derive(Serialize)]
struct NamedCluster {
    name: String,
    cluster: ClusterBody,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct ClusterBody {
    server: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_authority: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_authority_data: Option<String>,
}

#[derive(Serialize)]
struct NamedContext {
    name: String,
    context: ContextBody,
}

#[derive(Serialize)]
struct ContextBody {
    cluster: String,
    user: String,
}

#[derive(Serialize)]
struct NamedUser {
    name: String,
    user: UserBody,
}

impl KubeconfigDocument {
    /// A kubeconfig with one context per cluster. The first context is the current one.
    pub(super) fn new(
        gateway: &GatewayUrl,
        clusters: &[ClusterId],
        suffix: Option<&HostSuffix>,
        ca: &GatewayCa,
        user: UserBody,
    ) -> Self {
        // The gateway's host is part of the name, so that files for two gateways can be merged.
        let user_name = format!("tombolo@{}", gateway.host());
        let cluster = |name: &ClusterId| ClusterBody {
            server: match suffix {
                Some(suffix) => gateway.cluster_url_by_host_name(name, suffix),
                None => gateway.cluster_url_by_path(name),
            },
            certificate_authority: match ca {
                GatewayCa::File(path) => Some(path.clone()),
                GatewayCa::Embedded(_) => None,
            },
            certificate_authority_data: match ca {
                GatewayCa::Embedded(text) => Some(base64(text)),
                GatewayCa::File(_) => None,
            },
        };
        let context = |name: &ClusterId| ContextBody { cluster: name.to_string(), user: user_name.clone() };
        Self {
            api_version: "v1",
            kind: "Config",
            clusters: clusters
                .iter()
                .map(|name| NamedCluster { name: name.to_string(), cluster: cluster(name) })
                .collect(),
            contexts: clusters
                .iter()
                .map(|name| NamedContext { name: name.to_string(), context: context(name) })
                .collect(),
            current_context: clusters.first().map(ClusterId::to_string).unwrap_or_default(),
            users: vec![NamedUser { name: user_name, user }],
        }
    }

    /// Formats the kubeconfig with each value on one line, because people search kubeconfigs with line tools.
    pub(super) fn to_yaml(&self) -> Result<String, SerializeError> {
        serde_saphyr::to_string_with_options(self, ser_options! { prefer_block_scalars: false })
    }
}

/// Encodes the contents of a file for a key that ends in `-data`.
pub(super) fn base64(text: &str) -> String {
    BASE64.encode(text)
}
