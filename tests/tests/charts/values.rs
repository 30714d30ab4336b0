//! No value of a chart is dead: each changes what is rendered, or arrives there as it is.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};
use tests::helm::combinations::{COMBINATIONS, TENANT_LEAST};
use tests::helm::samples::{Samples, part, resolved};
use tests::helm::{folder, objects};

const SERVER: &str = "tombolo-server";
const AGENT: &str = "tombolo-agent";
const TENANT: &str = "tenant-control-plane";

/// Parts that the charts hand on as they are: a configuration, or a part of a Kubernetes object.
const HANDED_ON: [(&str, &[&str]); 3] = [
    (
        SERVER,
        &[
            "config",
            "policy",
            "affinity",
            "tolerations",
            "resources",
            "env",
            "networkPolicy.metricsFrom",
            "networkPolicy.from.gateway",
            "networkPolicy.from.tunnel",
            "networkPolicy.from.enrollment",
            "networkPolicy.from.proxy",
            "networkPolicy.from.socks",
            "networkPolicy.from.passthrough",
            "networkPolicy.from.admin",
            "networkPolicy.from.egress",
        ],
    ),
    (AGENT, &["config", "affinity", "tolerations", "resources", "env", "networkPolicy.metricsFrom"]),
    (
        TENANT,
        &[
            "tolerations",
            "etcd.data.resources",
            "etcd.event.resources",
            "apiserver.resources",
            "controllerManager.resources",
            "scheduler.resources",
        ],
    ),
];

/// A value by which Helm itself hands values to the charts of a release.
const OF_HELM: &str = "global";

/// The agent's chart makes no RBAC for system names of other forms.
const SYSTEM_NAME: &str = "system:serviceaccount:ci:deployer";

/// Each value is left out of a combination that has it. If nothing changes, the combination has the default, or no template
/// reads the value.
#[tokio::test]
async fn every_value_of_a_chart_changes_what_some_combination_renders() {
    let helm = helm!("every_value_of_a_chart_changes_what_some_combination_renders");
    for (chart, handed_on) in HANDED_ON {
        let mut combinations = Vec::new();
        for combination in COMBINATIONS.iter().filter(|combination| combination.chart == chart) {
            let rendered = helm.template(chart, combination.values).await;
            combinations.push((objects(combination.values).remove(0), rendered));
        }
        let schema = schema(chart);
        let mut values = BTreeSet::new();
        leaves(&schema, &schema, "", &mut values);
        values.retain(|value| {
            let is_below = |part: &&str| value == part || value.starts_with(&format!("{part}."));
            value != OF_HELM && !handed_on.iter().any(is_below)
        });
        assert!(values.len() > 30, "{values:?}");

        let mut dead = Vec::new();
        for value in values {
            let path: Vec<&str> = value.split('.').collect();
            let mut is_alive = false;
            for (values, rendered) in &combinations {
                let mut without = values.clone();
                is_alive = remove(&mut without, &path)
                    && helm.template(chart, &without.to_string()).await != *rendered;
                if is_alive {
                    break;
                }
            }
            if !is_alive {
                dead.push(value);
            }
        }

        assert_eq!(
            dead,
            Vec::<String>::new(),
            "{chart}: no combination renders something else by these values"
        );
    }
}

/// The samples have each key of the schema, so a key that a template forgets is noticed.
#[tokio::test]
async fn every_key_that_a_chart_hands_on_arrives_as_it_is() {
    let helm = helm!("every_key_that_a_chart_hands_on_arrives_as_it_is");
    for (chart, handed_on) in HANDED_ON {
        // An agent enrolls, or has certificates: with the second, the chart leaves the first out.
        let absent: &[&str] = if chart == AGENT { &["tls", "enrollment"] } else { &[""] };
        for absent in absent {
            let values = sample(chart, handed_on, absent);

            let rendered = helm.template(chart, &values.to_string()).await.unwrap();

            let rendered = objects(&rendered);
            let mut parts = Vec::new();
            rendered.iter().for_each(|object| add_parts(object, &mut parts));
            for path in handed_on {
                let sample = path.split('.').fold(&values, |value, key| &value[key]);
                let is_there = parts.iter().any(|part| is_within(sample, part));
                assert!(is_there, "{chart}: {path} is rendered nowhere as it is: {sample}");
            }
        }
    }
}

/// Values with a sample of each part, and without one key of the configuration.
fn sample(chart: &str, handed_on: &[&str], absent: &str) -> Value {
    let schema = schema(chart);
    let mut samples = Samples::new(&schema);
    let mut values = match chart {
        SERVER => json!({ "host": "gateway.example" }),
        TENANT => objects(TENANT_LEAST).remove(0),
        _ => json!({}),
    };
    for path in handed_on {
        let place = path.split('.').fold(&mut values, |value, key| &mut value[key]);
        *place = samples.of(part(&schema, path));
    }
    if chart == AGENT {
        values["config"]["impersonation"]["systemNames"] = json!([SYSTEM_NAME]);
    }
    if let Some(config) = values.get_mut("config").and_then(Value::as_object_mut) {
        config.remove(absent);
    }
    values
}

/// The paths of all values without keys of their own, lists without their brackets.
fn leaves(schema: &Value, part: &Value, path: &str, all: &mut BTreeSet<String>) {
    let part = resolved(schema, part);
    if part["type"] == "array" {
        return leaves(schema, &part["items"], path, all);
    }
    let Some(properties) = part["properties"].as_object() else {
        all.insert(path.to_owned());
        return;
    };
    for (key, part) in properties {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        leaves(schema, part, &path, all);
    }
}

/// Removes the value at this path, also from each entry of a list. Returns false if it was not there.
fn remove(values: &mut Value, path: &[&str]) -> bool {
    match (values, path) {
        (Value::Array(entries), _) => {
            let removed = entries.iter_mut().map(|entry| remove(entry, path));
            removed.filter(|is_gone| *is_gone).count() > 0
        }
        (Value::Object(keys), [last]) => keys.remove(*last).is_some(),
        (Value::Object(keys), [first, rest @ ..]) => {
            keys.get_mut(*first).is_some_and(|inner| remove(inner, rest))
        }
        _ => false,
    }
}

/// Every value within an object, and within the YAML files of a ConfigMap.
fn add_parts(value: &Value, parts: &mut Vec<Value>) {
    parts.push(value.clone());
    for inner in value.as_array().into_iter().flatten() {
        add_parts(inner, parts);
    }
    for (key, inner) in value.as_object().into_iter().flatten() {
        add_parts(inner, parts);
        if let Some(file) = inner.as_str().filter(|_| key.ends_with(".yaml")) {
            objects(file).iter().for_each(|file| add_parts(file, parts));
        }
    }
}

/// Returns true if a rendered part has each key of a sample, with the same value. It may have more keys.
fn is_within(sample: &Value, part: &Value) -> bool {
    match (sample, part) {
        (Value::Object(sample), Value::Object(part)) => {
            sample.iter().all(|(key, value)| part.get(key).is_some_and(|part| is_within(value, part)))
        }
        (Value::Array(sample), Value::Array(part)) => {
            sample.len() == part.len()
                && sample.iter().zip(part).all(|(sample, part)| is_within(sample, part))
        }
        (sample, part) => sample == part,
    }
}

fn schema(chart: &str) -> Value {
    let text = fs::read_to_string(folder(chart).join("values.schema.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}
