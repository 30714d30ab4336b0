//! The ConfigMap `cluster-info`, by which a machine without any credential learns the CA of its cluster (kubeadm's discovery).
//!
//! Anybody can read it, and anybody could send another one. So it counts only if it is signed with the token's secret, and if the CA
//! in it has the hash that the machine was given.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64_URL;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde::Deserialize;
use serde_json::Value;
use trust::Pin;

use crate::kubeconfig::reader::{self, Kubeconfig};
use crate::names::BootstrapToken;

/// The path of the ConfigMap, which needs no credential.
pub(super) const PATH: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";

/// The key of the kubeconfig in it.
const KUBECONFIG: &str = "kubeconfig";

/// The cluster as the ConfigMap describes it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClusterInfo {
    /// The CA of the cluster, PEM.
    pub(super) ca_pem: String,
    /// The certificates of that CA.
    pub(super) roots: Vec<CertificateDer<'static>>,
    /// The URL of the API server for those that join by kubeadm.
    pub(super) server: String,
}

/// The reason why a ConfigMap is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClusterInfoError {
    #[error(
        "the cluster does not know the token {0}; it has expired, or is another cluster's. Make another one: tombolo node join-command"
    )]
    NotSigned(String),
    #[error(
        "what the API server says of the cluster is not signed with the token {0}: the API server is not the right one, or the token is not"
    )]
    WrongSignature(String),
    #[error(
        "the cluster's CA is {found}, and the command names another one: use the command of the right cluster, and see who answers there"
    )]
    OtherCa {
        /// The hash of the CA that the API server sent.
        found: String,
    },
    #[error(
        "the ConfigMap kube-public/cluster-info has no kubeconfig with a CA; `kubeadm init phase bootstrap-token` makes it"
    )]
    Incomplete,
}

/// The header of a signature, RFC 7515.
#[derive(Deserialize)]
struct JwsHeader {
    alg: String,
    kid: Option<String>,
}

/// Reads the ConfigMap, and verifies its signature and its CA.
///
/// # Errors
/// Every variant of [`ClusterInfoError`].
pub(super) fn verify(
    config_map: &Value,
    token: &BootstrapToken,
    expected: &Pin,
) -> Result<ClusterInfo, ClusterInfoError> {
    let id = || token.id().to_owned();
    let text = config_map["data"][KUBECONFIG].as_str().ok_or(ClusterInfoError::Incomplete)?;
    let signature = config_map["data"][format!("jws-{KUBECONFIG}-{}", token.id())].as_str();
    let signature = signature.ok_or_else(|| ClusterInfoError::NotSigned(id()))?;
    if !is_signed(text, signature, token) {
        return Err(ClusterInfoError::WrongSignature(id()));
    }
    let info = parse(text).ok_or(ClusterInfoError::Incomplete)?;
    let found: Vec<Pin> = info.roots.iter().filter_map(Pin::of_ca).collect();
    if found.contains(expected) {
        Ok(info)
    } else {
        let found: Vec<String> = found.iter().map(Pin::to_string).collect();
        Err(ClusterInfoError::OtherCa { found: found.join(", ") })
    }
}

/// The server that those get who join by kubeadm; `None` if there is no such ConfigMap or it is incomplete.
pub(super) fn server(config_map: &Value) -> Option<String> {
    parse(config_map["data"][KUBECONFIG].as_str()?).map(|info| info.server)
}

/// The cluster as an API server describes it that was authenticated otherwise. `None` if the ConfigMap is incomplete.
pub(super) fn of_authenticated(config_map: &Value) -> Option<ClusterInfo> {
    parse(config_map["data"][KUBECONFIG].as_str()?)
}

fn parse(kubeconfig: &str) -> Option<ClusterInfo> {
    let kubeconfig = Kubeconfig::parse(kubeconfig).ok()?;
    let cluster = kubeconfig.first_cluster()?;
    let ca = reader::decode_data(cluster.certificate_authority_data.as_deref()?)?;
    let roots = CertificateDer::pem_slice_iter(&ca).flatten().collect();
    Some(ClusterInfo { ca_pem: String::from_utf8(ca).ok()?, roots, server: cluster.server.clone() })
}

/// Returns true if the detached signature is of this text and with this token.
fn is_signed(text: &str, signature: &str, token: &BootstrapToken) -> bool {
    let Some((header, signature)) = signature.split_once("..") else { return false };
    let parsed =
        BASE64_URL.decode(header).ok().and_then(|bytes| serde_json::from_slice::<JwsHeader>(&bytes).ok());
    let is_ours =
        parsed.is_some_and(|parsed| parsed.alg == "HS256" && parsed.kid.as_deref() == Some(token.id()));
    let Ok(signature) = BASE64_URL.decode(signature) else { return false };
    let key = hmac::Key::new(hmac::HMAC_SHA256, token.secret().as_bytes());
    let signed = format!("{header}.{}", BASE64_URL.encode(text));
    is_ours && hmac::verify(&key, signed.as_bytes(), &signature).is_ok()
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_signed_with_the_token_and_has_the_ca_is_used_and_nothing_else() {
        let token: BootstrapToken = "abcdef.0123456789abcdef".parse().unwrap();
        let (ca_pem, hash) = ca();
        let text = kubeconfig(&ca_pem);
        let signed = |with: &str| sign(&text, &with.parse().unwrap());
        let map =
            |signature: &str| json!({ "data": { "kubeconfig": text, "jws-kubeconfig-abcdef": signature } });

        let good = verify(&map(&signed("abcdef.0123456789abcdef")), &token, &hash);
        let roots = vec![CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap()];
        assert_eq!(good, Ok(ClusterInfo { ca_pem, roots, server: "https://127.0.0.1:7443".to_owned() }));

        let wrong = verify(&map(&signed("abcdef.9999999999999999")), &token, &hash);
        assert_eq!(wrong, Err(ClusterInfoError::WrongSignature("abcdef".to_owned())));
        let other_token = verify(&map(&signed("fedcba.0123456789abcdef")), &token, &hash);
        assert_eq!(other_token, Err(ClusterInfoError::WrongSignature("abcdef".to_owned())));
        let unsigned = verify(&json!({ "data": { "kubeconfig": text } }), &token, &hash);
        assert_eq!(unsigned, Err(ClusterInfoError::NotSigned("abcdef".to_owned())));
        let other_ca = verify(&map(&signed("abcdef.0123456789abcdef")), &token, &ca().1);
        assert_eq!(other_ca, Err(ClusterInfoError::OtherCa { found: hash.to_string() }));
        assert_eq!(verify(&json!({}), &token, &hash), Err(ClusterInfoError::Incomplete));
    }

    fn ca() -> (String, Pin) {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        (certificate.pem(), Pin::of_ca(certificate.der()).unwrap())
    }

    fn kubeconfig(ca_pem: &str) -> String {
        let data = base64::engine::general_purpose::STANDARD.encode(ca_pem);
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster:\n    certificate-authority-data: {data}\n    \
             server: https://127.0.0.1:7443\n"
        )
    }

    fn sign(text: &str, token: &BootstrapToken) -> String {
        let header = BASE64_URL.encode(format!("{{\"alg\":\"HS256\",\"kid\":\"{}\"}}", token.id()));
        let key = hmac::Key::new(hmac::HMAC_SHA256, token.secret().as_bytes());
        let tag = hmac::sign(&key, format!("{header}.{}", BASE64_URL.encode(text)).as_bytes());
        format!("{header}..{}", BASE64_URL.encode(tag.as_ref()))
    }
}
