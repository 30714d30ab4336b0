//! Finds the path of a resource by its name, by the discovery documents.

use serde_json::Value;

use super::{SummarizeError, get};
use crate::https::HttpsConnection;

/// Most API groups that are searched.
const GROUPS_MAX: usize = 100;

/// A resource that can be listed.
pub(super) struct Resource {
    /// The path of its group: `/api/v1`, or `/apis/GROUP/VERSION`.
    pub(super) group_path: String,
    /// The plural name, as in paths.
    pub(super) name: String,
    pub(super) is_namespaced: bool,
}

/// Finds a resource by its plural, singular or short name, with or without its group: `deploy`, `deployments.apps`.
///
/// # Errors
/// There is none, or the gateway does not answer.
pub(super) async fn find(
    connection: &mut HttpsConnection,
    prefix: &str,
    wanted: &str,
) -> Result<Resource, SummarizeError> {
    let (name, group) = wanted.split_once('.').unwrap_or((wanted, ""));
    if group.is_empty() {
        let core = get(connection, &format!("{prefix}/api/v1")).await?;
        if let Some(found) = named(&core, name, "/api/v1") {
            return Ok(found);
        }
    }
    let groups = get(connection, &format!("{prefix}/apis")).await?;
    let groups = groups["groups"].as_array().into_iter().flatten().take(GROUPS_MAX);
    let wanted_groups = groups.filter(|entry| group.is_empty() || entry["name"] == group);
    let versions: Vec<String> = wanted_groups
        .filter_map(|entry| entry["preferredVersion"]["groupVersion"].as_str().map(str::to_owned))
        .collect();
    for version in versions {
        let path = format!("/apis/{version}");
        // A group whose own API server is away does not hide the others.
        let Ok(document) = get(connection, &format!("{prefix}{path}")).await else { continue };
        if let Some(found) = named(&document, name, &path) {
            return Ok(found);
        }
    }
    Err(SummarizeError::NoResource(wanted.to_owned()))
}

/// The resource of this name in a discovery document.
fn named(document: &Value, wanted: &str, group_path: &str) -> Option<Resource> {
    let resources = document["resources"].as_array()?;
    let is_it = |entry: &&Value| {
        let short =
            entry["shortNames"].as_array().is_some_and(|names| names.iter().any(|name| name == wanted));
        let is_listed =
            entry["verbs"].as_array().is_some_and(|verbs| verbs.iter().any(|verb| verb == "list"));
        is_listed && (entry["name"] == wanted || entry["singularName"] == wanted || short)
    };
    let found = resources.iter().find(is_it)?;
    Some(Resource {
        group_path: group_path.to_owned(),
        name: found["name"].as_str()?.to_owned(),
        is_namespaced: found["namespaced"] == true,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_resource_is_found_by_each_of_its_names() {
        let document = json!({ "resources": [
            { "name": "pods/log", "singularName": "", "namespaced": true, "verbs": ["get"] },
            { "name": "pods", "singularName": "pod", "shortNames": ["po"], "namespaced": true, "verbs": ["get", "list"] },
        ] });
        for name in ["pods", "pod", "po"] {
            let found = named(&document, name, "/api/v1").unwrap();
            assert_eq!((found.name.as_str(), found.is_namespaced), ("pods", true), "{name}");
        }
        assert!(named(&document, "pods/log", "/api/v1").is_none());
    }
}
