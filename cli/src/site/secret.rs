//! A Secret of Kubernetes with what an agent in a pod needs to enroll.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::NewSite;

/// The name of the Secret that the profiles of `tombolo rbac` let an agent read.
const SECRET: &str = "tunnel-agent";

/// The namespace of those profiles.
const NAMESPACE: &str = "tombolo";

/// The Secret as YAML, for `kubectl apply`.
pub(crate) fn secret(site: &NewSite) -> String {
    let NewSite { cluster, servers: _, enrollment_server, pin, token, ttl: _ } = site;
    let data = [("token", token), ("pin", pin), ("server", enrollment_server)];
    let data: String =
        data.iter().map(|(name, text)| format!("  {name}: {}\n", BASE64.encode(text))).collect();
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: {SECRET}\n  namespace: {NAMESPACE}\n  labels:\n    \
         tombolo.dev/cluster: {cluster}\ntype: Opaque\ndata:\n{data}"
    )
}
