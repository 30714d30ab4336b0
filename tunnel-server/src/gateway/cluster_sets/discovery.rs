//! The union of what clusters serve: API versions, groups and resources.

use serde_json::{Map, Value};

use super::accepted::Accepted;
use super::answer::SetAnswer;
use super::error::ClusterSetError;
use super::outcome::{Member, Outcome};
use super::question::Answered;
use super::report::Report;

/// The lists of discovery documents, unaggregated and aggregated. Other lists count as a whole.
const LISTS: [&str; 6] =
    ["groups", "items", "versions", "resources", "subresources", "serverAddressByClientCIDRs"];

/// The members that tell the entries of such a list apart. The first that an entry has counts.
const NAMES: [&str; 7] =
    ["/metadata/name", "/groupVersion", "/name", "/resource", "/subresource", "/version", "/clientCIDR"];

/// Makes the union of the answers. The first answer counts where two differ.
///
/// # Errors
/// No cluster has answered, or none has the group.
pub(super) fn merge(
    members: Vec<Member<Answered>>,
    accepted: Accepted,
) -> Result<SetAnswer, ClusterSetError> {
    let parse = |answered: Answered| match serde_json::from_slice(&answered.body) {
        Ok(Value::Object(document)) => Outcome::Fresh(document),
        Ok(_) | Err(_) => {
            Outcome::failed("NotDiscovery", "the cluster answered what is no discovery document")
        }
    };
    let parsed: Vec<_> = members.into_iter().map(|member| member.and_then(parse)).collect();
    let report = Report::of(&parsed);
    report.check_answered()?;
    let mut union = Map::new();
    for member in parsed {
        if let Outcome::Fresh(document) = member.outcome {
            join(&mut union, document);
        }
    }
    Ok(SetAnswer::json(Value::Object(union).to_string(), accepted, report))
}

/// Adds what is not there yet. Documents of another kind add nothing.
fn join(union: &mut Map<String, Value>, document: Map<String, Value>) {
    if union.contains_key("kind") && union.get("kind") != document.get("kind") {
        return;
    }
    for (name, value) in document {
        match (union.get_mut(&name), value) {
            (None, value) => drop(union.insert(name, value)),
            (Some(Value::Array(own)), Value::Array(further)) if LISTS.contains(&name.as_str()) => {
                further.into_iter().for_each(|entry| join_entry(own, entry));
            }
            (Some(_), _) => {}
        }
    }
}

/// Adds an entry. One that is there gets the versions and resources that it lacks.
fn join_entry(own: &mut Vec<Value>, entry: Value) {
    let name = name_of(&entry).cloned();
    match (own.iter().position(|other| name_of(other) == name.as_ref()), entry) {
        (None, entry) => own.push(entry),
        (Some(at), Value::Object(entry)) => {
            if let Some(Value::Object(own)) = own.get_mut(at) {
                join(own, entry);
            }
        }
        (Some(_), _) => {}
    }
}

/// The name of an entry. The versions of the core group are strings.
fn name_of(entry: &Value) -> Option<&Value> {
    if entry.is_string() { Some(entry) } else { NAMES.iter().find_map(|name| entry.pointer(name)) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn member(name: &str, document: Option<Value>) -> Member<Answered> {
        let outcome = match document {
            Some(document) => {
                Outcome::Fresh(Answered { body: document.to_string().into(), content_type: None })
            }
            None => Outcome::failed("Timeout", "late"),
        };
        Member::new(name.parse().unwrap(), outcome)
    }

    fn merged(members: Vec<Member<Answered>>) -> Value {
        serde_json::from_slice(&merge(members, Accepted::Json).unwrap().body()).unwrap()
    }

    #[test]
    fn a_set_serves_what_any_of_its_clusters_serves() {
        let group = |name: &str, versions: &[&str]| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| json!({ "groupVersion": format!("{name}/{version}") }))
                .collect();
            json!({ "name": name, "versions": versions, "preferredVersion": versions[0] })
        };
        let groups =
            |groups: &[Value]| json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups });
        let union = merged(vec![
            member("a", Some(groups(&[group("apps", &["v1"])]))),
            member("b", Some(groups(&[group("x.io", &["v2"]), group("apps", &["v1", "v2"])]))),
            member("c", None),
        ]);
        let apps = json!({ "name": "apps", "versions": [{ "groupVersion": "apps/v1" }, { "groupVersion": "apps/v2" }], "preferredVersion": { "groupVersion": "apps/v1" } });
        assert_eq!(union, groups(&[apps, group("x.io", &["v2"])]));

        let resources = |names: &[&str]| {
            let resources: Vec<Value> =
                names.iter().map(|name| json!({ "name": name, "verbs": ["get"] })).collect();
            json!({ "kind": "APIResourceList", "groupVersion": "v1", "resources": resources })
        };
        let union = merged(vec![
            member("a", Some(resources(&["pods"]))),
            member("b", Some(resources(&["pods", "nodes"]))),
        ]);
        assert_eq!(union, resources(&["pods", "nodes"]));

        let core = |version: &str| json!({ "kind": "APIVersions", "versions": [version] });
        let union = merged(vec![member("a", Some(core("v1"))), member("b", Some(core("v1")))]);
        assert_eq!(union, core("v1"));
    }

    /// kubectl asks for this form first: <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#aggregated-discovery>.
    #[test]
    fn aggregated_discovery_has_the_resources_of_all() {
        let group = |name: &str, resources: &[&str]| {
            let resources: Vec<Value> =
                resources.iter().map(|name| json!({ "resource": name, "verbs": ["list"] })).collect();
            json!({ "metadata": { "name": name }, "versions": [{ "version": "v1", "resources": resources }] })
        };
        let list = |groups: &[Value]| json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": groups });
        let union = merged(vec![
            member("a", Some(list(&[group("apps", &["deployments"])]))),
            member(
                "b",
                Some(list(&[group("x.io", &["islands"]), group("apps", &["deployments", "daemonsets"])])),
            ),
            member("c", Some(json!({ "kind": "APIGroupList", "groups": [] }))),
        ]);
        assert_eq!(
            union,
            list(&[group("apps", &["deployments", "daemonsets"]), group("x.io", &["islands"])])
        );
    }

    #[test]
    fn discovery_fails_if_nobody_answers_with_a_document() {
        let refused = merge(vec![member("a", None), member("b", Some(json!([1])))], Accepted::Json).err();
        assert!(matches!(refused, Some(ClusterSetError::NobodyAnswered(_))), "{refused:?}");
    }
}
