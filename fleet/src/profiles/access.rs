//! The way to a cluster through the gateway, as profiles tell it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The name of the access provider. Consumers have a credential plugin for it, such as `tombolo credential`.
pub(super) const PROVIDER: &str = "tombolo";

/// The extension that client-go hands to a credential plugin.
/// <https://kubernetes.io/docs/reference/config-api/client-authentication.v1/#client-authentication-k8s-io-v1-Cluster>
const EXEC: &str = "client.authentication.k8s.io/exec";

/// The way through a gateway to its clusters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The URL of the gateway, without a slash at the end.
    pub gateway: String,
    /// The CA of its certificate, PEM; `None` if it is one of the system's.
    pub ca_pem: Option<String>,
}

impl Access {
    /// The access provider of a cluster.
    pub(super) fn provider(&self, cluster: &str) -> Value {
        let mut access = json!({
            "server": format!("{}/clusters/{cluster}", self.gateway),
            "extensions": [{ "name": EXEC, "extension": { "cluster": cluster } }],
        });
        if let Some(pem) = &self.ca_pem {
            access["certificate-authority-data"] = STANDARD.encode(pem).into();
        }
        json!({ "name": PROVIDER, "cluster": access })
    }
}
