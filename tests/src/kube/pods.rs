//! Pods of an edge cluster as its API server knows them, and the tokens that a kubelet would mount into them.

use std::fs;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::KeyPair;
use serde_json::{Value, json};

use super::account::{ACCOUNT, NAMESPACE};
use super::{ClusterError, EdgeCluster, files};

/// A pod that waits for a node, although there is none. The API server issues tokens for it all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// The `metadata.name` of the pod.
    pub name: String,
    /// The `metadata.uid` of the pod.
    pub uid: String,
    /// The ServiceAccount of the pod.
    pub account: String,
}

impl EdgeCluster {
    /// Makes a pod of the agent's ServiceAccount.
    pub async fn create_pod(&self, name: &str) -> Pod {
        self.create_pod_of(ACCOUNT, name).await
    }

    /// Makes a pod of another ServiceAccount of the agent's namespace.
    pub async fn create_pod_of(&self, account: &str, name: &str) -> Pod {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": NAMESPACE },
            "spec": { "serviceAccountName": account, "containers": [{ "name": "agent", "image": "agent" }] },
        });
        let path = self.directory().join(format!("{name}.json"));
        fs::write(&path, pod.to_string()).expect("a file can be written");
        let words = ["create", "-f", path.to_str().expect("a path"), "-o", "jsonpath={.metadata.uid}"];
        let uid = self.admin().stdout(&words).await;
        Pod { name: name.to_owned(), uid, account: account.to_owned() }
    }

    /// A token of the pod, by TokenRequest, as a projected volume of 10 minutes has it.
    pub async fn pod_token(&self, pod: &Pod, audience: &str) -> String {
        let (audience, name) =
            (format!("--audience={audience}"), format!("--bound-object-name={}", pod.name));
        let uid = format!("--bound-object-uid={}", pod.uid);
        let bound = ["--bound-object-kind=Pod", name.as_str(), uid.as_str()];
        self.account_token(&pod.account, &[[audience.as_str()].as_slice(), &bound].concat()).await
    }

    /// A token of a ServiceAccount, with further words for `kubectl create token`.
    pub async fn account_token(&self, account: &str, more: &[&str]) -> String {
        let words = ["create", "token", account, "-n", NAMESPACE, "--duration=10m"];
        self.admin().stdout(&[words.as_slice(), more].concat()).await.trim().to_owned()
    }

    /// The same token with claims of ours, signed by the key with which the API server signs now.
    pub fn signed_again(&self, token: &str, change: impl FnOnce(&mut Value)) -> String {
        let mut parts = token.split('.');
        let (header, claims) = (parts.next().expect("a header"), parts.next().expect("claims"));
        let decoded = URL_SAFE_NO_PAD.decode(claims).expect("base64url");
        let mut claims: Value = serde_json::from_slice(&decoded).expect("JSON");
        change(&mut claims);
        let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
        let pem = fs::read_to_string(self.files.path(files::ACCOUNT_KEY)).expect("the key");
        let key = KeyPair::from_pem(&pem).expect("a key").serialize_der();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key).expect("a key of P-256");
        let signature = key.sign(&SystemRandom::new(), signed.as_bytes()).expect("a key signs");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    /// The same token as if it had been issued so many seconds later.
    pub fn issued_later(&self, token: &str, seconds: u64) -> String {
        self.signed_again(token, |claims| {
            for name in ["iat", "nbf", "exp"] {
                claims[name] = json!(claims[name].as_u64().expect("a time") + seconds);
            }
        })
    }

    /// Lets the API server sign with a new key, and know the old one for as long as `overlaps`; it is started
    /// again.
    pub async fn replace_account_key(&mut self, overlaps: bool) -> Result<(), ClusterError> {
        let key = KeyPair::generate().expect("a key can be made");
        let public = self.files.path(files::ACCOUNT_PUBLIC_KEY);
        let old = if overlaps { fs::read_to_string(&public).expect("the old key") } else { String::new() };
        let write = |path, text: String| fs::write(path, text).map_err(ClusterError::Files);
        write(public, format!("{}{old}", key.public_key_pem()))?;
        write(self.files.path(files::ACCOUNT_KEY), key.serialize_pem())?;
        self.restart_apiserver().await
    }
}
