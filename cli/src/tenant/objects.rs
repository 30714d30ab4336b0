//! Objects that a tenant has before its chart, and inside of itself: the namespace and Services of the host, and all that workers need to join.

use serde_json::{Value, json};

use super::pki::{ADMINS, KUBELET_CLIENTS};
use super::ports::PortBlock;

/// The label of everything of a tenant in the host cluster.
pub(super) const PART_OF: &str = "app.kubernetes.io/part-of";
pub(super) const TENANT: &str = "tombolo-tenant";

/// Annotations of a tenant's namespace, by which others see what is taken.
pub(super) const PORT_BASE: &str = "tombolo.dev/port-base";
pub(super) const SERVICE_NETWORK: &str = "tombolo.dev/service-network";
pub(super) const POD_NETWORK: &str = "tombolo.dev/pod-network";

/// The number of members of each etcd.
pub(super) type Members = u16;

/// The namespace. Its pods use the host's network, which only the level `privileged` of pod security permits.
pub(super) fn namespace(name: &str, ports: PortBlock, networks: [&str; 2]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": name,
            "labels": { PART_OF: TENANT, "pod-security.kubernetes.io/enforce": "privileged" },
            "annotations": { PORT_BASE: ports.to_string(), SERVICE_NETWORK: networks[0], POD_NETWORK: networks[1] },
        },
    })
}

/// The Service of the API servers, and one for each member of both etcds.
pub(super) fn services(ports: PortBlock, members: Members) -> Vec<Value> {
    let mut services = vec![service("apiserver", json!({ "app.kubernetes.io/name": "apiserver" }), &[("https", ports.first())], false)];
    for (etcd, offset) in [("etcd-data", 3), ("etcd-event", 6)] {
        for member in 0..members {
            let name = format!("{etcd}-{member}");
            let selector = json!({ "statefulset.kubernetes.io/pod-name": name });
            let (clients, peers) = (ports.first() + offset, ports.first() + offset + 1);
            // Members find each other before any of them is ready.
            services.push(service(&name, selector, &[("clients", clients), ("peers", peers)], true));
        }
    }
    services
}

fn service(name: &str, selector: Value, ports: &[(&str, u16)], also_not_ready: bool) -> Value {
    let ports: Vec<Value> =
        ports.iter().map(|(name, port)| json!({ "name": name, "port": port, "targetPort": port })).collect();
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": name, "labels": { PART_OF: TENANT } },
        "spec": { "selector": selector, "ports": ports, "publishNotReadyAddresses": also_not_ready },
    })
}

/// The rights inside of the tenant: of its administrators, of its API servers at kubelets, and of kubelets to the list of API servers.
pub(super) fn rights() -> Vec<Value> {
    let binding = |name: &str, role: &str, group: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group }],
        })
    };
    vec![
        binding("tombolo:tenant-admins", "cluster-admin", ADMINS),
        binding("tombolo:kubelet-clients", "system:kubelet-api-admin", KUBELET_CLIENTS),
    ]
}
