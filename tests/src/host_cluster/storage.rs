//! Volumes for pods of the host cluster: folders of its nodes, each bound to its node.

use std::fs;

use serde_json::{Value, json};

use super::HostCluster;

/// The StorageClass of all volumes. A volume is bound when a pod is put on its node.
pub const STORAGE_CLASS: &str = "local";

/// The volumes of each node. A tenant takes two of them: one for each of its etcds.
const VOLUMES: usize = 6;

/// The size that a volume claims to have.
const CAPACITY: &str = "16Gi";

/// Makes the class and the volumes of all nodes.
pub(super) async fn provide(cluster: &HostCluster) {
    let mut objects = vec![json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS, "annotations": { "storageclass.kubernetes.io/is-default-class": "true" },
        },
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
    })];
    for node in &cluster.nodes {
        for number in 0..VOLUMES {
            let folder = node.node.folder().join(format!("volumes/{number}"));
            fs::create_dir_all(&folder).expect("a folder");
            objects.push(volume(&node.name, number, &folder.display().to_string()));
        }
    }
    cluster.apply(&objects).await;
}

fn volume(node: &str, number: usize, folder: &str) -> Value {
    let on_node = json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": [node] });
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": format!("{node}-{number}") },
        "spec": {
            "capacity": { "storage": CAPACITY }, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": STORAGE_CLASS,
            "local": { "path": folder },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [on_node] }] } },
        },
    })
}
