//! The kubeconfig's form (`v1`, `Config` of client-go's `clientcmd`).

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use proto::ClusterId;
use serde::Serialize;
use serde_saphyr::{SerializeError, ser_options};

use crate::names::{GatewayUrl, HostSuffix};

/// A whole kubeconfig.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Document {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    clusters: Vec<NamedCluster>,
    contexts: Vec<NamedContext>,
    current_context: String,
    users: Vec<NamedUser>,
}

/// What vouches for the gateway.
pub(super) enum Authority {
    Embedded(String),
    File(String),
}

/// How the person proves who they are; what is not used is left out.
#[derive(Serialize, Default)]
#[serde(rename_all = "kebab-case")]
pub(super) struct User {
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
    cluster: Cluster,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_authority: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_authority_data: Option<String>,
}

#[derive(Serialize)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Serialize)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Serialize)]
struct NamedUser {
    name: String,
    user: User,
}

impl Document {
    /// One context per cluster; the first is the current one.
    pub(super) fn of(
        gateway: &GatewayUrl,
        clusters: &[ClusterId],
        suffix: Option<&HostSuffix>,
        authority: &Authority,
        user: User,
    ) -> Self {
        // The host in the name, so that two such files merge without one credential hiding the other.
        let user_name = format!("tombolo@{}", gateway.host());
        let cluster = |name: &ClusterId| Cluster {
            server: match suffix {
                Some(suffix) => gateway.by_host_name(name, suffix),
                None => gateway.by_path(name),
            },
            certificate_authority: match authority {
                Authority::File(path) => Some(path.clone()),
                Authority::Embedded(_) => None,
            },
            certificate_authority_data: match authority {
                Authority::Embedded(text) => Some(base64(text)),
                Authority::File(_) => None,
            },
        };
        let context = |name: &ClusterId| Context { cluster: name.to_string(), user: user_name.clone() };
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

    /// The document, one line for each value, however long: people search kubeconfigs with line tools.
    pub(super) fn to_yaml(&self) -> Result<String, SerializeError> {
        serde_saphyr::to_string_with_options(self, ser_options! { prefer_block_scalars: false })
    }
}

/// As kubeconfigs spell the contents of a file.
pub(super) fn base64(text: &str) -> String {
    BASE64.encode(text)
}
