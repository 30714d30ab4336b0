//! Clusters whose API servers sign tokens of their pods.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proto::enrollment as sent;
use serde_json::{Value, json};

/// The same at every cluster, as kubeadm has it.
pub(super) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// One of them, at one moment.
pub(super) struct Cluster {
    key: EcdsaKeyPair,
    /// What it calls its key.
    name: &'static str,
    /// When its tokens are issued, in seconds since 1970.
    at: u64,
}

impl Cluster {
    pub(super) fn new(name: &'static str, at: u64) -> Self {
        Self { key: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap(), name, at }
    }

    pub(super) fn keys(&self) -> Vec<u8> {
        keys(&[self])
    }

    /// What comes along with an agent's first token.
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
        let header = json!({ "alg": "ES256", "kid": self.name });
        let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let signed = format!("{header}.{claims}");
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }
}

/// The JSON Web Key Set of them all.
pub(super) fn keys(clusters: &[&Cluster]) -> Vec<u8> {
    let jwk = |Cluster { key, name, .. }: &Cluster| {
        let (x, y) = key.public_key().as_ref()[1..].split_at(32);
        let [x, y] = [x, y].map(|half| URL_SAFE_NO_PAD.encode(half));
        json!({ "kty": "EC", "crv": "P-256", "kid": name, "x": x, "y": y })
    };
    let keys: Vec<Value> = clusters.iter().map(|cluster| jwk(cluster)).collect();
    json!({ "keys": keys }).to_string().into_bytes()
}
