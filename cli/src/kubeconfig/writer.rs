//! Writes kubeconfigs (`v1`, `Config` of client-go's `clientcmd`) for clusters behind the gateway.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;
use serde_saphyr::{SerializeError, ser_options};

use crate::names::GatewayUrl;

/// The version of client-go's protocol for exec plugins that `tombolo credential` speaks.
pub(crate) const EXEC_API_VERSION: &str = "client.authentication.k8s.io/v1";

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

/// A cluster, or a cluster set, under its name and URL.
pub(super) struct Server {
    pub(super) name: String,
    pub(super) url: String,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exec: Option<ExecBody>,
}

/// A program that hands out the credential, an exec plugin of client-go.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExecBody {
    api_version: &'static str,
    command: String,
    args: Vec<String>,
    /// It asks nobody anything, so that it also runs without a terminal.
    interactive_mode: &'static str,
    /// The credential is the same for every cluster behind the gateway.
    provide_cluster_info: bool,
    install_hint: String,
}

impl ExecBody {
    /// The program `command` with these arguments.
    pub(super) fn new(command: String, args: Vec<String>) -> Self {
        let install_hint = format!(
            "The credential for the gateway comes from {command}, which is not there: install tombolo, and have its folder in PATH."
        );
        Self {
            api_version: EXEC_API_VERSION,
            command,
            args,
            interactive_mode: "Never",
            provide_cluster_info: false,
            install_hint,
        }
    }
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
    /// A kubeconfig with one context for each of these. The first context is the current one.
    pub(super) fn new(gateway: &GatewayUrl, servers: &[Server], ca: &GatewayCa, user: UserBody) -> Self {
        // The gateway's host is part of the name, so that files for two gateways can be merged.
        let user_name = format!("tombolo@{}", gateway.host());
        let cluster = |server: &Server| ClusterBody {
            server: server.url.clone(),
            certificate_authority: match ca {
                GatewayCa::File(path) => Some(path.clone()),
                GatewayCa::Embedded(_) => None,
            },
            certificate_authority_data: match ca {
                GatewayCa::Embedded(text) => Some(base64(text)),
                GatewayCa::File(_) => None,
            },
        };
        let context = |server: &Server| ContextBody { cluster: server.name.clone(), user: user_name.clone() };
        Self {
            api_version: "v1",
            kind: "Config",
            clusters: servers
                .iter()
                .map(|server| NamedCluster { name: server.name.clone(), cluster: cluster(server) })
                .collect(),
            contexts: servers
                .iter()
                .map(|server| NamedContext { name: server.name.clone(), context: context(server) })
                .collect(),
            current_context: servers.first().map(|server| server.name.clone()).unwrap_or_default(),
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
