//! Prints a summary as tables: its groups, its greatest objects and its rows, and the counts of clusters.

use serde_json::Value;
use summary::Figure;

use crate::args::SummarizeArgs;
use crate::print;

/// The tables of a summary.
pub(super) fn lines(document: &Value, args: &SummarizeArgs) -> Vec<String> {
    let summary = &document["summary"];
    let mut lines = Vec::new();
    // Where objects are named, one group of all of them says little.
    if !args.by.is_empty() || !figures(args).is_empty() || (args.top.is_none() && args.select.is_empty()) {
        lines.extend(groups(summary, args));
    }
    if let Some(top) = &args.top {
        let by = top.split_once(':').map_or("", |(_, by)| by);
        lines.extend(objects(&summary["top"], &[by], |item| vec![cell(&item["value"])]));
    }
    if !args.select.is_empty() {
        let paths: Vec<&str> = args.select.iter().map(String::as_str).collect();
        lines.extend(objects(&summary["rows"], &paths, |row| list(&row["cells"]).iter().map(cell).collect()));
    }
    lines
}

/// The notes about a summary: what is missing in it, and the counts of clusters.
pub(super) fn notes(document: &Value) -> Vec<String> {
    let summary = &document["summary"];
    let mut notes = Vec::new();
    if summary["overflow"] == true {
        notes.push("there are more groups: these are the first of them in their order".to_owned());
    }
    if summary["rowsOverflow"] == true {
        notes.push("there are more objects: these are the first of them in their order".to_owned());
    }
    let unreadable = summary["unreadable"]["count"].as_u64().unwrap_or_default();
    if unreadable > 0 {
        let first = summary["unreadable"]["first"].as_str().unwrap_or_default();
        notes.push(format!("{unreadable} fields cannot be read and are not counted: {first}"));
    }
    let clusters = list(&document["clusters"]);
    let failed: Vec<&Value> = clusters.iter().filter(|cluster| cluster["state"] == "Failed").collect();
    for cluster in &failed {
        let text = |name: &str| cluster[name].as_str().unwrap_or_default();
        notes.push(format!("{}: {}: {}", text("name"), text("reason"), text("message")));
    }
    let (asked, failed) = (clusters.len(), failed.len());
    notes.push(format!("clusters: asked {asked}, answered {}, failed {failed}", asked - failed));
    notes
}

fn groups(summary: &Value, args: &SummarizeArgs) -> Vec<String> {
    let figures = figures(args);
    let head = args.by.iter().cloned().chain(["COUNT".to_owned()]);
    let mut rows: Vec<Vec<String>> = vec![
        head.chain(figures.iter().map(|(word, path)| format!("{}({path})", word.to_uppercase()))).collect(),
    ];
    for group in list(&summary["groups"]) {
        let key = list(&group["key"]).iter().map(cell);
        let values =
            figures.iter().zip(list(&group["figures"])).map(|((word, _), figure)| value(word, figure));
        rows.push(key.chain([group["count"].to_string()]).chain(values).collect());
    }
    print::columns(&rows)
}

/// The figures of the question, in its order.
fn figures(args: &SummarizeArgs) -> Vec<(&'static str, &String)> {
    let words = [
        ("count", &args.count),
        ("sum", &args.sum),
        ("min", &args.min),
        ("max", &args.max),
        ("avg", &args.avg),
    ];
    words.into_iter().flat_map(|(word, paths)| paths.iter().map(move |path| (word, path))).collect()
}

fn value(word: &str, figure: &Value) -> String {
    let Ok(figure) = serde_json::from_value::<Figure>(figure.clone()) else { return print::none() };
    let text = match word {
        "count" => Some(figure.count.to_string()),
        "sum" => figure.sum.map(|sum| sum.to_string()),
        "avg" => figure.mean().map(|mean| mean.to_string()),
        "min" => figure.min.map(|least| least.to_string()),
        _ => figure.max.map(|greatest| greatest.to_string()),
    };
    text.unwrap_or_else(print::none)
}

/// A table of objects, each with its cluster and some fields.
fn objects(items: &Value, fields: &[&str], cells: impl Fn(&Value) -> Vec<String>) -> Vec<String> {
    let head = ["CLUSTER", "NAMESPACE", "NAME"].iter().chain(fields);
    let mut rows: Vec<Vec<String>> = vec![head.map(|name| (*name).to_owned()).collect()];
    for item in list(items) {
        let names = ["cluster", "namespace", "name"].map(|name| cell(&item[name]));
        rows.push(names.into_iter().chain(cells(item)).collect());
    }
    print::columns(&rows)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn cell(value: &Value) -> String {
    value.as_str().map_or_else(print::none, str::to_owned)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        args: SummarizeArgs,
    }

    fn args(words: &[&str]) -> SummarizeArgs {
        Words::parse_from([&["summarize", "pods"], words].concat()).args
    }

    #[test]
    fn groups_and_their_figures_are_a_table_and_missing_values_are_named() {
        let document = json!({ "clusters": [], "summary": { "items": 3, "groups": [
            { "key": [null], "count": 1, "figures": [{ "count": 0, "sum": "0" }, { "count": 0, "sum": "0" }] },
            { "key": ["Running"], "count": 2, "figures": [{ "count": 2, "sum": "3" }, { "count": 2, "sum": "3" }] },
        ] } });
        let lines = lines(&document, &args(&["--by", ".phase", "--sum", ".n", "--avg", ".n"]));
        assert_eq!(
            lines,
            [
                ".phase    COUNT   SUM(.n)   AVG(.n)",
                "<none>    1       0         <none>",
                "Running   2       3         1.5",
            ]
        );
    }

    #[test]
    fn named_objects_come_with_their_clusters() {
        let document = json!({ "summary": { "top": [{ "value": "3", "name": "a", "cluster": "edge-1" }] } });
        let lines = lines(&document, &args(&["--top", "1:.n"]));
        assert_eq!(lines, ["CLUSTER   NAMESPACE   NAME   .n", "edge-1    <none>      a      3"]);
    }

    #[test]
    fn notes_say_what_is_missing_and_count_the_clusters() {
        let document = json!({
            "clusters": [
                { "name": "a", "state": "Fresh" },
                { "name": "b", "state": "Failed", "reason": "Timeout", "message": "cluster b has not answered in time" },
            ],
            "summary": { "overflow": true, "unreadable": { "count": 2, "first": ".n of x: it is a list" } },
        });
        assert_eq!(
            notes(&document),
            [
                "there are more groups: these are the first of them in their order",
                "2 fields cannot be read and are not counted: .n of x: it is a list",
                "b: Timeout: cluster b has not answered in time",
                "clusters: asked 2, answered 1, failed 1",
            ]
        );
    }
}
