//! node-lb learns of API servers from the Service by which a host cluster runs them.
//!
//! The cluster of the trial is the host cluster, too: it has a Service with the addresses of its own API servers.

use std::fs;

use serde_json::json;
use tests::lb_cluster::{LbCluster, NodeLb, READY_MAX};
use tests::skip::skip;

/// The namespace and the Service of the API servers in the host cluster.
const NAMESPACE: &str = "tenant-a";
const SERVICE: &str = "kube-apiserver";

/// An address of the first master's network at which nobody is.
const NOBODY: &str = "10.7.1.99:6443";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_of_a_host_cluster_names_api_servers() {
    const NAME: &str = "the_service_of_a_host_cluster_names_api_servers";
    let cluster = match LbCluster::start().await {
        Ok(cluster) => cluster,
        Err(error) => return skip(NAME, &error.to_string()),
    };
    let folder = cluster.edge.directory();
    apply(&cluster, &[1]).await;
    let token = folder.join("host-token");
    let words = ["create", "token", "node-lb", "--namespace", NAMESPACE];
    fs::write(&token, cluster.edge.admin().stdout(&words).await).expect("a file");
    let keys = format!(
        "hostCluster: {{ apiServer: \"{}\", caFile: \"{}\", tokenFile: \"{}\", namespace: {NAMESPACE}, service: {SERVICE} }}\n",
        cluster.socket(0),
        cluster.edge.ca_path().display(),
        token.display(),
    );
    let lb = NodeLb::start_with(&cluster, &[NOBODY.parse().expect("an address")], &keys).await;

    // Nothing else names an API server that is there.
    lb.until_state(&cluster, cluster.socket(1), "ready", READY_MAX).await;
    let first = lb.log().find(&cluster.socket(1).to_string()).expect("it is in the log");
    let names = lb.log()[..first].contains("host_endpoint_slice");
    assert!(names, "the host cluster was the first to name it: {}", lb.log());
    let age = "tombolo_lb_source_age_seconds{source=\"host_endpoint_slice\"}";
    assert!(lb.metrics(&cluster).await.contains(age), "{}", lb.metrics(&cluster).await);
}

/// The Service with these API servers, and the rights of node-lb to read its slices.
async fn apply(cluster: &LbCluster, masters: &[usize]) {
    let addresses: Vec<String> =
        masters.iter().map(|master| cluster.addresses[*master].to_string()).collect();
    let metadata = |name: &str| json!({ "name": name, "namespace": NAMESPACE });
    let objects = json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } },
        { "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata("node-lb") },
        { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata("node-lb"), "rules": [
            { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"] },
        ] },
        { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata("node-lb"),
          "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "node-lb" },
          "subjects": [{ "kind": "ServiceAccount", "name": "node-lb", "namespace": NAMESPACE }] },
        { "apiVersion": "v1", "kind": "Service", "metadata": metadata(SERVICE),
          "spec": { "ports": [{ "name": "https", "port": 6443 }] } },
        { "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
          "metadata": { "name": "kube-apiserver-1", "namespace": NAMESPACE, "labels": { "kubernetes.io/service-name": SERVICE } },
          "addressType": "IPv4", "ports": [{ "name": "https", "port": 6443, "protocol": "TCP" }],
          "endpoints": [{ "addresses": addresses, "conditions": { "ready": true } }] },
    ] });
    let file = cluster.edge.directory().join("host-cluster.json");
    fs::write(&file, objects.to_string()).expect("a file");
    cluster.edge.admin().stdout(&["apply", "-f", &file.display().to_string()]).await;
}
