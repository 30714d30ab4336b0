//! The certificates of a control plane, as its ports show them and as its Secrets have them for clients, and its processes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tests::dial::dial;
use tests::host_cluster::tenant::Tenant;
use tests::host_cluster::{HostCluster, HostNode};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The ports of a control plane that show a certificate of its CAs, by their places in the block, with the file of the CA in `tenant-roots`.
pub const PORTS: [(u16, &str); 5] =
    [(0, "ca.crt"), (3, "etcd-ca.crt"), (4, "etcd-ca.crt"), (6, "etcd-ca.crt"), (7, "etcd-ca.crt")];

/// The Secrets of the parts.
const SECRETS: [&str; 5] = ["apiserver", "controller-manager", "scheduler", "etcd-data", "etcd-event"];

/// The certificates and processes of a control plane at one moment.
pub struct ControlPlane {
    /// The serial number at each node and port.
    shown: BTreeMap<String, String>,
    /// The serial number in each file of the Secrets that is no CA.
    in_secrets: BTreeMap<String, String>,
    /// The pods of all parts.
    pods: BTreeSet<String>,
}

impl ControlPlane {
    /// Reads all of it at once.
    pub async fn read(host: &HostCluster, tenant: &Tenant) -> Self {
        let roots = host.secret(&tenant.name, "tenant-roots").await;
        let base = tenant.port(host).await;
        let mut shown = BTreeMap::new();
        for node in &host.nodes {
            for (offset, ca) in PORTS {
                let serial = shown_at(node, base + offset, &roots[ca]).await;
                shown.insert(
                    format!("{} +{offset}", node.name),
                    serial.unwrap_or_else(|error| panic!("{error}")),
                );
            }
        }
        let mut in_secrets = BTreeMap::new();
        let mut pods = BTreeSet::new();
        for part in SECRETS {
            for (file, text) in host.secret(&tenant.name, part).await {
                in_secrets.extend(serial_in(&file, &text).map(|serial| (format!("{part}/{file}"), serial)));
            }
            pods.extend(tenant.restarts(host, part).await.into_keys());
        }
        Self { shown, in_secrets, pods }
    }
}

/// Nothing of before is there afterwards.
pub fn replaced_everywhere(before: &ControlPlane, after: &ControlPlane) {
    for (before, after) in [(&before.shown, &after.shown), (&before.in_secrets, &after.in_secrets)] {
        assert!(before.len() >= SECRETS.len(), "{before:?}");
        assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
        let old: BTreeSet<&String> = before.values().collect();
        for (place, serial) in after {
            assert!(!old.contains(serial), "{place} has a certificate of before");
        }
    }
    let kept: Vec<_> = before.pods.intersection(&after.pods).collect();
    assert!(kept.is_empty() && before.pods.len() == after.pods.len(), "{kept:?}");
}

/// The serial number of the certificate at this port of a node, to a client that trusts these CAs alone.
pub async fn shown_at(node: &HostNode, port: u16, ca_pem: &str) -> Result<String, String> {
    let ca_pem = ca_pem.to_owned();
    let dialed = async move {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let tls = dial(address, &ca_pem, &[], None).await.map_err(|error| error.to_string())?;
        let chain = tls.get_ref().1.peer_certificates().unwrap_or_default();
        Ok(serial(chain.first().expect("a server shows one")))
    };
    let shown = node.inside.run(dialed).await;
    shown.map_err(|error: String| format!("{} port {port}: {error}", node.name))
}

/// The serial number of the certificate in a file; nothing if it has none, or that of a CA.
fn serial_in(file: &str, text: &str) -> Option<String> {
    if file.ends_with("ca.crt") || file == "signing.crt" {
        return None;
    }
    let pem = match text.split_once("client-certificate-data: ") {
        Some((_, rest)) => STANDARD.decode(rest.lines().next()?.trim().trim_matches('"')).ok()?,
        None => text.as_bytes().to_vec(),
    };
    Some(serial(&CertificateDer::from_pem_slice(&pem).ok()?))
}

fn serial(certificate: &CertificateDer<'_>) -> String {
    let (_, parsed) = X509Certificate::from_der(certificate).expect("a certificate");
    parsed.raw_serial_as_string()
}
