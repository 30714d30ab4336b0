//! `tombolo node rotate-ca`: a worker takes over the CAs that its cluster has now, and gets a certificate of the newest one.
//!
//! The CAs come from the ConfigMap `cluster-info` of an API server that a CA of this machine authenticates. Pods are not touched.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use daemon::Scope;
use http::Method;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::ALL_VERSIONS;
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::{CertificateDer, UnixTime};
use serde_json::{Value, json};
use trust::Pin;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::cluster_info::{self, ClusterInfo};
use super::discovery;
use super::load_balancer::{CA, KUBELET_CREDENTIAL, certificates};
use super::machine::{self, KUBELET_KUBECONFIG};
use super::programs::ProgramError;
use super::systemd::{KUBELET_UNIT, systemctl};
use super::waiting::{self, within};
use crate::args::NodeRotateCa;
use crate::files::{self, Existing, NewFile, ReadError, WriteError};
use crate::https::HttpsConnection;
use crate::print;
use crate::runtime::{self, RuntimeError};
use crate::tls::{self, ALPN_HTTP1};
use crate::yaml;

/// The annotation of a Node with the CAs that the machine trusts, separated by commas.
pub(crate) const TRUSTED_CAS: &str = "tombolo.dev/trusted-cas";

/// The annotation of a Node with the CA that has issued kubelet's certificate.
pub(crate) const KUBELET_CA: &str = "tombolo.dev/kubelet-ca";

/// The folder of kubelet's certificates.
const CERTIFICATES: &str = "var/lib/kubelet/pki";

/// The longest wait for a certificate, which the cluster's controllers approve and sign.
const CERTIFICATE_MAX: Duration = Duration::from_secs(120);

/// The longest wait until a kubelet that was restarted takes connections.
const KUBELET_MAX: Duration = Duration::from_secs(60);

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// The machine does not have the CAs of its cluster, or no certificate of the newest one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeRotateError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("{0} has no certificate; is this machine a worker of a cluster?")]
    NoCertificate(PathBuf),
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
    #[error("the API server does not answer by {0}: {1}")]
    NoAnswer(String, String),
    #[error("the ConfigMap kube-public/cluster-info has no kubeconfig with a CA")]
    NoClusterInfo,
    #[error("the API server refuses {what} (HTTP {status})")]
    Refused {
        /// The path that was asked for.
        what: String,
        /// The status of the answer.
        status: u16,
    },
    #[error(
        "the cluster has signed no certificate of its newest CA within {} s; see: kubectl get certificatesigningrequests",
        CERTIFICATE_MAX.as_secs()
    )]
    NotSigned,
    #[error(
        "kubelet takes no connections {} s after its restart; see `journalctl --unit kubelet`, and run the command again",
        KUBELET_MAX.as_secs()
    )]
    KubeletIsAway,
    #[error("a key or a request for a certificate cannot be made")]
    Request(#[from] rcgen::Error),
    #[error("{0} is no kubeconfig")]
    NoKubeconfig(PathBuf),
    #[error("the files could not be written as YAML")]
    Yaml(#[from] serde_saphyr::SerializeError),
    #[error("{0} cannot be replaced")]
    Link(PathBuf, #[source] io::Error),
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

/// Takes over the CAs, renews kubelet's certificate if another CA has issued it, and writes both down at the Node.
///
/// # Errors
/// [`NodeRotateError`]
pub(crate) fn rotate_ca(args: &NodeRotateCa) -> Result<Vec<String>, NodeRotateError> {
    let worker = RotatedWorker::read(args)?;
    runtime::run(async |scope| {
        let info = worker.cluster_info(scope).await?;
        let has_cas = worker.take(&info)?;
        let has_certificate = worker.renew(&info, scope).await?;
        // After an interrupted run the files are new, and kubelet does not have them yet.
        if has_cas || has_certificate || !worker.has_annotated(&info, scope).await? {
            // Only the machine itself runs something. Pods stay as they are.
            if args.root == Path::new("/") {
                restart_kubelet().await?;
            }
            worker.annotate(&info, scope).await?;
        }
        let cas = info.roots.len();
        Ok(vec![
            format!("{}: {cas} of the cluster", if has_cas { "new CAs" } else { "the CAs are those" }),
            if has_certificate {
                "kubelet has a certificate of the newest CA"
            } else {
                "kubelet's certificate is of the newest CA"
            }
            .to_owned(),
        ])
    })?
}

/// This machine before anything is changed.
struct RotatedWorker<'a> {
    args: &'a NodeRotateCa,
    /// The CAs that it trusts.
    roots: Vec<CertificateDer<'static>>,
    /// The name of its Node's user, `system:node:NAME`.
    user: String,
}

impl<'a> RotatedWorker<'a> {
    fn read(args: &'a NodeRotateCa) -> Result<Self, NodeRotateError> {
        let path = args.root.join(CA);
        let roots = certificates(&files::read(&path)?);
        if roots.is_empty() {
            return Err(NodeRotateError::NoCertificate(path));
        }
        let path = args.root.join(KUBELET_CREDENTIAL);
        let user = certificates(&files::read(&path)?).first().and_then(common_name);
        Ok(Self { args, roots, user: user.ok_or(NodeRotateError::NoCertificate(path))? })
    }

    /// The cluster as an API server describes it that a CA of this machine authenticates.
    async fn cluster_info(&self, scope: &Scope) -> Result<ClusterInfo, NodeRotateError> {
        let config = tls::client(self.roots.clone(), None, ALL_VERSIONS, ALPN_HTTP1)?;
        let server = &self.args.api_server;
        let no_answer =
            |error: &dyn std::fmt::Display| NodeRotateError::NoAnswer(server.clone(), error.to_string());
        let mut connection =
            discovery::connect(server, config, None, scope).await.map_err(|error| no_answer(&error))?;
        let answer = connection.send(Method::GET, cluster_info::PATH, None).await;
        let answer = answer.map_err(|error| no_answer(&error))?;
        if answer.status != 200 {
            return Err(NodeRotateError::Refused {
                what: cluster_info::PATH.to_owned(),
                status: answer.status,
            });
        }
        let map: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let info = cluster_info::of_authenticated(&map).filter(|info| !info.roots.is_empty());
        info.ok_or(NodeRotateError::NoClusterInfo)
    }

    /// Writes the CAs for kubelet and node-lb. Returns false if they are there already.
    fn take(&self, info: &ClusterInfo) -> Result<bool, NodeRotateError> {
        let kubeconfig = self.args.root.join(KUBELET_KUBECONFIG);
        let with_cas = with_cas(&files::read(&kubeconfig)?, &info.ca_pem)
            .map_err(|()| NodeRotateError::NoKubeconfig(kubeconfig.clone()))?;
        let mut all = Vec::new();
        if let Some(changed) = with_cas {
            all.push(NewFile::private(kubeconfig, yaml::document(&changed)? + "\n"));
        }
        if self.roots != info.roots {
            all.push(NewFile::public(self.args.root.join(CA), info.ca_pem.clone()));
        }
        let is_new = !all.is_empty();
        files::write_all(all, Existing::Replace)?;
        Ok(is_new)
    }

    /// Gets a certificate of the newest CA, which stands first. Returns false if kubelet has one.
    async fn renew(&self, info: &ClusterInfo, scope: &Scope) -> Result<bool, NodeRotateError> {
        let current = self.args.root.join(KUBELET_CREDENTIAL);
        let newest = info.roots.first().ok_or(NodeRotateError::NoClusterInfo)?;
        let has_newest = |pem: &str| certificates(pem).first().is_some_and(|leaf| has_issued(newest, leaf));
        if has_newest(&files::read(&current)?) {
            return Ok(false);
        }
        print::note("asking the cluster for a certificate of its newest CA")?;
        let key = KeyPair::generate()?;
        let mut api = self.connect(info, scope).await?;
        let request = signing_request(&self.user, &key)?;
        let made = send(&mut api, Method::POST, REQUESTS, Some(&request)).await?;
        let path = format!("{REQUESTS}/{}", made["metadata"]["name"].as_str().unwrap_or_default());
        let certificate = within(CERTIFICATE_MAX, async || {
            let seen = match send(&mut api, Method::GET, &path, None).await {
                Ok(seen) => seen,
                Err(error) => return Some(Err(error)),
            };
            let pem = BASE64.decode(seen["status"]["certificate"].as_str()?).ok()?;
            String::from_utf8(pem).ok().map(Ok)
        });
        let certificate = certificate.await.ok_or(NodeRotateError::NotSigned)??;
        if !has_newest(&certificate) {
            return Err(NodeRotateError::NotSigned);
        }
        let name = format!("kubelet-client-{}.pem", seconds(SystemTime::now()));
        let file = self.args.root.join(CERTIFICATES).join(&name);
        let both = format!("{certificate}{}", key.serialize_pem());
        files::write_all(vec![NewFile::private(file, both)], Existing::Replace)?;
        link(&name, &current).map_err(|error| NodeRotateError::Link(current, error))?;
        Ok(true)
    }

    /// Says at the Node what the machine trusts now, for `tombolo tenant certificates rotate-ca`.
    async fn annotate(&self, info: &ClusterInfo, scope: &Scope) -> Result<(), NodeRotateError> {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": self.node(), "annotations": annotations(info) },
        });
        let path = format!("/api/v1/nodes/{}?fieldManager=tombolo-node&force=true", self.node());
        let mut api = self.connect(info, scope).await?;
        send(&mut api, Method::PATCH, &path, Some(&node)).await.map(drop)
    }

    /// Returns true if the Node says so already.
    async fn has_annotated(&self, info: &ClusterInfo, scope: &Scope) -> Result<bool, NodeRotateError> {
        let mut api = self.connect(info, scope).await?;
        let node = send(&mut api, Method::GET, &format!("/api/v1/nodes/{}", self.node()), None).await?;
        let expected = annotations(info);
        Ok([TRUSTED_CAS, KUBELET_CA].iter().all(|key| node["metadata"]["annotations"][key] == expected[key]))
    }

    fn node(&self) -> &str {
        self.user.trim_start_matches("system:node:")
    }

    /// Connects with kubelet's certificate as it is now.
    async fn connect(&self, info: &ClusterInfo, scope: &Scope) -> Result<HttpsConnection, NodeRotateError> {
        let RotatedWorker { args: NodeRotateCa { api_server, root }, .. } = self;
        let connected = waiting::connect(root, api_server, info, scope).await;
        connected.map_err(|error| NodeRotateError::NoAnswer(api_server.clone(), error.to_string()))
    }
}

/// Restarts kubelet, and returns once API servers reach it again.
async fn restart_kubelet() -> Result<(), NodeRotateError> {
    systemctl(&["restart", KUBELET_UNIT])?;
    let listens = within(KUBELET_MAX, async || machine::kubelet_listens().then_some(()));
    listens.await.ok_or(NodeRotateError::KubeletIsAway)
}

fn annotations(info: &ClusterInfo) -> Value {
    let pins: Vec<String> = info.roots.iter().filter_map(Pin::of_ca).map(|pin| pin.to_string()).collect();
    json!({ TRUSTED_CAS: pins.join(","), KUBELET_CA: pins.first() })
}

async fn send(
    api: &mut HttpsConnection,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, NodeRotateError> {
    let answer = api.send(method, path, body.map(Value::to_string)).await;
    let answer = answer.map_err(|error| NodeRotateError::NoAnswer(path.to_owned(), error.to_string()))?;
    if !(200..300).contains(&answer.status) {
        return Err(NodeRotateError::Refused { what: path.to_owned(), status: answer.status });
    }
    Ok(serde_json::from_slice(&answer.body).unwrap_or_default())
}

/// The request of a kubelet, which the cluster approves by itself because kubelet may renew its own certificate.
fn signing_request(user: &str, key: &KeyPair) -> Result<Value, rcgen::Error> {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, "system:nodes");
    subject.push(DnType::CommonName, user);
    params.distinguished_name = subject;
    let pem = params.serialize_request(key)?.pem()?;
    Ok(json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": { "generateName": "csr-" },
        "spec": {
            "request": BASE64.encode(pem),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
        },
    }))
}

/// The kubeconfig with other CAs, if it has CAs in itself, as kubeadm writes it. `None` if it names their file, or has them already.
fn with_cas(kubeconfig: &str, ca_pem: &str) -> Result<Option<Value>, ()> {
    let mut parsed: Value = serde_saphyr::from_str(kubeconfig).map_err(drop)?;
    let data = BASE64.encode(ca_pem);
    let mut is_changed = false;
    let clusters = parsed.get_mut("clusters").and_then(Value::as_array_mut);
    for entry in clusters.ok_or(())? {
        let cluster = entry.get_mut("cluster");
        let Some(present) = cluster.and_then(|cluster| cluster.get_mut("certificate-authority-data")) else {
            continue;
        };
        if *present != Value::String(data.clone()) {
            *present = Value::String(data.clone());
            is_changed = true;
        }
    }
    Ok(is_changed.then_some(parsed))
}

/// Returns true if this CA has signed the certificate.
fn has_issued(ca: &CertificateDer<'static>, leaf: &CertificateDer<'_>) -> bool {
    let mut roots = RootCertStore::empty();
    if roots.add(ca.clone()).is_err() {
        return false;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), transport::tls::provider());
    verifier.build().is_ok_and(|verifier| verifier.verify_client_cert(leaf, &[], UnixTime::now()).is_ok())
}

fn common_name(leaf: &CertificateDer<'static>) -> Option<String> {
    let (_, parsed) = X509Certificate::from_der(leaf).ok()?;
    parsed.subject().iter_common_name().next()?.as_str().ok().map(str::to_owned)
}

/// Puts a link in the place of another one, which is there at every moment.
fn link(target: &str, path: &Path) -> io::Result<()> {
    let new = path.with_extension("new");
    if new.symlink_metadata().is_ok() {
        fs::remove_file(&new)?;
    }
    symlink(target, &new)?;
    fs::rename(new, path)
}

fn seconds(now: SystemTime) -> u64 {
    now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, ExtendedKeyUsagePurpose, IsCa, Issuer};

    use super::*;

    /// Both have the same name, so only the signature tells them apart.
    #[test]
    fn the_issuer_of_a_certificate_is_known_by_its_signature() {
        let ca = || {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().unwrap();
            let certificate = params.self_signed(&key).unwrap().der().clone();
            (Issuer::new(params, key), certificate)
        };
        let ((issuer, ca), (_, other)) = (ca(), ca());
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.distinguished_name.push(DnType::CommonName, "system:node:w");
        let leaf = params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().der().clone();

        assert!(has_issued(&ca, &leaf));
        assert!(!has_issued(&other, &leaf));
        assert_eq!(common_name(&leaf), Some("system:node:w".to_owned()));
    }

    #[test]
    fn only_a_kubeconfig_with_cas_in_itself_is_changed() {
        let text = |key: &str, value: &str| {
            format!(
                "clusters:\n- name: c\n  cluster:\n    server: https://a\n    {key}: {value}\nusers: []\n"
            )
        };
        let (old, new) = (BASE64.encode("OLD"), BASE64.encode("NEW"));

        let changed = with_cas(&text("certificate-authority-data", &old), "NEW").unwrap().unwrap();

        assert_eq!(changed["clusters"][0]["cluster"]["certificate-authority-data"], new);
        assert_eq!(changed["clusters"][0]["cluster"]["server"], "https://a");
        assert_eq!(with_cas(&text("certificate-authority-data", &new), "NEW"), Ok(None));
        assert_eq!(with_cas(&text("certificate-authority", "/etc/ca.crt"), "NEW"), Ok(None));
        assert_eq!(with_cas("[]", "NEW"), Err(()));
    }

    #[test]
    fn a_link_is_replaced_and_its_target_is_in_the_same_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("current.pem");
        for target in ["a.pem", "b.pem"] {
            fs::write(folder.path().join(target), target).unwrap();
            link(target, &path).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), target);
        }
    }
}
