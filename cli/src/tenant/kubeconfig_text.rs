//! The text of a kubeconfig with one credential and a context for each server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::yaml;

/// A kubeconfig by which one user comes with a client certificate. `servers` are names of contexts with their URLs; the first one is the
/// current context.
pub(super) fn kubeconfig(
    servers: &[(&str, &str)],
    ca_pem: &str,
    user: &str,
    certificate_pem: &str,
    key_pem: &str,
) -> String {
    let clusters: Vec<Value> =
        servers.iter().map(|(name, url)| json!({ "name": name, "cluster": cluster(url, ca_pem) })).collect();
    let contexts: Vec<Value> = servers
        .iter()
        .map(|(name, _)| json!({ "name": name, "context": { "cluster": name, "user": user } }))
        .collect();
    let credential = json!({
        "client-certificate-data": BASE64.encode(certificate_pem), "client-key-data": BASE64.encode(key_pem),
    });
    text(&json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": clusters,
        "contexts": contexts,
        "current-context": servers.first().map(|(name, _)| *name).unwrap_or_default(),
        "users": [{ "name": user, "user": credential }],
    }))
}

/// A kubeconfig by which one user comes with a token.
pub(super) fn with_token(server: &str, ca_pem: &str, user: &str, token: &str) -> String {
    text(&json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "tenant", "cluster": cluster(server, ca_pem) }],
        "contexts": [{ "name": "tenant", "context": { "cluster": "tenant", "user": user } }],
        "current-context": "tenant",
        "users": [{ "name": user, "user": { "token": token } }],
    }))
}

/// The kubeconfig of the ConfigMap cluster-info, as kubeadm writes it: a cluster without a name, and no user.
pub(super) fn cluster_info(server: &str, ca_pem: &str) -> String {
    text(&json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "", "cluster": cluster(server, ca_pem) }],
        "contexts": [],
        "current-context": "",
        "preferences": {},
        "users": [],
    }))
}

fn cluster(server: &str, ca_pem: &str) -> Value {
    json!({ "certificate-authority-data": BASE64.encode(ca_pem), "server": server })
}

fn text(kubeconfig: &Value) -> String {
    // A Value of texts and lists is always YAML.
    yaml::document(kubeconfig).unwrap_or_default() + "\n"
}
