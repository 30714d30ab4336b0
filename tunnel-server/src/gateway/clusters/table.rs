//! Clusters as a `Table` (meta/v1), which kubectl prints as it comes.

use policy::action::RowObject;
use serde_json::{Value, json};

use super::view::ClusterView;
use crate::gateway::cluster_sets::accepted::Accepted;
use crate::gateway::cluster_sets::columns::Column;

/// The text of a cell without a value, as kubectl writes it.
const NONE: &str = "<none>";

/// A table of these clusters. Only the first table of a watch `has_columns`, as at an API server.
pub(super) fn table<'a>(
    clusters: impl IntoIterator<Item = &'a ClusterView>,
    accepted: Accepted,
    row_object: RowObject,
    has_columns: bool,
) -> Value {
    let rows: Vec<Value> = clusters.into_iter().map(|cluster| row(cluster, accepted, row_object)).collect();
    let columns = if has_columns { columns() } else { Vec::new() };
    json!({
        "kind": "Table",
        "apiVersion": accepted.table_version(),
        "metadata": {},
        "columnDefinitions": columns,
        "rows": rows,
    })
}

/// The columns; kubectl shows those of a priority above 0 with `-o wide` only.
fn columns() -> Vec<Column> {
    vec![
        Column::new("Name", "string", 0, "The name of the cluster.").with_format("name"),
        Column::new("Connected", "boolean", 0, "Whether a new request would find a tunnel."),
        Column::new("Tunnels", "integer", 0, "The number of tunnels of the cluster's agents."),
        Column::new("Version", "string", 0, "The version of the API server, as an agent has told it last."),
        Column::new("Last Seen", "string", 0, "The last sign of life of a tunnel.").with_format("date-time"),
        Column::new("Labels", "string", 1, "The labels that administrators have given to the cluster."),
    ]
}

fn row(cluster: &ClusterView, accepted: Accepted, row_object: RowObject) -> Value {
    let ClusterView { name, facts, status } = cluster;
    let labels: Vec<String> = facts.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let text = |value: Option<&str>| value.unwrap_or(NONE).to_owned();
    let cells = json!([
        name.as_str(),
        status.connected,
        status.tunnels.len(),
        text(status.version.as_deref()),
        text(status.last_seen.as_deref()),
        text(Some(labels.join(",")).as_deref().filter(|labels| !labels.is_empty())),
    ]);
    let object = match row_object {
        RowObject::None => return json!({ "cells": cells }),
        RowObject::Metadata => json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": accepted.table_version(),
            "metadata": cluster.metadata(),
        }),
        RowObject::Whole => cluster.object(),
    };
    json!({ "cells": cells, "object": object })
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::view;
    use super::*;

    #[test]
    fn a_table_has_a_row_for_each_cluster_and_labels_only_when_wide() {
        let clusters = [view("edge-a", "live", true, 0), view("edge-b", "test", false, 0)];
        let table = table(&clusters, Accepted::TableV1, RowObject::Metadata, true);

        assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
        let columns = table["columnDefinitions"].as_array().unwrap();
        let shown: Vec<(&str, i64)> = columns
            .iter()
            .map(|column| (column["name"].as_str().unwrap(), column["priority"].as_i64().unwrap()))
            .collect();
        assert_eq!(
            shown,
            [("Name", 0), ("Connected", 0), ("Tunnels", 0), ("Version", 0), ("Last Seen", 0), ("Labels", 1)]
        );
        let cells = |row: usize| table["rows"][row]["cells"].clone();
        assert_eq!(cells(0), json!(["edge-a", true, 1, "v1.36.3", "1970-01-01T00:00:00Z", "stage=live"]));
        assert_eq!(cells(1), json!(["edge-b", false, 0, "v1.36.3", "1970-01-01T00:00:00Z", "stage=test"]));
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(
            table["rows"][1]["object"]["metadata"],
            json!({ "name": "edge-b", "labels": { "stage": "test" } })
        );
    }

    #[test]
    fn the_caller_chooses_what_goes_with_a_row() {
        let mut cluster = view("edge-a", "live", false, 0);
        cluster.facts.labels.clear();
        (cluster.status.version, cluster.status.last_seen) = (None, None);
        let of = |part| table([&cluster], Accepted::TableV1beta1, part, false);
        let whole = of(RowObject::Whole);
        assert_eq!(
            (&whole["apiVersion"], &whole["columnDefinitions"]),
            (&json!("meta.k8s.io/v1beta1"), &json!([]))
        );
        assert_eq!(whole["rows"][0]["object"]["kind"], "Cluster");
        assert_eq!(
            of(RowObject::None)["rows"],
            json!([{ "cells": ["edge-a", false, 0, "<none>", "<none>", "<none>"] }])
        );
    }
}
