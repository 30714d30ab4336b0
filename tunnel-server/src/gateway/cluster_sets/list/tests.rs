//! Claims about lists and tables of several clusters.

use serde_json::{Value, json};

use super::*;

fn member(name: &str, document: &Value, accepted: Accepted) -> Member<ListPart> {
    let answered = Answered { body: document.to_string().into(), content_type: None };
    Member::new(name.parse().unwrap(), parse(answered, accepted))
}

fn merged(members: Vec<Member<ListPart>>, accepted: Accepted, fixed: Option<Vec<Column>>) -> Value {
    let answer = merge(members, accepted, fixed, |_| Some("more".to_owned())).unwrap();
    serde_json::from_slice(&answer.body()).unwrap()
}

fn pods(names: &[&str]) -> Value {
    let items: Vec<Value> = names.iter().map(|name| json!({ "metadata": { "name": name } })).collect();
    json!({ "kind": "PodList", "apiVersion": "v1", "metadata": { "resourceVersion": "7", "remainingItemCount": 3 }, "items": items })
}

fn table(columns: &[&str], rows: &[&[&str]]) -> Value {
    let columns: Vec<Value> = columns
        .iter()
        .map(|name| json!({ "name": name, "type": "string", "format": "", "description": "", "priority": 0 }))
        .collect();
    let rows: Vec<Value> = rows.iter().map(|cells| json!({ "cells": cells, "object": { "kind": "PartialObjectMetadata", "metadata": { "name": cells[0] } } })).collect();
    json!({ "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "columnDefinitions": columns, "rows": rows })
}

#[test]
fn a_list_has_the_items_of_all_and_says_of_which_cluster_each_is() {
    let failed = Member::new("edge-c".parse().unwrap(), Outcome::failed("AgentSilent", "late"));
    let list = merged(
        vec![
            member("edge-a", &pods(&["x", "y"]), Accepted::Json),
            member("edge-b", &pods(&["x"]), Accepted::Json),
            failed,
            Member::new("edge-d".parse().unwrap(), Outcome::Absent),
        ],
        Accepted::Json,
        None,
    );
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("PodList"), &json!("v1")));
    assert_eq!(list["metadata"], json!({ "continue": "more" }), "no version is one of the set");
    let item = |name: &str, cluster: &str| json!({ "metadata": { "name": name, "annotations": { "tombolo.dev/cluster": cluster } } });
    assert_eq!(list["items"], json!([item("x", "edge-a"), item("y", "edge-a"), item("x", "edge-b")]));
    let states: Vec<&str> =
        list["clusters"].as_array().unwrap().iter().filter_map(|line| line["state"].as_str()).collect();
    assert_eq!(states, ["Fresh", "Fresh", "Failed", "Absent"]);
}

#[test]
fn tables_are_joined_by_the_names_of_their_columns() {
    let members = || {
        vec![
            member("edge-a", &table(&["Name", "Ready"], &[&["x", "1/1"]]), Accepted::TableV1),
            member("edge-b", &table(&["Ready", "Name", "Age"], &[&["0/1", "y", "3d"]]), Accepted::TableV1),
        ]
    };
    let joined = merged(members(), Accepted::TableV1, None);
    let names = |table: &Value| -> Vec<String> {
        table["columnDefinitions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|column| column["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&joined), ["Cluster", "Name", "Ready", "Age"]);
    let cells: Vec<&Value> = joined["rows"].as_array().unwrap().iter().map(|row| &row["cells"]).collect();
    assert_eq!(cells, [&json!(["edge-a", "x", "1/1", null]), &json!(["edge-b", "y", "0/1", "3d"])]);
    assert_eq!(joined["rows"][0]["object"]["metadata"]["annotations"]["tombolo.dev/cluster"], "edge-a");

    // The first page has fixed its columns.
    let Outcome::Fresh(ListPart { entries: Entries::Rows(fixed, _), .. }) =
        member("edge-a", &table(&["Name"], &[]), Accepted::TableV1).outcome
    else {
        panic!("a table")
    };
    let later = merged(members(), Accepted::TableV1, Some(fixed));
    assert_eq!(names(&later), ["Cluster", "Name"]);
    assert_eq!(later["rows"][1]["cells"], json!(["edge-b", "y"]));
}

#[test]
fn an_answer_of_another_form_counts_as_none() {
    for (document, accepted) in [
        (pods(&["x"]), Accepted::TableV1),
        (table(&["Name"], &[]), Accepted::Json),
        (json!([1]), Accepted::Json),
        (json!({ "kind": "Status", "items": [] }), Accepted::Json),
    ] {
        let outcome = member("edge-a", &document, accepted).outcome;
        assert!(matches!(outcome, Outcome::Failed(_)), "{document}");
    }
    let garbage = Answered { body: Bytes::from_static(b"\xff{"), content_type: None };
    assert!(matches!(parse(garbage, Accepted::Json), Outcome::Failed(_)));
}

#[test]
fn a_list_of_nobody_is_no_empty_list() {
    let failed = || Member::new("edge-c".parse().unwrap(), Outcome::failed("AgentSilent", "late"));
    let absent = || Member::new("edge-d".parse().unwrap(), Outcome::Absent);
    let refused = |members| merge(members, Accepted::Json, None, |_| None).err();
    assert!(matches!(refused(vec![failed()]), Some(ClusterSetError::NobodyAnswered(_))));
    assert!(matches!(refused(vec![failed(), absent()]), Some(ClusterSetError::NobodyAnswered(_))));
    assert_eq!(refused(vec![absent()]), Some(ClusterSetError::Absent));
    assert_eq!(merged(Vec::new(), Accepted::TableV1, None)["rows"], json!([]));
}
