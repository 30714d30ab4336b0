//! Facts of the host cluster that decide whether a tenant can be created: what is taken, the labelled nodes, and storage.

use std::net::IpAddr;

use policy::Network;
use serde_json::Value;

use super::host::{Host, HostError};
use super::objects::NODE_LABEL;
use super::record::{RecordError, TENANT, TenantRecord};

/// The annotation of the default StorageClass.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// Everything that is read before anything is written.
#[derive(Debug)]
pub(super) struct HostFacts {
    pub(super) own: OwnNamespace,
    pub(super) others: Vec<TenantRecord>,
    pub(super) networks: Vec<HostNetwork>,
    /// Labelled nodes that take pods.
    pub(super) nodes: Vec<ControlPlaneNode>,
    pub(super) storage: Storage,
}

/// The namespace with the name of the tenant.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OwnNamespace {
    Absent,
    /// It is there, and no tenant's.
    Foreign,
    /// It is being deleted, with all that is in it.
    Terminating,
    Tenant(TenantRecord),
}

/// A network or an address that the host cluster uses.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HostNetwork {
    pub(super) what: String,
    pub(super) network: Network,
}

/// A node that carries API servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ControlPlaneNode {
    pub(super) name: String,
    pub(super) address: IpAddr,
}

/// The StorageClasses, and volumes that wait for a claim.
#[derive(Debug, Default)]
pub(super) struct Storage {
    pub(super) classes: Vec<StorageClass>,
    /// The class of each volume that is available.
    pub(super) available: Vec<String>,
    /// The claims that the tenant has already.
    pub(super) claims: usize,
}

/// A StorageClass of the host cluster.
#[derive(Debug)]
pub(super) struct StorageClass {
    pub(super) name: String,
    pub(super) is_default: bool,
    /// False if somebody has to make each volume by hand.
    pub(super) makes_volumes: bool,
}

/// Reads the facts for a tenant of this name.
///
/// # Errors
/// [`RecordError`]
pub(super) fn read(host: &Host, name: &str) -> Result<HostFacts, RecordError> {
    let namespace = host.get(&["namespace", name])?;
    let own = match TenantRecord::parse(&namespace) {
        _ if !namespace["metadata"]["deletionTimestamp"].is_null() => OwnNamespace::Terminating,
        Some(record) => OwnNamespace::Tenant(record),
        None if namespace.is_null() => OwnNamespace::Absent,
        None => OwnNamespace::Foreign,
    };
    let tenants = host.list(&["namespaces", "--selector", TENANT])?;
    let mut others = Vec::new();
    for namespace in tenants {
        let other = namespace["metadata"]["name"].as_str().unwrap_or_default();
        if other != name {
            let record = TenantRecord::parse(&namespace);
            others.push(record.ok_or_else(|| RecordError::Broken(other.to_owned()))?);
        }
    }
    let nodes = host.list(&["nodes"])?;
    let labelled = nodes.iter().filter(|node| is_labelled(node) && node["spec"]["unschedulable"] != true);
    Ok(HostFacts {
        own,
        others,
        networks: networks(host, &nodes)?,
        nodes: labelled.filter_map(control_plane_node).collect(),
        storage: storage(host)?,
    })
}

/// The nodes that carry API servers.
///
/// # Errors
/// [`HostError`]
pub(super) fn control_plane_nodes(host: &Host) -> Result<Vec<ControlPlaneNode>, HostError> {
    let (key, value) = NODE_LABEL;
    let nodes = host.list(&["nodes", "--selector", &format!("{key}={value}")])?;
    Ok(nodes.iter().filter_map(control_plane_node).collect())
}

fn is_labelled(node: &Value) -> bool {
    node["metadata"]["labels"][NODE_LABEL.0] == NODE_LABEL.1
}

fn control_plane_node(node: &Value) -> Option<ControlPlaneNode> {
    Some(ControlPlaneNode { name: node["metadata"]["name"].as_str()?.to_owned(), address: address(node)? })
}

fn address(node: &Value) -> Option<IpAddr> {
    let addresses = node["status"]["addresses"].as_array()?;
    let internal = addresses.iter().find(|address| address["type"] == "InternalIP")?;
    internal["address"].as_str()?.parse().ok()
}

fn networks(host: &Host, nodes: &[Value]) -> Result<Vec<HostNetwork>, HostError> {
    let kubernetes = host.get(&["service", "kubernetes", "--namespace", "default"])?;
    let kubernetes = kubernetes["spec"]["clusterIP"].as_str().and_then(|address| address.parse().ok());
    // The kind is stable since Kubernetes 1.33, and not everybody may read it.
    let ranges = host.list(&["servicecidrs"]).unwrap_or_default();
    let mut found: Vec<HostNetwork> = kubernetes
        .map(|address| HostNetwork {
            what: "the host's Service default/kubernetes".to_owned(),
            network: Network::only(address),
        })
        .into_iter()
        .collect();
    let mut add = |what: String, network: Option<Network>| {
        found.extend(network.map(|network| HostNetwork { what, network }));
    };
    for range in ranges.iter().flat_map(|range| texts(&range["spec"]["cidrs"])) {
        add("the host's Services".to_owned(), range.parse().ok());
    }
    for node in nodes {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        for range in texts(&node["spec"]["podCIDRs"]) {
            add(format!("the pods of the host's node {name}"), range.parse().ok());
        }
        add(format!("the host's node {name}"), address(node).map(Network::only));
    }
    Ok(found)
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn storage(host: &Host) -> Result<Storage, HostError> {
    let classes = host.list(&["storageclasses"])?;
    let class = |class: &Value| {
        Some(StorageClass {
            name: class["metadata"]["name"].as_str()?.to_owned(),
            is_default: class["metadata"]["annotations"][DEFAULT_CLASS] == "true",
            makes_volumes: class["provisioner"] != "kubernetes.io/no-provisioner",
        })
    };
    let volumes = host.list(&["persistentvolumes"])?;
    let available = volumes.iter().filter(|volume| volume["status"]["phase"] == "Available");
    let of_class =
        |volume: &Value| volume["spec"]["storageClassName"].as_str().unwrap_or_default().to_owned();
    Ok(Storage {
        classes: classes.iter().filter_map(class).collect(),
        available: available.map(of_class).collect(),
        claims: host.list(&["persistentvolumeclaims"])?.len(),
    })
}
