//! The objects that are left of a release of a chart.

use std::collections::BTreeSet;

use crate::kube::EdgeCluster;

/// Objects that Kubernetes itself makes in every namespace.
const OF_EVERY_NAMESPACE: [&str; 2] = ["ConfigMap kube-root-ca.crt", "ServiceAccount default"];

/// The objects of ours in a cluster, of every kind, as `KIND NAME`: those with our names, and those in our
/// namespaces.
///
/// # Panics
/// If they cannot be listed.
pub async fn objects_of_ours(cluster: &EdgeCluster) -> BTreeSet<String> {
    let kinds = cluster.admin().stdout(&["api-resources", "--verbs=list", "-o", "name"]).await;
    let kinds: Vec<&str> = kinds
        .lines()
        .filter(|kind| !kind.starts_with("events") && !kind.starts_with("componentstatuses"))
        .collect();
    let columns = "-o=custom-columns=K:.kind,S:.metadata.namespace,N:.metadata.name";
    let listed = cluster.admin().stdout(&["get", &kinds.join(","), "-A", "--no-headers", columns]).await;
    let rows = listed.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    let is_ours = |text: &str| text.contains("tombolo") || text.contains("tunnel");
    rows.filter(|row| row[1..].iter().any(|text| is_ours(text)))
        .map(|row| format!("{} {}", row[0], row[2]))
        .filter(|object| !OF_EVERY_NAMESPACE.contains(&object.as_str()))
        .collect()
}

/// Those of the objects that the notes of a chart do not name among what `helm uninstall` leaves.
///
/// # Panics
/// If the notes have no such list.
pub fn unnamed(left: &BTreeSet<String>, notes: &str) -> Vec<String> {
    let (_, notes) = notes.split_once("`helm uninstall` leaves").unwrap_or_else(|| panic!("{notes}"));
    let notes = notes.to_lowercase();
    let is_unnamed = |object: &&String| !notes.contains(&format!("   the {object}\n").to_lowercase());
    left.iter().filter(is_unnamed).cloned().collect()
}
