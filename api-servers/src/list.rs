//! Paths of lists and of their watches, and the versions of lists.

use serde::Deserialize;

/// The list with only the EndpointSlice of the Service `kubernetes`, which API servers keep themselves, so
/// that RBAC can name it.
pub const KUBERNETES_SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices\
                                     ?fieldSelector=metadata.name%3Dkubernetes";

/// Most API servers of one cluster that a worker's load balancer takes.
pub const NODE_LB_API_SERVERS_MAX: usize = 32;

#[derive(Deserialize)]
struct VersionedList {
    metadata: Option<ListMetadata>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: Option<String>,
}

/// The path of a watch of the list at `path`, which has a query.
#[must_use]
pub fn watch_path(path: &str, version: &str, seconds: u64) -> String {
    let version = percent_encoded(version);
    format!("{path}&watch=true&resourceVersion={version}&timeoutSeconds={seconds}")
}

/// The version of a list. Empty, which means any version, if it has none.
#[must_use]
pub fn list_version(answer: &[u8]) -> String {
    let versioned: Option<VersionedList> = serde_json::from_slice(answer).ok();
    versioned.and_then(|versioned| versioned.metadata?.resource_version).unwrap_or_default()
}

/// Encodes a text for a query. Only unreserved characters stay (RFC 3986, section 2.3).
#[must_use]
pub fn percent_encoded(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_a_version() {
        assert_eq!(list_version(br#"{"metadata":{"resourceVersion":"17"},"items":[]}"#), "17");
        assert_eq!(list_version(b"{}"), "");
    }

    #[test]
    fn a_version_reaches_no_further_than_its_place_in_the_query() {
        let path = watch_path(KUBERNETES_SLICES, "7&x=1", 60);

        assert!(path.ends_with("&watch=true&resourceVersion=7%26x%3D1&timeoutSeconds=60"), "{path}");
    }
}
