//! `tombolo tenant bootstrap`: makes inside of a tenant what administrators, API servers and machines that join need.

use std::time::{Duration, SystemTime};

use daemon::Scope;
use policy::Network;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::created::{CreatedTenant, TenantError};
use super::inside::{InsideError, TenantApi};
use super::kubeconfig_text::cluster_info;
use super::pki::{ADMINS, KUBELET_CLIENTS, PkiError};
use super::record::TenantRecord;
use crate::args::TenantReached;
use crate::node::{BY_NODE_LB, JOINING_GROUP};
use crate::runtime::{self, RuntimeError};
use crate::yaml;

/// A control plane that is ready answers at once. The wait is for one that becomes ready.
const ANSWERS_MAX: Duration = Duration::from_secs(120);
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The group that every kubelet's certificate has.
const NODES: &str = "system:nodes";

/// The address of cluster DNS among the Services, as kubeadm chooses it.
const DNS_ADDRESS: usize = 10;

const RBAC: &str = "rbac.authorization.k8s.io";

/// The objects inside of a tenant were not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BootstrapError {
    #[error(transparent)]
    Tenant(#[from] TenantError),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error(transparent)]
    Inside(#[from] InsideError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("the objects could not be written as YAML")]
    Yaml(#[from] serde_saphyr::SerializeError),
}

/// Makes all objects of a tenant that runs.
///
/// # Errors
/// [`BootstrapError`]
pub(crate) fn bootstrap(args: &TenantReached) -> Result<Vec<String>, BootstrapError> {
    let name = args.name.as_str();
    make(&CreatedTenant::find(&args.host, name)?, args.server.as_deref())?;
    Ok(vec![format!("administrators and workers can come to the tenant {name}")])
}

/// Waits until the tenant's API server answers, and makes all objects.
///
/// # Errors
/// [`BootstrapError`]
pub(super) fn make(tenant: &CreatedTenant, server: Option<&str>) -> Result<(), BootstrapError> {
    runtime::run(async |scope| {
        let end = Instant::now() + ANSWERS_MAX;
        loop {
            match attempt(tenant, server, scope).await {
                // The namespaces of Kubernetes itself come some seconds after the first answer.
                Err(BootstrapError::Inside(InsideError::Connect(..) | InsideError::Send(..)))
                    if Instant::now() < end => {}
                Err(BootstrapError::Inside(InsideError::Refused { status: 404 | 500.., .. }))
                    if Instant::now() < end => {}
                done => return done,
            }
            sleep(ASK_EVERY).await;
        }
    })?
}

async fn attempt(tenant: &CreatedTenant, server: Option<&str>, scope: &Scope) -> Result<(), BootstrapError> {
    let CreatedTenant { host, record, roots } = tenant;
    let credential = roots.bootstrap(SystemTime::now())?;
    let ca = roots.cluster.trusted_pem();
    let mut api = TenantApi::connect(host, record, server, &ca, &credential, scope).await?;
    let version = api.get("/version").await?;
    let version = version["gitVersion"].as_str().unwrap_or_default().to_owned();
    for object in objects(record, &ca, &version)? {
        api.apply(&object).await?;
    }
    Ok(())
}

/// All objects inside of a tenant. The rights are those of kubeadm's phases `bootstrap-token` and `upload-config`, and ours.
fn objects(
    tenant: &TenantRecord,
    ca_pem: &str,
    version: &str,
) -> Result<Vec<Value>, serde_saphyr::SerializeError> {
    let group = |group: &str| json!({ "apiGroup": RBAC, "kind": "Group", "name": group });
    let anonymous = json!({ "apiGroup": RBAC, "kind": "User", "name": "system:anonymous" });
    let joining = || group(JOINING_GROUP);
    let readers = || vec![joining(), group(NODES)];
    let mut objects = vec![
        cluster_binding("tombolo:tenant-admins", "cluster-admin", group(ADMINS)),
        cluster_binding("tombolo:kubelet-clients", "system:kubelet-api-admin", group(KUBELET_CLIENTS)),
        cluster_binding("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", joining()),
        cluster_binding(
            "kubeadm:node-autoapprove-bootstrap",
            "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
            joining(),
        ),
        cluster_binding(
            "kubeadm:node-autoapprove-certificate-rotation",
            "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
            group(NODES),
        ),
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": { "name": "kubeadm:get-nodes" },
            "rules": [{ "apiGroups": [""], "resources": ["nodes"], "verbs": ["get"] }],
        }),
        cluster_binding("kubeadm:get-nodes", "kubeadm:get-nodes", joining()),
    ];
    let of_map = |name: &str| json!({ "apiGroups": [""], "resources": ["configmaps"], "resourceNames": [name], "verbs": ["get"] });
    let slices = json!({
        "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "resourceNames": ["kubernetes"],
        "verbs": ["get", "list", "watch"],
    });
    for (namespace, name, rule, subjects) in [
        ("kube-public", "kubeadm:bootstrap-signer-clusterinfo", of_map("cluster-info"), vec![anonymous]),
        ("kube-system", "kubeadm:nodes-kubeadm-config", of_map("kubeadm-config"), readers()),
        ("kube-system", "kubeadm:kubelet-config", of_map("kubelet-config"), readers()),
        // As deploy/node-lb/rbac.yaml: node-lb follows the list of API servers with kubelet's certificate.
        ("default", "tombolo-node-lb", slices, vec![group(NODES)]),
    ] {
        objects.extend(role(namespace, name, &rule, &subjects));
    }
    let cluster_info = cluster_info(BY_NODE_LB, ca_pem);
    objects.push(config_map("kube-public", "cluster-info", "kubeconfig", &cluster_info));
    let configuration = yaml::document(&cluster_configuration(tenant, version))?;
    objects.push(config_map("kube-system", "kubeadm-config", "ClusterConfiguration", &configuration));
    let kubelet = yaml::document(&kubelet_configuration(tenant.service_network))?;
    objects.push(config_map("kube-system", "kubelet-config", "kubelet", &kubelet));
    Ok(objects)
}

fn cluster_binding(name: &str, role: &str, subject: Value) -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": name },
        "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": role },
        "subjects": [subject],
    })
}

/// A Role with one rule, and its binding.
fn role(namespace: &str, name: &str, rule: &Value, subjects: &[Value]) -> [Value; 2] {
    let metadata = json!({ "name": name, "namespace": namespace });
    [
        json!({ "apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": metadata, "rules": [rule] }),
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": { "apiGroup": RBAC, "kind": "Role", "name": name },
            "subjects": subjects,
        }),
    ]
}

fn config_map(namespace: &str, name: &str, key: &str, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": namespace },
        "data": { key: text },
    })
}

/// The configuration that `kubeadm join` reads.
fn cluster_configuration(tenant: &TenantRecord, version: &str) -> Value {
    json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "ClusterConfiguration",
        "clusterName": tenant.name,
        "controlPlaneEndpoint": BY_NODE_LB.trim_start_matches("https://"),
        "kubernetesVersion": version,
        "networking": {
            "dnsDomain": "cluster.local",
            "serviceSubnet": tenant.service_network.to_string(),
            "podSubnet": tenant.pod_network.to_string(),
        },
    })
}

/// The configuration of kubelets, as kubeadm makes it.
fn kubelet_configuration(services: Network) -> Value {
    let dns: Vec<String> =
        services.hosts().nth(DNS_ADDRESS - 1).map(|dns| dns.to_string()).into_iter().collect();
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": "/etc/kubernetes/pki/ca.crt" },
        },
        "authorization": { "mode": "Webhook" },
        "clusterDNS": dns,
        "clusterDomain": "cluster.local",
        "rotateCertificates": true,
        "staticPodPath": "/etc/kubernetes/manifests",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubelets_get_the_dns_address_of_the_tenants_own_services() {
        let of = |network: &str| kubelet_configuration(network.parse().unwrap())["clusterDNS"][0].clone();
        assert_eq!(of("10.98.0.0/16"), "10.98.0.10");
        assert_eq!(of("fd00::/112"), "fd00::a");
    }

    /// The rule is what deploy/node-lb/rbac.yaml has for other clusters.
    #[test]
    fn workers_may_read_the_list_of_api_servers_as_in_every_cluster() {
        let text = include_str!("../../../deploy/node-lb/rbac.yaml");
        let expected: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
        let tenant = TenantRecord {
            name: "acme".to_owned(),
            ports: "16440".parse().unwrap(),
            service_network: "10.97.0.0/16".parse().unwrap(),
            pod_network: "10.245.0.0/16".parse().unwrap(),
            members: 3,
        };

        let made = objects(&tenant, "CA", "v1.36.3").unwrap();

        for object in expected {
            assert!(made.contains(&object), "{object}");
        }
        // Anybody may read this one object, and nobody without a credential anything else.
        let anonymous = made.iter().filter(|object| object.to_string().contains("system:anonymous"));
        assert_eq!(
            anonymous.map(|object| &object["roleRef"]["name"]).collect::<Vec<_>>(),
            ["kubeadm:bootstrap-signer-clusterinfo"]
        );
        let masters = made.iter().filter(|object| object.to_string().contains("system:masters"));
        assert_eq!(masters.count(), 0);
    }
}
