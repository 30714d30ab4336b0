//! Aggregates: what they say about objects, and that the order of merging makes no difference.

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use crate::*;

fn question(question: &Json) -> Question {
    Question::parse(&question.to_string()).unwrap()
}

fn aggregate(objects: &[Json], question: &Question) -> Aggregate {
    let mut all = Aggregate::default();
    for object in objects {
        all.add(object, question).unwrap();
    }
    all
}

fn encoded(aggregate: &Aggregate) -> Json {
    serde_json::to_value(aggregate).unwrap()
}

#[test]
fn objects_are_grouped_with_exact_figures() {
    let pods = [
        json!({ "metadata": { "name": "a", "namespace": "x" }, "phase": "Running", "cpu": "100m", "at": "2024-01-01T00:00:00Z" }),
        json!({ "metadata": { "name": "b", "namespace": "x" }, "phase": "Running", "cpu": "0.2", "at": "2023-01-01T00:00:00Z" }),
        json!({ "metadata": { "name": "c", "namespace": "x" }, "phase": "Pending" }),
        json!({ "metadata": { "name": "d" } }),
    ];
    let question = question(&json!({
        "groupBy": [".phase"],
        "values": [{ "sum": ".cpu" }, { "min": ".at" }, { "max": ".cpu" }, { "count": ".cpu" }, { "avg": ".cpu" }],
        "top": { "count": 1, "by": ".cpu" },
        "select": [".phase"],
    }));
    let all = aggregate(&pods, &question);
    let none = |value: &str| json!({ "count": 0, "sum": value });
    let empty = json!([none("0"), { "count": 0 }, { "count": 0 }, { "count": 0 }, none("0")]);
    let running = json!([
        { "count": 2, "sum": "0.3" },
        { "count": 2, "min": "2023-01-01T00:00:00Z" },
        { "count": 2, "max": "0.2" },
        { "count": 2 },
        { "count": 2, "sum": "0.3" },
    ]);
    let said = encoded(&all);
    assert_eq!(said["items"], 4);
    assert_eq!(
        said["groups"],
        json!([
            { "key": [null], "count": 1, "figures": empty },
            { "key": ["Pending"], "count": 1, "figures": empty },
            { "key": ["Running"], "count": 2, "figures": running },
        ])
    );
    assert_eq!(said["top"], json!([{ "value": "0.2", "namespace": "x", "name": "b" }]));
    assert_eq!(said["rows"][0], json!({ "name": "d", "cells": [null] }));
    assert_eq!(said["unreadable"], json!({ "count": 0 }));
    let (_, _, figures) = all.groups().last().unwrap();
    assert_eq!(figures[4].mean().unwrap().to_string(), "0.15");
}

#[test]
fn an_object_counts_in_the_group_of_each_of_its_values_once() {
    let pod = json!({ "containers": [{ "image": "a" }, { "image": "b" }, { "image": "a" }] });
    let question = question(&json!({ "groupBy": [".containers[*].image"] }));
    let said = encoded(&aggregate(&[pod], &question));
    assert_eq!(said["groups"], json!([{ "key": ["a"], "count": 1 }, { "key": ["b"], "count": 1 }]));
}

#[test]
fn fields_that_cannot_be_read_are_counted_and_one_is_named() {
    let pods = [
        json!({ "metadata": { "name": "b", "namespace": "x" }, "labels": {}, "cpu": "many" }),
        json!({ "metadata": { "name": "a" }, "labels": "text", "cpu": [] }),
        json!({ "metadata": { "name": "c" }, "labels": "text", "cpu": "2024-01-01T00:00:00Z" }),
    ];
    let question = question(&json!({ "groupBy": [".labels"], "values": [{ "sum": ".cpu" }] }));
    let said = encoded(&aggregate(&pods, &question));
    assert_eq!(said["items"], 3);
    assert_eq!(
        said["groups"],
        json!([{ "key": ["text"], "count": 2, "figures": [{ "count": 0, "sum": "0" }] }])
    );
    let first = ".cpu of a: it is a list, and no number, quantity or time";
    assert_eq!(said["unreadable"], json!({ "count": 4, "first": first }));
}

#[test]
fn ten_thousand_groups_become_the_first_hundred_and_say_so() {
    let question = question(&json!({ "groupBy": [".name"] }));
    let objects: Vec<Json> =
        (0..10_000).rev().map(|number| json!({ "name": format!("{number:05}") })).collect();
    let all = aggregate(&objects, &question);
    assert!(all.has_more_groups());
    assert_eq!(all.items(), 10_000);
    let keys: Vec<&str> = all.groups().filter_map(|(key, _, _)| key[0].as_deref()).collect();
    assert_eq!((keys.len(), keys[0], keys[99]), (GROUPS_MAX, "00000", "00099"));
}

#[test]
fn rows_and_ranked_objects_have_limits_and_ties_have_an_order() {
    let question = question(&json!({ "top": { "count": 2, "by": ".n" }, "select": [".n"] }));
    let object =
        |name: usize| json!({ "metadata": { "name": format!("{name:04}"), "namespace": "x" }, "n": 1 });
    let objects: Vec<Json> = (0..ROWS_MAX + 1).rev().map(object).collect();
    let mut all = aggregate(&objects, &question);
    all.set_cluster("edge-a");
    assert!(all.has_more_rows());
    assert_eq!(all.rows().count(), ROWS_MAX);
    let top: Vec<(&str, &str)> = all.top().map(|item| (item.name.as_str(), item.cluster.as_str())).collect();
    assert_eq!(top, [("0000", "edge-a"), ("0001", "edge-a")]);
}

#[test]
fn a_sum_beyond_what_it_can_hold_is_an_error() {
    let question = question(&json!({ "values": [{ "sum": ".n" }] }));
    let huge = "999999999999999999999999999999";
    let text = json!({ "summary": { "items": 1, "groups": [{ "key": [], "count": 1, "figures": [{ "count": 1, "sum": huge }] }] } });
    let decoded = EdgeAnswer::decode(text.to_string().as_bytes(), &question);
    assert_eq!(decoded, Err(AnswerFault::NotJson));
    let large = "99999999999999999999999999999";
    let text = text.to_string().replace(huge, large);
    let Ok(EdgeAnswer::Summary(one)) = EdgeAnswer::decode(text.as_bytes(), &question) else {
        panic!("{text}")
    };
    let mut sum = one.clone();
    assert_eq!(sum.merge(one.clone(), &question), Err(SumOverflow));
}

#[test]
fn an_answer_is_read_as_it_was_written_and_checked() {
    let question = question(
        &json!({ "groupBy": [".a"], "values": [{ "min": ".n" }], "top": { "count": 1, "by": ".n" }, "select": [".a"] }),
    );
    let answer = EdgeAnswer::Summary(aggregate(
        &[
            json!({ "metadata": { "name": "x" }, "a": "ü".repeat(400), "n": 3 }),
            json!({ "a": "k", "n": "1Ki" }),
        ],
        &question,
    ));
    assert_eq!(EdgeAnswer::decode(&answer.encode().unwrap(), &question), Ok(answer));
    let failed = EdgeAnswer::Failed(EdgeFailure::new("NotAList", "no list"));
    assert_eq!(EdgeAnswer::decode(&failed.encode().unwrap(), &question), Ok(failed));
    for (summary, fault) in [
        (
            json!({ "items": 1, "groups": [{ "key": [], "count": 1, "figures": [{ "count": 0 }] }] }),
            AnswerFault::OtherQuestion,
        ),
        (json!({ "items": 1, "groups": [{ "key": ["a"], "count": 1 }] }), AnswerFault::OtherQuestion),
        (
            json!({ "items": 1, "groups": [{ "key": ["a"], "count": 1, "figures": [{ "count": 1, "sum": "1" }] }] }),
            AnswerFault::OtherQuestion,
        ),
        (
            json!({ "items": 1, "top": [{ "value": "1", "name": "a" }, { "value": "1", "name": "b" }] }),
            AnswerFault::OtherQuestion,
        ),
        (json!({ "items": 1, "rows": [{ "name": "a", "cells": [] }] }), AnswerFault::OtherQuestion),
        (json!({ "items": -1 }), AnswerFault::NotJson),
        (json!([]), AnswerFault::NotJson),
    ] {
        let text = json!({ "summary": summary }).to_string();
        assert_eq!(EdgeAnswer::decode(text.as_bytes(), &question), Err(fault), "{text}");
    }
    assert_eq!(EdgeAnswer::decode(&vec![b' '; ENCODED_BYTES_MAX + 1], &question), Err(AnswerFault::TooLong));
}

#[test]
fn an_aggregate_with_too_many_bytes_is_not_sent() {
    let question = question(&json!({ "groupBy": [".a", ".b", ".c"] }));
    let object = |number: usize| {
        let long = format!("{number:0>250}");
        json!({ "a": long, "b": long, "c": long })
    };
    let objects: Vec<Json> = (0..GROUPS_MAX).map(object).collect();
    let answer = EdgeAnswer::Summary(aggregate(&objects, &question));
    let TooLarge(bytes) = answer.encode().unwrap_err();
    assert!(bytes > ENCODED_BYTES_MAX);
}

/// Objects with few different names and values, so that groups, ties and faults are frequent. One object is in up to 60 groups.
fn objects() -> impl Strategy<Value = Vec<Json>> {
    let number = prop_oneof![
        (-50_i64..50).prop_map(|n| json!(n)),
        (0_u32..2000).prop_map(|n| json!(format!("{n}m"))),
        Just(json!("9223372036854775807")),
        Just(json!("2024-01-01T00:00:00Z")),
        Just(json!("none")),
        Just(json!(null)),
    ];
    let object = (0_u32..40, number, 0_u32..200, 0_u32..60, 0_u32..3).prop_map(|(name, n, key, keys, few)| {
        let keys: Vec<u32> = (key..key + keys).collect();
        json!({ "metadata": { "name": format!("p{name}"), "namespace": few.to_string() }, "n": n, "keys": keys, "few": few })
    });
    prop::collection::vec(object, 0..4)
}

/// Merges aggregates by a random tree: each number takes two of them and puts the sum back.
fn merged_by_tree(mut parts: Vec<Aggregate>, order: &[usize], question: &Question) -> Aggregate {
    let mut order = order.iter().cycle();
    while parts.len() > 1 {
        let left = parts.swap_remove(order.next().unwrap() % parts.len());
        let at = order.next().unwrap() % parts.len();
        parts[at].merge(left, question).unwrap();
    }
    parts.pop().unwrap_or_default()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    /// The clusters of a fleet are merged in any tree and any order, and the result is that of all objects in one place.
    #[test]
    fn any_tree_and_any_order_of_merging_equal_flat(
        clusters in prop::collection::vec(objects(), 1..7),
        order in prop::collection::vec(any::<usize>(), 2..16),
        by_key in any::<bool>(),
        top in 1_usize..6,
    ) {
        let group_by = if by_key { json!([".keys[*]"]) } else { json!([".few", ".keys"]) };
        let question = question(&json!({
            "groupBy": group_by,
            "values": [{ "sum": ".n" }, { "min": ".n" }, { "max": ".n" }, { "avg": ".n" }, { "count": ".n" }],
            "top": { "count": top, "by": ".n" },
            "select": [".n"],
        }));
        let mut flat = Aggregate::default();
        let mut parts = Vec::new();
        for (number, objects) in clusters.iter().enumerate() {
            let mut part = aggregate(objects, &question);
            part.set_cluster(&format!("c{number}"));
            flat.merge(part.clone(), &question).unwrap();
            parts.push(part);
        }
        prop_assert_eq!(encoded(&merged_by_tree(parts, &order, &question)), encoded(&flat));
        // One agent that had all objects would say the same but for the names of clusters.
        let all: Vec<Json> = clusters.concat();
        let mut one = aggregate(&all, &question);
        one.set_cluster("");
        let (one, flat) = (encoded(&one), encoded(&flat));
        for part in ["items", "groups", "overflow", "unreadable"] {
            prop_assert_eq!(&one[part], &flat[part]);
        }
    }
}
