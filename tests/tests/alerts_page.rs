//! Every alert leads to a heading that says what to do.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;
use tests::sources;

const PAGE: &str = "docs/operate/monitoring.md";

#[test]
fn every_alert_has_a_runbook_whose_heading_exists() {
    let root = sources::workspace();
    let read =
        |path: &str| fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let page = read(PAGE);
    let headings: BTreeSet<&str> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let alerts: Value = serde_saphyr::from_str(&read("deploy/prometheus/alerts.yaml")).expect("YAML");

    let groups = alerts["groups"].as_array().expect("groups");
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().expect("rules"));
    let mut names = BTreeSet::new();
    for rule in rules.filter(|rule| rule["record"].is_null()) {
        let name = rule["alert"].as_str().expect("a name");
        let runbook = format!("{PAGE}#{}", name.to_ascii_lowercase());
        assert_eq!(rule["annotations"]["runbook_url"], runbook, "{name}");
        names.insert(name);
    }

    assert_eq!(headings, names);
}
