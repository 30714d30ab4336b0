//! The API server in the cloud: its egress configuration, its connection to the gateway, and the targets that
//! it calls.

use std::net::Ipv4Addr;

use rustix::process::geteuid;
use serde_json::{Value, json};
use tests::caller::SOON;
use tests::kube::kubectl::Kubectl;
use tests::kube::{ClusterOptions, EdgeCluster};
use tests::lab::{Lab, SERVER};
use tests::pki::Authority;
use tests::rig::Rig;
use tokio::time::timeout;

use super::CLUSTER;

/// The API server's name in its certificate for the entry point, and the entry point's address.
const NAME: &str = "kube-apiserver-egress";
const EGRESS_PORT: u16 = 8131;

/// The transport between an API server and its entry point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EgressTransport {
    /// TLS with a certificate of its own.
    Tls,
    /// A Unix socket beside it.
    Socket,
}

/// A server with an entry point to [`CLUSTER`], `host-a`.
pub(super) async fn server(lab: &Lab, by: EgressTransport) -> Rig {
    let client_ca = Authority::new("egress-ca");
    let path = |name: &str| lab.path().join(name);
    let own = client_ca.issue_user(NAME, &[]);
    for (name, text) in [
        ("egress-ca.crt", client_ca.certificate_pem()),
        ("egress.crt", &own.certificate_pem),
        ("egress.key", &own.key_pem),
    ] {
        std::fs::write(path(name), text).unwrap();
    }
    let entry_point = match by {
        EgressTransport::Tls => format!(
            "tcp: {{ listen: \"{SERVER}:{EGRESS_PORT}\", clientCAFile: {:?}, clientName: {NAME} }}",
            path("egress-ca.crt")
        ),
        EgressTransport::Socket => {
            format!("uds: {{ path: {:?}, uids: [{}] }}", socket(lab), geteuid().as_raw())
        }
    };
    // A webhook holds up who waits for it: here nobody waits for a cluster that is away.
    let more = format!(
        "parking: {{ limitSeconds: 0 }}\negress: [{{ name: host-a, cluster: {CLUSTER}, {entry_point} }}]\n"
    );
    lab.rig(&more).await
}

/// A rule that lets an entry point reach these hosts and ports.
pub(super) fn rule(name: &str, targets: &[(&str, u16)]) -> String {
    let targets =
        targets.iter().map(|(host, port)| format!("{{ hosts: [\"{host}\"], ports: [\"{port}\"] }}"));
    format!(
        "{{ name: egress, effect: Allow, subjects: [{{ method: \"entry-point:{name}\", user: \"*\" }}], \
         clusters: {{ names: [{CLUSTER}] }}, mode: dial, targets: [{}] }}",
        targets.collect::<Vec<_>>().join(", ")
    )
}

/// A kube-apiserver in the cloud whose egress goes to that server.
pub(super) async fn api_server(lab: &Lab, rig: &Rig, by: EgressTransport) -> EdgeCluster {
    EdgeCluster::start_at(ClusterOptions {
        network_namespace: Some(lab.cloud().path().to_owned()),
        address: SERVER.into(),
        port: Some(6443),
        advertise: SERVER.into(),
        egress_selector: Some(selector(lab, rig, by)),
        ..ClusterOptions::default()
    })
    .await
    .unwrap()
}

fn socket(lab: &Lab) -> std::path::PathBuf {
    lab.path().join("own/egress.sock")
}

/// The configuration file of kube-apiserver's egress.
fn selector(lab: &Lab, rig: &Rig, by: EgressTransport) -> std::path::PathBuf {
    let file = lab.path().join("egress.json");
    let name = |name: &str| lab.path().join(name).display().to_string();
    let transport = match by {
        EgressTransport::Tls => {
            let tls = json!({
                "caBundle": rig.path().join("pki/server-ca.crt"), "clientKey": name("egress.key"),
                "clientCert": name("egress.crt"),
            });
            json!({ "tcp": { "url": format!("https://{SERVER}:{EGRESS_PORT}"), "tlsConfig": tls } })
        }
        EgressTransport::Socket => json!({ "uds": { "udsName": socket(lab) } }),
    };
    let selection = json!({
        "name": "cluster", "connection": { "proxyProtocol": "HTTPConnect", "transport": transport },
    });
    let document = json!({
        "apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration", "egressSelections": [selection],
    });
    std::fs::write(&file, document.to_string()).unwrap();
    file
}

/// Applies a list of objects.
pub(super) async fn apply(lab: &Lab, kubectl: &Kubectl, items: &[Value]) {
    let objects = lab.path().join("objects.json");
    std::fs::write(&objects, json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string())
        .unwrap();
    kubectl.stdout(&["apply", "-f", objects.to_str().unwrap()]).await;
}

/// Returns once the webhook is in force, which is some time after it was written.
pub(super) async fn in_force(kubectl: &Kubectl) {
    let words = ["create", "configmap", "refused", "--dry-run=server"];
    let in_force = async { while kubectl.run(&words).await.unwrap().status.success() {} };
    timeout(SOON, in_force).await.expect("the webhook is in force");
}

/// A Service with an address of its own.
pub(super) fn service(name: &str, address: Ipv4Addr) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": "default" },
        "spec": { "clusterIP": address, "ports": [{ "name": "https", "port": 443 }] },
    })
}

/// An ExternalName Service with its name at the site, which an API server dials unchanged.
pub(super) fn elsewhere(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": "default" },
        "spec": { "type": "ExternalName", "externalName": format!("{name}.default.svc") },
    })
}

/// A slice of a Service's endpoints, which are ready.
pub(super) fn slice(name: &str, addresses: &[Ipv4Addr], port: u16) -> Value {
    let endpoints: Vec<_> = addresses
        .iter()
        .map(|address| json!({ "addresses": [address], "conditions": { "ready": true } }))
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "name": name, "namespace": "default", "labels": { "kubernetes.io/service-name": name } },
        "ports": [{ "name": "https", "port": port }],
        "endpoints": endpoints,
    })
}

/// A validating webhook of the Service `hook` and an aggregated API of the Service `extension`, both of which
/// this authority vouches for.
pub(super) fn called(authority: &Authority) -> [Value; 2] {
    use base64::Engine as _;
    let ca = base64::engine::general_purpose::STANDARD.encode(authority.certificate_pem());
    let to = |name: &str| json!({ "name": name, "namespace": "default", "port": 443 });
    let hook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "site" },
        "webhooks": [{
            "name": "site.lab.tombolo.test", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Fail", "timeoutSeconds": 30,
            "clientConfig": { "service": to("hook"), "caBundle": ca },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"] }],
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "default" } },
        }],
    });
    let api = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": { "name": "v1.lab.tombolo.test" },
        "spec": {
            "group": "lab.tombolo.test", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": to("extension"), "caBundle": ca,
        },
    });
    [api, hook]
}
