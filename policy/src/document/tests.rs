//! The reference of policy.yaml is that of the code, and its schema has the words that the rules take.

use std::collections::BTreeSet;

use reference::{compare, configuration_page, file_schema, schema_of};
use serde_json::{Value, json};

use super::*;
use crate::Rules;
use crate::action::Verb;

/// The head of every file of the project. The crate that reads it is above this one.
const API_VERSION: &str = "tombolo.dev/v1alpha1";

const ALL_MODES: &str = "\
rules:
- name: some-actions
  effect: Allow
  subjects: [{ method: token, user: ann }]
  clusters: { labelSelector: { matchExpressions: [{ key: stage, operator: Exists }] } }
  mode: kube-api
  actions: [{ verbs: [get], apiGroups: ['*'], resources: ['*'], namespaces: ['*'], nonResourceURLs: [/version] }]
- name: some-targets
  effect: Allow
  subjects: [{ method: token, user: ann }]
  clusters: { names: [edge-a] }
  mode: dial
  targets: [{ hosts: [10.0.0.0/8], ports: [443] }]
- name: some-identities
  effect: Allow
  subjects: [{ method: token, user: ann }]
  clusters: { names: [edge-a] }
  mode: impersonate
  identities: [{ users: [bob] }]
";

#[test]
fn the_reference_has_the_keys_of_policy_yaml() {
    let schema = schema();
    compare("tombolo-policy.schema.json", &format!("{schema:#}\n"));
    compare("policy.yaml.md", &configuration_page(include_str!("reference_head.md"), &schema));
}

/// Each word of the schema is tried in a policy in which it has its place.
#[test]
fn a_policy_with_any_word_of_the_schema_is_valid() {
    let rule = &schema()["properties"]["rules"]["items"]["properties"];
    let expressions = &rule["clusters"]["properties"]["labelSelector"]["properties"]["matchExpressions"];
    let operator = &expressions["items"]["properties"]["operator"];
    let verbs = &rule["actions"]["items"]["properties"]["verbs"]["items"];
    let mut tried = 0;
    for (schema, from, before) in [
        (&rule["effect"], "effect: Allow", "effect: "),
        (operator, "operator: Exists", "operator: "),
        (verbs, "verbs: [get]", "verbs: "),
    ] {
        for word in words(schema) {
            let word = if before == "verbs: " { format!("['{word}']") } else { word };
            let values = if word.ends_with("In") { ", values: [live]" } else { "" };
            let text = ALL_MODES.replacen(from, &format!("{before}{word}{values}"), 1);
            let document = serde_saphyr::from_str::<Document>(&text).expect(&text);
            assert!(Rules::from_document(&document).is_ok(), "{text}");
            tried += 1;
        }
    }
    assert_eq!(tried, 2 + 4 + 1 + Verb::ALL.len());
    let modes: BTreeSet<&str> =
        ALL_MODES.lines().filter_map(|line| line.trim().strip_prefix("mode: ")).collect();
    assert_eq!(words(&rule["mode"]).iter().map(String::as_str).collect::<BTreeSet<_>>(), modes);
}

/// The keys that the schema requires are those without which no rule of any mode is valid.
#[test]
fn a_policy_without_a_key_that_the_schema_requires_is_refused() {
    let rule = &schema()["properties"]["rules"]["items"];
    let part = |list: &str| &rule["properties"][list]["items"];
    let expressions =
        &rule["properties"]["clusters"]["properties"]["labelSelector"]["properties"]["matchExpressions"];
    let mut tried = 0;
    for (schema, place) in [
        (rule, "/rules/0"),
        (part("subjects"), "/rules/0/subjects/0"),
        (&expressions["items"], "/rules/0/clusters/labelSelector/matchExpressions/0"),
        (part("actions"), "/rules/0/actions/0"),
        (part("targets"), "/rules/1/targets/0"),
    ] {
        for key in schema["required"].as_array().unwrap() {
            let key = key.as_str().unwrap();
            let mut policy: Value = serde_saphyr::from_str(ALL_MODES).unwrap();
            policy.pointer_mut(place).unwrap().as_object_mut().unwrap().remove(key).unwrap();
            let document = serde_saphyr::from_str::<Document>(&policy.to_string()).unwrap();
            let refused = Rules::from_document(&document).expect_err(key).to_string();
            assert!(refused.contains(&format!("{key}: nothing")), "{place} {key}: {refused}");
            tried += 1;
        }
    }
    assert_eq!(tried, 5 + 1 + 2 + 1 + 2);
}

/// The schema of an entry of `verbs`.
pub(super) fn verb_schema() -> Value {
    let verbs: Vec<&str> = ["*"].into_iter().chain(Verb::ALL.map(Verb::as_str)).collect();
    json!({ "type": "string", "enum": verbs })
}

/// The schema of an entry of `ports`: YAML without quotes makes a number of it.
pub(super) fn port_schema() -> Value {
    json!({ "type": ["string", "integer"], "minimum": 1, "maximum": u16::MAX })
}

fn schema() -> Value {
    file_schema(KIND, "Policy of tunnel-server", API_VERSION, schema_of::<Document>())
}

fn words(schema: &Value) -> Vec<String> {
    schema["enum"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}
