//! Test doubles of clusters whose API servers sign tokens of their pods.

use proto::enrollment as sent;
use serde_json::json;

use crate::identity::oidc::test_signer::{TokenSigner, key_set};

/// The issuer, which is the same at every cluster of kubeadm.
pub(super) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// The API server of a cluster at one time.
pub(super) struct TestCluster {
    signer: TokenSigner,
    /// The time of issue of its tokens, in seconds since 1970.
    at: u64,
}

impl TestCluster {
    /// A cluster with a new key of this name.
    pub(super) fn new(name: &'static str, at: u64) -> Self {
        Self { signer: TokenSigner::new(name), at }
    }

    pub(super) fn keys(&self) -> Vec<u8> {
        keys(&[self])
    }

    /// The workload that an agent sends along with its first token.
    pub(super) fn sent(&self, account: &str, uid: &str) -> sent::Workload {
        sent::Workload {
            service_account_token: self.token(account, uid),
            issuer: ISSUER.to_owned(),
            issuer_keys: self.keys(),
        }
    }

    pub(super) fn token(&self, account: &str, uid: &str) -> String {
        self.token_in("tombolo", account, uid)
    }

    pub(super) fn token_in(&self, namespace: &str, account: &str, uid: &str) -> String {
        self.token_of("0e", namespace, account, uid)
    }

    /// The token of the pod with this UID.
    pub(super) fn token_of(&self, pod_uid: &str, namespace: &str, account: &str, uid: &str) -> String {
        let claims = json!({
            "aud": ["tombolo:tombolo:edge-a"], "exp": self.at + 600, "iat": self.at, "iss": ISSUER,
            "kubernetes.io": {
                "namespace": namespace,
                "pod": { "name": "pod", "uid": pod_uid },
                "serviceaccount": { "name": account, "uid": uid },
            },
            "sub": format!("system:serviceaccount:{namespace}:{account}"),
        });
        self.signer.token("ES256", &claims)
    }
}

/// The JSON Web Key Set of all these clusters.
pub(super) fn keys(clusters: &[&TestCluster]) -> Vec<u8> {
    let signers: Vec<&TokenSigner> = clusters.iter().map(|cluster| &cluster.signer).collect();
    key_set(&signers).into_bytes()
}
