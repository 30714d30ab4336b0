//! The list `clusterSets`: clusters that are read together, chosen by the labels of their records.

use std::collections::BTreeMap;

use daemon::config::{KeyError, bounded};
use policy::{LabelSelector, NotALabelSelector, Operator, Requirement};
use proto::cluster::is_dns_label;
use serde::Deserialize;

use super::value::NAMES_MAX;

/// The set of all clusters, which is always there.
const GLOBAL: &str = "global";

/// Clusters that are read together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSet {
    /// The name of the set in `/clustersets/NAME`, a DNS label.
    pub name: String,
    /// The labels of its clusters. A server's own store has them, and no agent can set them.
    pub selector: LabelSelector,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawClusterSet {
    /// The name of the set, a DNS label. `global` is the set of all clusters, and is always there.
    #[cfg_attr(test, schemars(required))]
    name: Option<String>,
    /// The labels of its clusters. Without it, the set has all clusters.
    label_selector: Option<RawSelector>,
}

/// A label selector as Kubernetes writes it.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawSelector {
    /// Labels that a cluster has with these values.
    #[cfg_attr(test, schemars(extend("default" = {})))]
    match_labels: Option<BTreeMap<String, String>>,
    /// Further conditions on the labels of a cluster.
    #[cfg_attr(test, schemars(extend("default" = [])))]
    match_expressions: Option<Vec<RawRequirement>>,
}

/// A condition on one label.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawRequirement {
    /// The name of the label.
    key: String,
    /// In, `NotIn`, Exists or `DoesNotExist`.
    operator: RawOperator,
    /// Values for In and `NotIn`.
    #[cfg_attr(test, schemars(extend("default" = [])))]
    values: Option<Vec<String>>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
enum RawOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// The valid entries, and `global` where no entry has its name.
pub(super) fn cluster_sets(raw: Vec<RawClusterSet>) -> Result<Vec<ClusterSet>, KeyError> {
    bounded("clusterSets", raw.len(), 0..=NAMES_MAX)?;
    let mut sets: Vec<ClusterSet> = Vec::new();
    for (index, RawClusterSet { name, label_selector }) in raw.into_iter().enumerate() {
        let at = format!("clusterSets[{index}]");
        let name = name.unwrap_or_default();
        let refused = |allowed: &str| KeyError::new(format!("{at}.name"), format_args!("{name:?}"), allowed);
        if !is_dns_label(&name) {
            return Err(refused(
                "1 to 63 lower-case letters, digits and '-', with a letter or digit at both ends",
            ));
        }
        if name == GLOBAL {
            return Err(refused("another name, because global is the set of all clusters"));
        }
        if sets.iter().any(|other| other.name == name) {
            return Err(refused("a name of its own"));
        }
        let selector = selector(&format!("{at}.labelSelector"), label_selector.unwrap_or_default())?;
        sets.push(ClusterSet { name, selector });
    }
    let everything = selector(GLOBAL, RawSelector::default())?;
    sets.push(ClusterSet { name: GLOBAL.to_owned(), selector: everything });
    Ok(sets)
}

fn selector(at: &str, raw: RawSelector) -> Result<LabelSelector, KeyError> {
    let RawSelector { match_labels, match_expressions } = raw;
    let labels = match_labels.unwrap_or_default().into_iter();
    let mut conditions: Vec<(String, Operator)> =
        labels.map(|(key, value)| (key, Operator::In(vec![value]))).collect();
    for RawRequirement { key, operator, values } in match_expressions.unwrap_or_default() {
        let values = values.unwrap_or_default();
        conditions.push(match (operator, values.is_empty()) {
            (RawOperator::In, false) => (key, Operator::In(values)),
            (RawOperator::NotIn, false) => (key, Operator::NotIn(values)),
            (RawOperator::Exists, true) => (key, Operator::Exists),
            (RawOperator::DoesNotExist, true) => (key, Operator::DoesNotExist),
            (RawOperator::In | RawOperator::NotIn, true)
            | (RawOperator::Exists | RawOperator::DoesNotExist, false) => {
                let allowed = "values with In and NotIn, and none with Exists and DoesNotExist";
                return Err(KeyError::new(at, format_args!("{key} {operator:?} {values:?}"), allowed));
            }
        });
    }
    let requirements = conditions.into_iter().map(|(key, operator)| Requirement::new(key, operator));
    let requirements: Result<Vec<Requirement>, NotALabelSelector> = requirements.collect();
    let invalid = |error| KeyError::new(at, error, "labels as Kubernetes has them");
    requirements.map(LabelSelector::new).map_err(invalid)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parsed(sets: Value) -> Result<Vec<ClusterSet>, String> {
        let raw = serde_json::from_value(sets).map_err(|error| error.to_string())?;
        cluster_sets(raw).map_err(|error| error.to_string())
    }

    #[test]
    fn global_is_always_there_and_labels_choose_the_others() {
        let not_a_or_b = json!({ "key": "tier", "operator": "NotIn", "values": ["a", "b"] });
        let live = json!({ "matchLabels": { "stage": "live" }, "matchExpressions": [not_a_or_b] });
        let sets = parsed(json!([{ "name": "live", "labelSelector": live }])).unwrap();
        let names: Vec<&str> = sets.iter().map(|set| set.name.as_str()).collect();
        assert_eq!(names, ["live", "global"]);
        let labels = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        for (pairs, is_live) in [
            (&[("stage", "live")][..], true),
            (&[("stage", "live"), ("tier", "c")], true),
            (&[("stage", "live"), ("tier", "a")], false),
            (&[], false),
        ] {
            assert_eq!(sets[0].selector.selects(&labels(pairs)), is_live, "{pairs:?}");
            assert!(sets[1].selector.selects(&labels(pairs)), "{pairs:?}");
        }
    }

    #[test]
    fn an_invalid_set_is_refused_with_its_key() {
        let expression =
            |expression| json!([{ "name": "a", "labelSelector": { "matchExpressions": [expression] } }]);
        for (sets, part) in [
            (json!([{ "name": "Live" }]), "clusterSets[0].name"),
            (json!([{ "name": "global" }]), "global is the set of all clusters"),
            (json!([{ "name": "a" }, { "name": "a" }]), "clusterSets[1].name"),
            (json!([{ "labelSelector": {} }]), "clusterSets[0].name"),
            (
                json!([{ "name": "a", "labelSelector": { "matchLabels": { "-x": "y" } } }]),
                "clusterSets[0].labelSelector",
            ),
            // A value is one value, whatever a selector as text would make of it.
            (
                json!([{ "name": "a", "labelSelector": { "matchLabels": { "x": "y,z=1" } } }]),
                "clusterSets[0].labelSelector",
            ),
            (expression(json!({ "key": "x", "operator": "In" })), "x In []"),
            (expression(json!({ "key": "x", "operator": "Exists", "values": ["y"] })), "x Exists"),
        ] {
            let refused = parsed(sets.clone()).unwrap_err();
            assert!(refused.contains(part), "{sets}: {refused}");
        }
    }
}
