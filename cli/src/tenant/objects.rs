//! Objects of the host cluster that a tenant has before its chart: the namespace, Services and Secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

use super::record::{MEMBERS, POD_NETWORK, PORT_BASE, SERVICE_NETWORK, TENANT, TenantRecord};

/// The nodes that carry control planes.
pub(super) const NODE_LABEL: (&str, &str) = ("tombolo.dev/control-planes", "true");

/// Both etcds, with the place of each in the block of ports.
pub(super) const ETCDS: [(&str, u16); 2] = [("etcd-data", 3), ("etcd-event", 6)];

/// The ConfigMap with the CAs of a cluster, which every pod with a token has.
pub(super) const ROOT_CA: &str = "kube-root-ca.crt";

/// The account of the agents, in the host cluster and in the tenant.
pub(super) const SERVICE_ACCOUNT: &str = "tunnel-agent";

/// The Service of the API servers.
pub(super) const API_SERVERS: &str = "apiserver";

/// The namespace. Its pods use the host's network, which only the level `privileged` of pod security admits.
pub(super) fn namespace(tenant: &TenantRecord) -> Value {
    let mut labels = labels(&tenant.name);
    labels["pod-security.kubernetes.io/enforce"] = json!("privileged");
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": tenant.name,
            "labels": labels,
            "annotations": {
                PORT_BASE: tenant.ports.to_string(),
                SERVICE_NETWORK: tenant.service_network.to_string(),
                POD_NETWORK: tenant.pod_network.to_string(),
                MEMBERS: tenant.members.to_string(),
            },
        },
    })
}

/// The Service of the API servers, and one for each member of both etcds.
pub(super) fn services(tenant: &TenantRecord) -> Vec<Value> {
    let first = tenant.ports.first();
    let selector = json!({ "app.kubernetes.io/name": API_SERVERS });
    let mut services = vec![service(&tenant.name, API_SERVERS, &selector, &[("https", first)])];
    for (etcd, offset) in ETCDS {
        for name in members(etcd, tenant.members) {
            let selector = json!({ "statefulset.kubernetes.io/pod-name": name });
            let (clients, peers) = (first + offset, first + offset + 1);
            let mut member =
                service(&tenant.name, &name, &selector, &[("clients", clients), ("peers", peers)]);
            // Members find each other before any of them is ready.
            member["spec"]["publishNotReadyAddresses"] = json!(true);
            services.push(member);
        }
    }
    services
}

/// The names of an etcd's members, which are those of their pods and Services.
pub(super) fn members(etcd: &str, count: u16) -> impl Iterator<Item = String> {
    (0..count).map(move |member| format!("{etcd}-{member}"))
}

/// A Secret of these files.
pub(super) fn secret<'a>(
    tenant: &str,
    name: &str,
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Value {
    let data: Map<String, Value> =
        files.into_iter().map(|(file, text)| (file.to_owned(), BASE64.encode(text).into())).collect();
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": { "name": name, "namespace": tenant, "labels": labels(tenant) },
        "data": data,
    })
}

/// The account of the agents' pods, by whose token the host cluster vouches for them. It has no rights there.
pub(super) fn service_account(tenant: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": SERVICE_ACCOUNT, "namespace": tenant, "labels": labels(tenant) },
    })
}

/// The text of a file in a Secret.
pub(super) fn file_of(secret: &Value, file: &str) -> Option<String> {
    let bytes = BASE64.decode(secret["data"][file].as_str()?).ok()?;
    String::from_utf8(bytes).ok()
}

/// A pod that asks for all that the pods of a control plane ask for. Nobody runs it: the API server only says whether it is admitted.
pub(super) fn trial_pod(tenant: &TenantRecord) -> Value {
    let port = tenant.ports.first();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "trial", "namespace": tenant.name, "labels": labels(&tenant.name) },
        "spec": {
            "hostNetwork": true,
            "automountServiceAccountToken": false,
            "nodeSelector": { NODE_LABEL.0: NODE_LABEL.1 },
            "securityContext": { "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "trial",
                "image": "registry.k8s.io/pause:3.10",
                "ports": [{ "containerPort": port, "hostPort": port }],
                "securityContext": {
                    "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                    "capabilities": { "drop": ["ALL"], "add": ["NET_BIND_SERVICE"] },
                },
                "resources": { "requests": { "cpu": "10m", "memory": "10Mi" }, "limits": { "cpu": "10m", "memory": "10Mi" } },
            }],
        },
    })
}

fn service(tenant: &str, name: &str, selector: &Value, ports: &[(&str, u16)]) -> Value {
    let ports: Vec<Value> =
        ports.iter().map(|(name, port)| json!({ "name": name, "port": port, "targetPort": port })).collect();
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": name, "namespace": tenant, "labels": labels(tenant) },
        "spec": { "selector": selector, "ports": ports },
    })
}

fn labels(tenant: &str) -> Value {
    json!({ "app.kubernetes.io/part-of": "tombolo", TENANT: tenant })
}
