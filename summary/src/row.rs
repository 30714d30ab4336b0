//! Objects that a summary names: those with the greatest values, and those whose fields are shown.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use crate::scalar::Scalar;

/// One of the objects with the greatest values. The greatest comes first; ties are decided by namespace, name and cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankedItem {
    /// The value that ranks it.
    pub value: Scalar,
    /// The namespace of the object; empty for objects of the whole cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The cluster of the object; empty until a server has written it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
}

/// Fields of one object, in the order of namespaces, names and clusters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Row {
    /// The namespace of the object; empty for objects of the whole cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The cluster of the object; empty until a server has written it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// The fields that `select` names, in its order. `None` where the object has none.
    pub cells: Vec<Option<String>>,
}

impl RankedItem {
    fn order(&self) -> (Reverse<Scalar>, &str, &str, &str) {
        (Reverse(self.value), &self.namespace, &self.name, &self.cluster)
    }
}

impl Ord for RankedItem {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for RankedItem {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
