//! All CAs and the key of ServiceAccounts are replaced in steps under traffic, and then nothing knows the old ones any more.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::json;
use tests::dial::dial;
use tests::host_cluster::tenant::{Tenant, status_for};
use tests::host_cluster::{HostCluster, HostNode};
use tests::lb_cluster::command::Ended;
use tests::pki::Issued;
use tests::skip::skip;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use trust::Pin;

use super::TENANT;
use super::replaced::{ControlPlane, PORTS, replaced_everywhere, shown_at};
use super::site::Site;

/// The Secret of a robot with a token that nobody exchanges.
const ROBOT: &str = "robot";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: all pods of a control plane are replaced four times, ten minutes"]
async fn all_cas_are_replaced_and_no_request_fails() {
    const NAME: &str = "all_cas_are_replaced_and_no_request_fails";
    let mut host = match HostCluster::start().await {
        Ok(host) => host,
        Err(error) => return skip(NAME, &error.to_string()),
    };
    host.label_nodes().await;
    let tenant = Tenant::create(&host, TENANT, &[]).await;
    tenant.add_paper_node().await;
    let site = Site::start(&mut host, &tenant).await;
    let old = Old::read(&host, &tenant).await;
    let before = ControlPlane::read(&host, &tenant).await;

    refused(&host, &["issue"], "begin with --step trust").await;
    interrupted(&host).await;
    refused(&host, &["issue", "--yes", TENANT], "the step trust is not complete").await;
    step(&host, &tenant, &site, &["trust"]).await;
    refused(&host, &["finish", "--yes", TENANT], "run --step issue first").await;
    let said = refused(&host, &["issue", "--yes", TENANT], "the worker paper does not trust").await;
    assert!(said.contains("nothing was changed"), "{said}");
    let next = host.secret(TENANT, "tenant-roots").await["next-ca.crt"].clone();
    annotate(&tenant, &format!("tombolo.dev/trusted-cas={},{}", pin(&old.roots["ca.crt"]), pin(&next))).await;
    step(&host, &tenant, &site, &["issue", "--yes", TENANT]).await;
    tenant.schedules("issued").await;
    assert_ne!(status_with_token(&host, &tenant, &old.token).await, "401", "the old key still counts");
    let said = refused(&host, &["finish", "--yes", TENANT], "the kubelet of the worker paper has").await;
    assert!(said.contains(&format!("the Secret default/{ROBOT} has a token of the old key")), "{said}");
    annotate(&tenant, &format!("tombolo.dev/kubelet-ca={}", pin(&next))).await;
    tenant.admin.stdout(&["delete", "secret", ROBOT]).await;
    refused(&host, &["finish"], "there is no terminal on which to ask").await;
    step(&host, &tenant, &site, &["finish", "--yes", TENANT]).await;

    tenant.schedules("finished").await;
    replaced_everywhere(&before, &ControlPlane::read(&host, &tenant).await);
    nothing_is_left(&host, &tenant, &old).await;
    nobody_takes_the_old_ones(&host, &tenant, &old).await;
}

/// The CAs before the exchange, and what they and the old key have issued.
struct Old {
    roots: BTreeMap<String, String>,
    api_server: BTreeMap<String, String>,
    peer: Issued,
    ca_pem: String,
    administrator: Issued,
    token: String,
}

impl Old {
    async fn read(host: &HostCluster, tenant: &Tenant) -> Self {
        let (ca_pem, administrator) = tenant.administrator().await;
        let robot = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": { "name": ROBOT, "annotations": { "kubernetes.io/service-account.name": "default" } },
        });
        tenant.apply(ROBOT, &robot).await;
        let etcd = host.secret(&tenant.name, "etcd-data").await;
        Self {
            roots: host.secret(&tenant.name, "tenant-roots").await,
            api_server: host.secret(&tenant.name, "apiserver").await,
            peer: Issued { certificate_pem: etcd["peer.crt"].clone(), key_pem: etcd["peer.key"].clone() },
            ca_pem,
            administrator,
            token: tenant
                .admin
                .stdout(&["create", "token", "default", "--duration=24h"])
                .await
                .trim()
                .to_owned(),
        }
    }
}

/// Takes a step while callers are at work, who begin with the kubeconfig of before the step. Then the machine and the administrator take
/// what the step has brought.
async fn step(host: &HostCluster, tenant: &Tenant, site: &Site, words: &[&str]) {
    let callers = site.callers(tenant).await;
    let ended = rotate(host, words).await;
    assert!(ended.is_done, "{words:?}: {}", ended.said);
    println!("{}", ended.said);
    tenant.renew_kubeconfig(host).await;
    site.take(tenant).await;
    site.no_request_failed(words[0], callers).await;
}

/// A step that cannot end in time is written down as begun.
async fn interrupted(host: &HostCluster) {
    refused(host, &["trust", "--timeout", "1s"], "run the command again to go on").await;
    let status = host.tombolo_tenant(&["status", TENANT]).await;
    assert!(status.said.contains("the step trust is not complete"), "{}", status.said);
}

async fn refused(host: &HostCluster, words: &[&str], reason: &str) -> String {
    let ended = rotate(host, words).await;
    assert!(!ended.is_done && ended.said.contains(reason), "{words:?}: {}", ended.said);
    ended.said
}

/// Runs the command for a step with these words.
pub async fn rotate(host: &HostCluster, words: &[&str]) -> Ended {
    let words = [&["certificates", "rotate-ca", TENANT, "--step"], words].concat();
    host.tombolo_tenant(&words).await
}

/// Says for the Node of paper what `tombolo node rotate-ca` says on a machine.
async fn annotate(tenant: &Tenant, annotation: &str) {
    tenant.admin.stdout(&["annotate", "node", "paper", annotation, "--overwrite"]).await;
}

fn pin(ca_pem: &str) -> String {
    let certificate = CertificateDer::from_pem_slice(ca_pem.as_bytes()).expect("a certificate");
    Pin::of_ca(&certificate).expect("a CA").to_string()
}

/// No Secret of the tenant in the host cluster and no object in the tenant has an old root, and only the new ones are stored.
async fn nothing_is_left(host: &HostCluster, tenant: &Tenant, old: &Old) {
    let roots = host.secret(&tenant.name, "tenant-roots").await;
    assert_eq!(roots.keys().collect::<Vec<_>>(), old.roots.keys().collect::<Vec<_>>());
    let status = host.tombolo_tenant(&["status", TENANT]).await;
    assert!(!status.said.contains("Next CAs"), "{}", status.said);
    let mut everywhere: Vec<(String, String)> = host.secret_values(&tenant.name).await.into_iter().collect();
    for (namespace, name) in [
        ("kube-public", "cluster-info"),
        ("kube-system", "extension-apiserver-authentication"),
        ("kube-system", "kube-root-ca.crt"),
        ("default", "kube-root-ca.crt"),
    ] {
        let words = ["get", "configmap", name, "--namespace", namespace, "--output=json"];
        let map: serde_json::Value = serde_json::from_str(&tenant.admin.stdout(&words).await).expect("JSON");
        for (file, text) in map["data"].as_object().into_iter().flatten() {
            everywhere.push((format!("{name}/{file}"), text.as_str().unwrap_or_default().to_owned()));
        }
    }
    for (place, text) in everywhere {
        for (file, root) in &old.roots {
            let embedded = base64_of(root);
            assert!(!text.contains(root.trim()) && !text.contains(&embedded), "{place} has the old {file}");
        }
    }
}

fn base64_of(text: &str) -> String {
    use base64::Engine as _;
    // Whole groups of three bytes, which are the same wherever the text begins a base64.
    base64::engine::general_purpose::STANDARD.encode(&text.as_bytes()[..text.len() / 3 * 3])
}

/// Each port shows a certificate of the new CAs and of none of the old ones, and takes nothing that the old ones have issued.
async fn nobody_takes_the_old_ones(host: &HostCluster, tenant: &Tenant, old: &Old) {
    let roots = host.secret(&tenant.name, "tenant-roots").await;
    let base = tenant.port(host).await;
    let (new_ca, new_administrator) = tenant.administrator().await;
    assert_eq!(new_ca, roots["ca.crt"]);
    for node in &host.nodes {
        for (offset, ca) in PORTS {
            assert_eq!(shown_at(node, base + offset, &roots[ca]).await.err(), None);
            assert!(shown_at(node, base + offset, &old.roots[ca]).await.is_err(), "{} +{offset}", node.name);
        }
        let at = (node.machine.address.into(), base);
        assert_eq!(status_for(host, at, &new_ca, new_administrator.clone()).await, "200");
        assert_eq!(status_for(host, at, &new_ca, old.administrator.clone()).await, "401");

        let (api_server, etcd) =
            (host.secret(&tenant.name, "apiserver").await, host.secret(&tenant.name, "etcd-data").await);
        let peer = Issued { certificate_pem: etcd["peer.crt"].clone(), key_pem: etcd["peer.key"].clone() };
        for (offset, new, old) in [
            (3, pair(&api_server, "etcd-client"), pair(&old.api_server, "etcd-client")),
            (6, pair(&api_server, "etcd-client"), pair(&old.api_server, "etcd-client")),
            (4, peer, old.peer.clone()),
        ] {
            assert!(
                answers(node, base + offset, &roots["etcd-ca.crt"], new).await,
                "{} +{offset}",
                node.name
            );
            assert!(
                !answers(node, base + offset, &roots["etcd-ca.crt"], old).await,
                "{} +{offset}",
                node.name
            );
        }
    }
    assert_eq!(status_with_token(host, tenant, &old.token).await, "401");
    let new = tenant.admin.stdout(&["create", "token", "default"]).await;
    assert_ne!(status_with_token(host, tenant, new.trim()).await, "401");
    assert_ne!(old.ca_pem, new_ca);
}

fn pair(files: &BTreeMap<String, String>, name: &str) -> Issued {
    let file = |end: &str| files[&format!("{name}.{end}")].clone();
    Issued { certificate_pem: file("crt"), key_pem: file("key") }
}

/// Returns true if an etcd at this port answers a client with this certificate.
async fn answers(node: &HostNode, port: u16, ca_pem: &str, identity: Issued) -> bool {
    let ca_pem = ca_pem.to_owned();
    let asked = async move {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut tls = dial(address, &ca_pem, &["http/1.1"], Some(&identity)).await?;
        tls.write_all(b"GET /version HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await?;
        let mut answer = [0; 12];
        tls.read_exact(&mut answer).await?;
        io::Result::Ok(answer.starts_with(b"HTTP/1.1 200"))
    };
    node.inside.run(asked).await.unwrap_or(false)
}

/// The HTTP status that an API server gives to a token.
async fn status_with_token(host: &HostCluster, tenant: &Tenant, token: &str) -> String {
    let (ca_pem, _) = tenant.administrator().await;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, tenant.port(host).await));
    let request = format!(
        "GET /api/v1/namespaces HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    );
    let asked = async move {
        let mut tls = dial(address, &ca_pem, &["http/1.1"], None).await?;
        tls.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        tls.read_to_string(&mut answer).await?;
        io::Result::Ok(answer)
    };
    let answer = host.nodes[0].inside.run(asked).await.expect("an answer");
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}
