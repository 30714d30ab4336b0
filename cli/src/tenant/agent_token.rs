//! The tokens of the agents' ServiceAccount in a tenant, which the tenant's controllers make in Secrets.

use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD as BASE64, URL_SAFE_NO_PAD as BASE64_URL};
use rcgen::{KeyPair, PublicKeyData as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::inside::{InsideError, TenantApi};
use super::objects::SERVICE_ACCOUNT;

/// The namespace of the agents' ServiceAccount in the tenant, as `tombolo rbac` has it.
pub(super) const NAMESPACE: &str = "tombolo";

/// The Secret in the tenant with a token of that ServiceAccount. Without it the agents have no access.
pub(super) const TOKEN: &str = "tunnel-agent-token";

/// The longest wait for the tenant's controllers to make a token.
const TOKEN_MAX: Duration = Duration::from_secs(60);
const ASK_EVERY: Duration = Duration::from_millis(500);

/// The controllers have made no token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    #[error(transparent)]
    Inside(#[from] InsideError),
    #[error("the tenant's controllers have made no token within {limit:?}; see `tombolo tenant status`", limit = TOKEN_MAX)]
    NoToken,
}

/// A Secret of this name, into which the tenant's controllers put a token.
pub(super) fn secret(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {
            "name": name, "namespace": NAMESPACE,
            "annotations": { "kubernetes.io/service-account.name": SERVICE_ACCOUNT },
        },
    })
}

/// The path of such a Secret.
pub(super) fn path(name: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/secrets/{name}")
}

/// The token in this Secret, once the tenant's controllers have made it.
///
/// # Errors
/// [`TokenError`]
pub(super) async fn wait(api: &mut TenantApi, name: &str) -> Result<String, TokenError> {
    let end = Instant::now() + TOKEN_MAX;
    loop {
        if let Some(token) = in_secret(&api.get(&path(name)).await?) {
            return Ok(token);
        }
        if Instant::now() >= end {
            return Err(TokenError::NoToken);
        }
        sleep(ASK_EVERY).await;
    }
}

/// The token in a Secret; `None` if there is none yet.
pub(super) fn in_secret(secret: &Value) -> Option<String> {
    String::from_utf8(BASE64.decode(secret["data"]["token"].as_str()?).ok()?).ok()
}

/// The id of the key that has signed a token, in its header.
pub(super) fn key_id_in(token: &str) -> Option<String> {
    let header = BASE64_URL.decode(token.split('.').next()?).ok()?;
    let header: Value = serde_json::from_slice(&header).ok()?;
    header["kid"].as_str().map(str::to_owned)
}

/// The id that API servers give to a key: the hash of its public half.
pub(super) fn key_id(key: &KeyPair) -> String {
    BASE64_URL.encode(digest(&SHA256, &key.subject_public_key_info()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_key_is_in_the_header_of_a_token() {
        let header = BASE64_URL.encode(r#"{"alg":"ES256","kid":"abc"}"#);
        assert_eq!(key_id_in(&format!("{header}.e30.sig")).as_deref(), Some("abc"));
        for none in ["", ".", "e30.e30.e30", "no base64"] {
            assert_eq!(key_id_in(none), None, "{none}");
        }
        let (one, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        assert_ne!(key_id(&one), key_id(&other));
        assert_eq!(key_id(&one).len(), 43);
    }
}
