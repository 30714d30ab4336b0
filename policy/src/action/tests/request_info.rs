//! Compares paths and verbs with the results of kube-apiserver's own code.

use super::*;

/// The output of `tests/kube/kubernetes/requestinfo`, which is built with the pinned release.
const TABLE: &str = include_str!("request_info.tsv");

#[test]
fn a_request_is_read_as_kube_apiserver_reads_it() {
    let mut wrong = Vec::new();
    let (mut rows, mut refused) = (0, 0);
    for row in TABLE.lines() {
        let cells: Vec<&str> = row.split('\t').collect();
        let [method, target, ..] = cells.as_slice() else { panic!("{row}") };
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let action = match Action::of_cluster("edge-a".parse().unwrap(), &method, target, None) {
            Ok(action) => action,
            // Others could read these in another way than Go.
            Err(ActionError::Semicolon | ActionError::AmbiguousWatch) => {
                refused += 1;
                continue;
            }
            Err(error) => panic!("{row}: {error}"),
        };
        let (ours, theirs) = (ours(&action), theirs(&cells, &action));
        if ours != theirs {
            wrong.push(format!("{row}\n  ours   {ours:?}\n  theirs {theirs:?}"));
        }
        rows += 1;
    }
    assert!(wrong.is_empty(), "{} of {rows}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(rows > 1_000 && refused < rows / 20, "{rows} {refused}");
}

/// Verb, group, resource, subresource, namespace and name, or the verb and the path.
fn ours(action: &Action) -> Vec<String> {
    let verb = action.verb().to_string();
    match action.object() {
        Object::Path(path) => vec![verb, path.clone()],
        Object::Resource(Resource { group, resource, subresource, namespace, name }) => {
            let or_empty = |text: &Option<String>| text.clone().unwrap_or_default();
            vec![
                verb,
                group.clone(),
                resource.clone(),
                or_empty(subresource),
                or_empty(namespace),
                or_empty(name),
            ]
        }
    }
}

/// The same of a row, in our words where ours differ on purpose.
fn theirs(cells: &[&str], action: &Action) -> Vec<String> {
    let [_, target, kind, verb, group, resource, subresource, namespace, name, path] = *cells else {
        panic!("{cells:?}")
    };
    if kind == "path" {
        return [verb, path].map(str::to_owned).into();
    }
    let (verb, subresource) = match (verb, subresource) {
        // A deprecated form of a subresource.
        ("proxy", _) => ("connect", "proxy"),
        (_, subresource @ ("exec" | "attach" | "portforward" | "proxy" | "ephemeralcontainers")) => {
            ("connect", subresource)
        }
        ("", subresource) => ("options", subresource),
        same => same,
    };
    // A field selector names no object here: only the path does.
    let by_selector = target.contains("fieldSelector=metadata.name") && action.path().path().ends_with("s");
    let name = if by_selector { "" } else { name };
    [verb, group, resource, subresource, namespace, name].map(str::to_owned).into()
}
