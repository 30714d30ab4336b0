//! The files of one cluster: keys, certificates, kubeconfigs and the audit policy, in a folder of its own.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use super::ClusterOptions;
use super::kubeconfig::{Credential, Kubeconfig};
use crate::pki::{Authority, Issued};
use crate::scratch::Scratch;

pub(super) const CA: &str = "ca.crt";
pub(super) const CA_KEY: &str = "ca.key";
pub(super) const SERVER_CERTIFICATE: &str = "apiserver.crt";
pub(super) const SERVER_KEY: &str = "apiserver.key";
pub(super) const ACCOUNT_KEY: &str = "sa.key";
pub(super) const ACCOUNT_PUBLIC_KEY: &str = "sa.pub";
pub(super) const FRONT_PROXY_CA: &str = "front-proxy-ca.crt";
pub(super) const FRONT_PROXY_CERTIFICATE: &str = "front-proxy.crt";
pub(super) const FRONT_PROXY_KEY: &str = "front-proxy.key";
pub(super) const FRONT_PROXY_NAME: &str = "front-proxy-client";
pub(super) const KUBELET_CLIENT_CERTIFICATE: &str = "kubelet-client.crt";
pub(super) const KUBELET_CLIENT_KEY: &str = "kubelet-client.key";
pub(super) const ADMIN_KUBECONFIG: &str = "admin.conf";
pub(super) const AUDIT_POLICY: &str = "audit-policy.yaml";
pub(super) const AUDIT_LOG: &str = "audit.log";

const PREFIX: &str = "tombolo-edge-";

/// The first address of the Service range: what pods know the API server by.
const SERVICE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
const SERVICE_NAMES: [&str; 5] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

// What the API server asks itself is noise; everything else is kept, without bodies, once when a long answer
// begins and once at the end of every answer.
const POLICY: &str = r#"apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: ["system:apiserver"]
- level: Metadata
"#;

#[derive(Debug)]
pub(super) struct Files {
    directory: Scratch,
    pub(super) authority: Authority,
    pub(super) front_proxy: Issued,
}

impl Files {
    pub(super) fn write(options: &ClusterOptions, port: u16) -> io::Result<Self> {
        let directory = Scratch::new(PREFIX)?;

        let authority = Authority::new("kubernetes");
        let front_proxy_authority = Authority::new("front-proxy-ca");
        let front_proxy = front_proxy_authority.issue_user(FRONT_PROXY_NAME, &[]);
        let addresses =
            [options.address, options.advertise, IpAddr::from(Ipv4Addr::LOCALHOST), SERVICE_ADDRESS.into()];
        let names = [&SERVICE_NAMES, options.server_names].concat();
        let server = authority.issue_server(&names, &addresses);
        // As whom the API server comes to kubelets.
        let kubelet_client = authority.issue_user("kube-apiserver-kubelet-client", &["system:masters"]);
        let account_key = rcgen::KeyPair::generate().map_err(io::Error::other)?;
        let files = Self { directory, authority, front_proxy };

        for (name, text) in [
            (CA, files.authority.certificate_pem()),
            (CA_KEY, &files.authority.key_pem()),
            (SERVER_CERTIFICATE, &server.certificate_pem),
            (SERVER_KEY, &server.key_pem),
            (ACCOUNT_KEY, &account_key.serialize_pem()),
            (ACCOUNT_PUBLIC_KEY, &account_key.public_key_pem()),
            (FRONT_PROXY_CA, front_proxy_authority.certificate_pem()),
            (FRONT_PROXY_CERTIFICATE, &files.front_proxy.certificate_pem),
            (FRONT_PROXY_KEY, &files.front_proxy.key_pem),
            (KUBELET_CLIENT_CERTIFICATE, &kubelet_client.certificate_pem),
            (KUBELET_CLIENT_KEY, &kubelet_client.key_pem),
            (AUDIT_POLICY, POLICY),
        ] {
            fs::write(files.path(name), text)?;
        }
        let admin =
            Credential::Certificate(files.authority.issue_user("kubernetes-admin", &["system:masters"]));
        let server = format!("https://{}", std::net::SocketAddr::new(options.address, port));
        Kubeconfig { server: &server, ca_pem: files.authority.certificate_pem(), credential: &admin }
            .write(&files.path(ADMIN_KUBECONFIG))?;
        Ok(files)
    }

    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}
