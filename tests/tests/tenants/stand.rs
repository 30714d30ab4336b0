//! The host cluster itself carries what control planes are made of: pods in the network of their nodes, which find each other
//! by Services and keep their volumes.

use std::collections::BTreeSet;
use std::time::Instant;

use daemon::Scope;
use etcd::{Client, Endpoint, KeyRange, Write};
use serde_json::{Value, json};
use tests::host_cluster::{ETCD, HostCluster, HostNode, IMAGE, KUBECTL_MAX, NODES, STORAGE_CLASS, image};
use tests::lb_cluster::until;
use tests::skip::skip;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The ports of etcd in the network of the nodes: for clients, for peers, and for probes.
const PORTS: (u16, u16, u16) = (12379, 12380, 12381);

/// The key that has to outlive all pods of etcd.
const KEY: &str = "outlives";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_on_three_nodes_find_each_other_and_keep_their_volumes() {
    const NAME: &str = "pods_on_three_nodes_find_each_other_and_keep_their_volumes";
    let begun = Instant::now();
    let cluster = match HostCluster::start().await {
        Ok(cluster) => cluster,
        Err(error) => return skip(NAME, &error.to_string()),
    };
    println!("the host cluster after {:.1} s", begun.elapsed().as_secs_f64());
    cluster.label_nodes().await;

    let endpoints = start_etcd(&cluster).await;
    start_web(&cluster).await;
    cluster.rolled_out("default", "statefulset/etcd").await;
    cluster.rolled_out("default", "daemonset/web").await;
    println!("all pods after {:.1} s", begun.elapsed().as_secs_f64());

    every_node_reaches_the_pods_of_all(&cluster).await;
    put(&cluster.nodes[0], &endpoints).await;
    assert_eq!(count(&cluster.nodes[1], &endpoints).await, Some(1));
    let words = ["delete", "pods", "--selector=app=etcd", "--grace-period=1"];
    cluster.admin.stdout(&words).await;
    cluster.rolled_out("default", "statefulset/etcd").await;
    until("the volumes have the key", KUBECTL_MAX, async || {
        (count(&cluster.nodes[2], &endpoints).await? == 1).then_some(())
    })
    .await;
    println!("done after {:.1} s", begun.elapsed().as_secs_f64());
}

/// Three members in a StatefulSet, with a Service each. Returns the URLs by the Services.
async fn start_etcd(cluster: &HostCluster) -> Vec<Endpoint> {
    let (clients, peers, probes) = PORTS;
    let names: Vec<String> = (0..NODES).map(|member| format!("etcd-{member}")).collect();
    let services: Vec<Value> = names
        .iter()
        .map(|name| {
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
                "spec": {
                    "selector": { "statefulset.kubernetes.io/pod-name": name }, "publishNotReadyAddresses": true,
                    "ports": [{ "name": "clients", "port": clients }, { "name": "peers", "port": peers }],
                },
            })
        })
        .collect();
    cluster.apply(&services).await;
    let mut addresses = Vec::new();
    for name in &names {
        let words = ["get", "service", name, "--output=jsonpath={.spec.clusterIP}"];
        addresses.push(cluster.admin.stdout(&words).await);
    }
    let all: Vec<String> = names
        .iter()
        .zip(&addresses)
        .map(|(name, address)| format!("{name}=http://{address}:{peers}"))
        .collect();
    let file = |name: &str, address: &str| {
        format!(
            "name: {name}\ndata-dir: /var/lib/etcd/data\ninitial-cluster: {}\n\
             listen-client-urls: http://0.0.0.0:{clients}\nadvertise-client-urls: http://{address}:{clients}\n\
             listen-peer-urls: http://0.0.0.0:{peers}\ninitial-advertise-peer-urls: http://{address}:{peers}\n\
             listen-metrics-urls: http://127.0.0.1:{probes}\n",
            all.join(","),
        )
    };
    let files: serde_json::Map<String, Value> = names
        .iter()
        .zip(&addresses)
        .map(|(name, address)| (format!("{name}.yaml"), file(name, address).into()))
        .collect();
    let config =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "etcd" }, "data": files });
    cluster.apply(&[config, stateful_set()]).await;
    addresses
        .iter()
        .map(|address| format!("http://{address}:{clients}").parse().expect("an endpoint"))
        .collect()
}

fn stateful_set() -> Value {
    let (clients, peers, probes) = PORTS;
    let labels = json!({ "app": "etcd" });
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "etcd" },
        "spec": {
            "serviceName": "etcd", "replicas": NODES, "podManagementPolicy": "Parallel",
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": {
                "hostNetwork": true, "nodeSelector": { "tombolo.dev/control-planes": "true" },
                "containers": [{
                    "name": "etcd", "image": image(ETCD), "imagePullPolicy": "IfNotPresent",
                    "command": ["etcd", "--config-file=/etc/etcd/$(POD_NAME).yaml"],
                    "env": [{ "name": "POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }],
                    "ports": [
                        { "containerPort": clients, "hostPort": clients }, { "containerPort": peers, "hostPort": peers },
                    ],
                    "readinessProbe": {
                        "httpGet": { "host": "127.0.0.1", "port": probes, "path": "/readyz" }, "periodSeconds": 1,
                    },
                    "volumeMounts": [
                        { "name": "data", "mountPath": "/var/lib/etcd" }, { "name": "config", "mountPath": "/etc/etcd" },
                    ],
                }],
                "volumes": [{ "name": "config", "configMap": { "name": "etcd" } }],
            } },
            "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": STORAGE_CLASS,
                "resources": { "requests": { "storage": "1Gi" } },
            } }],
        },
    })
}

/// A pod on each node that answers with the node's name, and one Service for all.
async fn start_web(cluster: &HostCluster) {
    let labels = json!({ "app": "web" });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" },
        "spec": { "selector": labels, "ports": [{ "port": 80, "targetPort": 8080 }] },
    });
    let pods = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "web" },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": {
                "hostNetwork": true,
                "containers": [{
                    "name": "web", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["pod", "serve", "$(NODE)"],
                    "env": [{ "name": "NODE", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } }],
                }],
            } },
        },
    });
    cluster.apply(&[service, pods]).await;
}

/// kube-proxy leads connections by the Service's address to all pods, from each node.
async fn every_node_reaches_the_pods_of_all(cluster: &HostCluster) {
    let words = ["get", "service", "web", "--output=jsonpath={.spec.clusterIP}:80"];
    let address = cluster.admin.stdout(&words).await;
    let names: BTreeSet<String> = cluster.nodes.iter().map(|node| node.name.clone()).collect();
    for node in &cluster.nodes {
        let mut answered = BTreeSet::new();
        until(&format!("{} reaches the pods of all nodes", node.name), KUBECTL_MAX, async || {
            answered.extend(node.inside.run(name_at(address.clone())).await);
            (answered == names).then_some(())
        })
        .await;
    }
}

/// The name of the pod that answers at an address.
async fn name_at(address: String) -> Option<String> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: web\r\nconnection: close\r\n\r\n").await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    Some(body.split(' ').next()?.to_owned())
}

/// Writes the key by a Service of etcd, from a node.
async fn put(node: &HostNode, endpoints: &[Endpoint]) {
    let endpoints = endpoints.to_vec();
    let write = Write::Put(KEY.into(), b"value".to_vec());
    let written = async move {
        let client = Client::new(endpoints, None, Scope::here());
        client.commit(Vec::new(), vec![write]).await.map(drop)
    };
    node.inside.run(written).await.expect("etcd takes it");
}

/// The number of keys by this name, or nothing as long as etcd does not answer.
async fn count(node: &HostNode, endpoints: &[Endpoint]) -> Option<usize> {
    let endpoints = endpoints.to_vec();
    let counted = async move {
        let client = Client::new(endpoints, None, Scope::here());
        client.count(&KeyRange::key(KEY)).await.ok()
    };
    node.inside.run(counted).await
}
