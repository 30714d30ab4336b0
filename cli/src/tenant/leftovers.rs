//! Finds what a step of an exchange of CAs would cut off: machines, pods and tokens that still need the old CA or key.

use std::time::Duration;

use rcgen::KeyPair;
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::agent_token::{TOKEN, in_secret, key_id, key_id_in};
use super::inside::{InsideError, TenantApi};
use super::objects::ROOT_CA;
use crate::node::{KUBELET_CA, TRUSTED_CAS, is_ready};

/// kubelet exchanges the token of a pod before it is so old, whatever its validity.
const TOKEN_AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// The validity of a pod's token if the pod does not say it.
const TOKEN_VALIDITY: u64 = 3607;

/// Finds what does not trust the next CA. `pin` is that of the CA, and everything trusts it since `since`.
///
/// # Errors
/// [`InsideError`]
pub(super) async fn before_issue(
    api: &mut TenantApi,
    pin: &str,
    since: OffsetDateTime,
) -> Result<Vec<String>, InsideError> {
    let mut found: Vec<String> = nodes(api).await?.iter().filter_map(|node| untrusting(node, pin)).collect();
    found.extend(running_pods(api).await?.iter().filter_map(|pod| older_pod(pod, since)));
    Ok(found)
}

/// Finds what still has a certificate of the old CA or a token of the old key. The next ones issue since `since`.
///
/// # Errors
/// [`InsideError`]
pub(super) async fn before_finish(
    api: &mut TenantApi,
    pin: &str,
    accounts: &KeyPair,
    since: OffsetDateTime,
    now: OffsetDateTime,
) -> Result<Vec<String>, InsideError> {
    let nodes = nodes(api).await?;
    let mut found: Vec<String> = nodes.iter().filter_map(|node| old_kubelet(node, pin)).collect();
    found.extend(running_pods(api).await?.iter().filter_map(|pod| older_token(pod, since, now)));
    let tokens =
        api.list("/api/v1/secrets", "fieldSelector=type=kubernetes.io/service-account-token").await?;
    let key_id = key_id(accounts);
    found.extend(tokens.iter().filter_map(|secret| old_token(secret, &key_id)));
    for name in nodes.iter().filter(|node| is_ready(node)).map(name) {
        if let Err(error) = api.get(&format!("/api/v1/nodes/{name}/proxy/healthz")).await {
            found.push(format!("an API server cannot ask the kubelet of the Node {name}: {error}"));
            // The connection may wait for this answer for ever.
            break;
        }
    }
    Ok(found)
}

async fn nodes(api: &mut TenantApi) -> Result<Vec<Value>, InsideError> {
    api.list("/api/v1/nodes", "").await
}

async fn running_pods(api: &mut TenantApi) -> Result<Vec<Value>, InsideError> {
    api.list("/api/v1/pods", "fieldSelector=status.phase=Running").await
}

/// A worker that does not say that it trusts this CA.
fn untrusting(node: &Value, pin: &str) -> Option<String> {
    let trusted = node["metadata"]["annotations"][TRUSTED_CAS].as_str().unwrap_or_default();
    let trusts = trusted.split(',').any(|trusted| trusted == pin);
    let name = name(node);
    (!trusts).then(|| format!("the worker {name} does not trust the next CA; on it: tombolo node rotate-ca"))
}

/// A worker whose kubelet does not say that this CA has issued its certificate.
fn old_kubelet(node: &Value, pin: &str) -> Option<String> {
    let is_new = node["metadata"]["annotations"][KUBELET_CA].as_str() == Some(pin);
    let name = name(node);
    (!is_new).then(|| {
        format!(
            "the kubelet of the worker {name} has a certificate of the old CA; on it: tombolo node rotate-ca"
        )
    })
}

/// A pod that has read the CAs of its cluster before.
fn older_pod(pod: &Value, since: OffsetDateTime) -> Option<String> {
    let has_ca = sources(pod).any(|source| source["configMap"]["name"] == ROOT_CA);
    let is_older = started(pod).is_some_and(|started| started < since);
    (has_ca && is_older).then(|| {
        format!(
            "the pod {} may have read the CA of the API servers before the step trust; restart it, if it asks them",
            full_name(pod)
        )
    })
}

/// A pod that may have a token of the old key.
fn older_token(pod: &Value, since: OffsetDateTime, now: OffsetDateTime) -> Option<String> {
    let tokens = sources(pod).map(|source| &source["serviceAccountToken"]).filter(|token| !token.is_null());
    let validity = tokens.map(|token| token["expirationSeconds"].as_u64().unwrap_or(TOKEN_VALIDITY)).max()?;
    let end = since + Duration::from_secs(validity).min(TOKEN_AGE_MAX);
    let is_older = started(pod).is_some_and(|started| started < since);
    (is_older && now < end).then(|| {
        let end = end.format(&Rfc3339).unwrap_or_default();
        format!("the pod {} may have a token of the old key until {end}; wait, or restart it", full_name(pod))
    })
}

/// A Secret with a token that another key has signed.
fn old_token(secret: &Value, key: &str) -> Option<String> {
    let is_old = in_secret(secret).is_some_and(|token| key_id_in(&token).as_deref() != Some(key));
    is_old.then(|| {
        let name = full_name(secret);
        if name.ends_with(&format!("/{TOKEN}")) {
            return format!("the Secret {name} has a token of the old key; run --step issue of this command again");
        }
        format!(
            "the Secret {name} has a token of the old key; make another Secret for those who use it, and delete this one"
        )
    })
}

/// The sources of a pod's projected volumes.
fn sources(pod: &Value) -> impl Iterator<Item = &Value> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.flat_map(|volume| volume["projected"]["sources"].as_array().into_iter().flatten())
}

fn started(pod: &Value) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(pod["status"]["startTime"].as_str()?, &Rfc3339).ok()
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn full_name(object: &Value) -> String {
    format!("{}/{}", object["metadata"]["namespace"].as_str().unwrap_or_default(), name(object))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD as BASE64, URL_SAFE_NO_PAD as BASE64_URL};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_worker_says_which_cas_it_trusts_and_which_one_issued_its_certificate() {
        let node =
            |key: &str, value: &str| json!({ "metadata": { "name": "w", "annotations": { key: value } } });

        assert_eq!(untrusting(&node(TRUSTED_CAS, "sha256:a,sha256:b"), "sha256:b"), None);
        assert_eq!(old_kubelet(&node(KUBELET_CA, "sha256:b"), "sha256:b"), None);
        for other in
            [node(TRUSTED_CAS, "sha256:a"), node("x", "sha256:b"), json!({ "metadata": { "name": "w" } })]
        {
            assert!(untrusting(&other, "sha256:b").unwrap().contains("the worker w "), "{other}");
            assert!(old_kubelet(&other, "sha256:b").unwrap().contains("the worker w "), "{other}");
        }
    }

    #[test]
    fn a_pod_that_is_older_than_a_step_may_have_the_old_ca_and_token() {
        let since = OffsetDateTime::parse("2026-11-28T10:00:00Z", &Rfc3339).unwrap();
        let pod = |started: &str, validity: u64| {
            json!({
                "metadata": { "name": "p", "namespace": "n" }, "status": { "startTime": started },
                "spec": { "volumes": [{ "emptyDir": {} }, { "projected": { "sources": [
                    { "serviceAccountToken": { "expirationSeconds": validity } }, { "configMap": { "name": ROOT_CA } },
                ] } }] },
            })
        };
        let (older, newer) = ("2026-11-28T09:59:59Z", "2026-11-28T10:00:01Z");

        assert!(older_pod(&pod(older, 3607), since).unwrap().contains("the pod n/p "));
        assert_eq!(older_pod(&pod(newer, 3607), since), None);
        let within = |seconds: u64| since + Duration::from_secs(seconds);
        assert!(older_token(&pod(older, 3607), since, within(3606)).is_some());
        assert_eq!(older_token(&pod(older, 3607), since, within(3608)), None);
        assert_eq!(older_token(&pod(newer, 3607), since, within(1)), None);
        assert_eq!(older_token(&pod(older, 90_000), since, within(86_401)), None);
        let without = json!({ "metadata": {}, "spec": { "volumes": [] }, "status": { "startTime": older } });
        assert_eq!(older_pod(&without, since), None);
        assert_eq!(older_token(&without, since, since), None);
    }

    #[test]
    fn a_token_of_another_key_is_found_and_an_empty_secret_is_not() {
        let secret = |data: Value| json!({ "metadata": { "name": "s", "namespace": "n" }, "data": data });
        let header = BASE64_URL.encode(r#"{"kid":"old"}"#);
        let token = json!({ "token": BASE64.encode(format!("{header}.e30.sig")) });

        assert!(old_token(&secret(token.clone()), "new").unwrap().contains("the Secret n/s "));
        assert_eq!(old_token(&secret(token), "old"), None);
        assert_eq!(old_token(&secret(json!({})), "new"), None);
    }
}
