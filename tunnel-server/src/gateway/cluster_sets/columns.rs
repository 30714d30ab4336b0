//! The columns of a table over several clusters: joined by name, with the cluster's name in front.

use serde::{Deserialize, Serialize};

/// The name of the first column.
const CLUSTER: &str = "Cluster";

/// One column of a `Table` (meta/v1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::gateway) struct Column {
    pub(super) name: String,
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    format: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    priority: i32,
}

impl Column {
    /// The column with the name of the cluster.
    pub(super) fn cluster() -> Self {
        Self::new(CLUSTER, "string", 0, "The cluster that has the object.")
    }

    /// A column of this name and OpenAPI type. kubectl shows one of a priority above 0 with `-o wide` only.
    pub(in crate::gateway) fn new(name: &str, kind: &str, priority: i32, description: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: kind.to_owned(),
            format: String::new(),
            description: description.to_owned(),
            priority,
        }
    }

    /// The same column with an OpenAPI format.
    pub(in crate::gateway) fn with_format(self, format: &str) -> Self {
        Self { format: format.to_owned(), ..self }
    }
}

/// Adds the columns that are not there yet, by their names.
pub(super) fn join(columns: &mut Vec<Column>, further: &[Column]) {
    for column in further {
        if !columns.iter().any(|own| own.name == column.name) {
            columns.push(column.clone());
        }
    }
}

/// For each of `columns` the place of the cell in a row of `own` columns.
pub(super) fn places(columns: &[Column], own: &[Column]) -> Vec<Option<usize>> {
    columns.iter().map(|column| own.iter().position(|other| other.name == column.name)).collect()
}
