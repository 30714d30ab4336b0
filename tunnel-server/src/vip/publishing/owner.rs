//! The labels by which servers know their objects in the host cluster, and the names of these objects.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use aws_lc_rs::digest;
use serde_json::{Value, json};

use super::kind::ObjectKind;
use crate::directory::hexadecimal;

/// The field manager, and the value of the label that marks our objects.
pub(super) const FIELD_MANAGER: &str = "tombolo";

const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The label that names the server of an object.
const SERVER: &str = "tombolo.dev/server";

/// The label that names the servers of an object together: they share their records.
const TRUST_DOMAIN: &str = "tombolo.dev/trust-domain";

/// Longest value of a label in Kubernetes.
const LABEL_BYTES_MAX: usize = 63;

/// The owner of objects: one server alone, or all servers that share their records.
///
/// Services of servers that share records belong to all of them, and each EndpointSlice belongs to the server at its address.
#[derive(Debug, Clone)]
pub(super) struct Owner {
    server: String,
    /// The value of the label; `None` for a server alone.
    trust_domain: Option<String>,
}

impl Owner {
    /// The server `server`, and those of `trust_domain` that share its records, if any.
    pub(super) fn new(server: String, trust_domain: Option<&str>) -> Self {
        Self { server, trust_domain: trust_domain.map(label_value) }
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    pub(super) fn is_shared(&self) -> bool {
        self.trust_domain.is_some()
    }

    /// The name of the slice of a cluster. Neither part has a dot, so no two servers need the same name. With the longest parts it
    /// has 127 characters, of the 253 that a slice's name can have.
    pub(super) fn slice_name(&self, cluster: &str) -> String {
        if self.is_shared() { format!("{cluster}.{}", self.server) } else { cluster.to_owned() }
    }

    /// The labels of our objects.
    pub(super) fn labels(&self, kind: ObjectKind) -> Value {
        let mut labels = json!({ MANAGED_BY: FIELD_MANAGER });
        if let Some(domain) = &self.trust_domain {
            labels[TRUST_DOMAIN] = domain.as_str().into();
        }
        if !self.is_shared() || kind == ObjectKind::Slice {
            labels[SERVER] = self.server.as_str().into();
        }
        labels
    }

    /// The query of a list of our objects: the Services, and the slices of this server. Of several servers a Service that one
    /// of them made before it shared its records has no label of all, so it may list others' objects, too.
    pub(super) fn selector(&self, kind: ObjectKind) -> String {
        let mut query = managed();
        if !self.is_shared() || kind == ObjectKind::Slice {
            // Writing to a String cannot fail.
            let _ = write!(query, ",tombolo.dev%2Fserver%3D{}", self.server);
        }
        query
    }

    /// The query of a list of the slices of all servers except those that run.
    pub(super) fn selector_of_gone(running: &BTreeSet<String>) -> String {
        let running: Vec<&str> = running.iter().map(String::as_str).collect();
        format!(
            "{},tombolo.dev%2Fserver,tombolo.dev%2Fserver%20notin%20%28{}%29",
            managed(),
            running.join(",")
        )
    }

    /// Returns true if the labels say that the object is ours. `has_run` says which servers have ever shared the records: what
    /// one of these made before has only its own label.
    pub(super) fn is_ours(&self, found: &Value, has_run: impl Fn(&str) -> bool) -> bool {
        let labels = &found["metadata"]["labels"];
        let (server, domain) = (server_of(found), labels[TRUST_DOMAIN].as_str());
        labels[MANAGED_BY] == FIELD_MANAGER
            && match (&self.trust_domain, domain) {
                (None, _) => server == Some(&self.server),
                (Some(own), Some(found)) => own == found,
                (Some(_), None) => server.is_some_and(has_run),
            }
    }
}

/// The server that the labels of an object name.
pub(super) fn server_of(found: &Value) -> Option<&str> {
    found["metadata"]["labels"][SERVER].as_str()
}

fn managed() -> String {
    format!("?labelSelector=app.kubernetes.io%2Fmanaged-by%3D{FIELD_MANAGER}")
}

/// The text itself if it can be the value of a label, or a digest of it.
fn label_value(text: &str) -> String {
    let is_alphanumeric = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    if bytes.len() <= LABEL_BYTES_MAX && is_alphanumeric(bytes.first()) && is_alphanumeric(bytes.last()) {
        return text.to_owned();
    }
    hexadecimal(&digest::digest(&digest::SHA256, bytes).as_ref()[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> Owner {
        Owner::new("west".to_owned(), Some("edge.example"))
    }

    fn labelled(labels: &Value) -> Value {
        json!({ "metadata": { "name": "a", "labels": labels } })
    }

    #[test]
    fn an_object_of_a_server_alone_is_ours_by_both_labels() {
        let owner = Owner::new("gateway".to_owned(), None);
        let labels = owner.labels(ObjectKind::Service);
        assert!(owner.is_ours(&labelled(&labels), |_| false));
        let other = Owner::new("other".to_owned(), None);
        assert!(!other.is_ours(&labelled(&labels), |_| true));
        for label in [MANAGED_BY, SERVER] {
            let mut taken_over = labels.clone();
            taken_over.as_object_mut().unwrap().remove(label);
            assert!(!owner.is_ours(&labelled(&taken_over), |_| true), "{label}");
        }
        assert!(!owner.is_ours(&Value::Null, |_| true));
    }

    #[test]
    fn a_service_belongs_to_all_servers_and_a_slice_to_one() {
        let (west, east) = (shared(), Owner::new("east".to_owned(), Some("edge.example")));

        assert_eq!(west.labels(ObjectKind::Service), east.labels(ObjectKind::Service));
        assert_ne!(west.labels(ObjectKind::Slice), east.labels(ObjectKind::Slice));
        for kind in [ObjectKind::Service, ObjectKind::Slice] {
            assert!(west.is_ours(&labelled(&east.labels(kind)), |_| false), "{kind:?}");
        }
        let others = Owner::new("west".to_owned(), Some("other.example"));
        assert!(!west.is_ours(&labelled(&others.labels(ObjectKind::Slice)), |_| true), "of another domain");
    }

    /// So its Services stay when it shares its records from then on.
    #[test]
    fn objects_that_a_server_made_alone_are_of_all_if_it_has_run_among_them() {
        let alone = Owner::new("west".to_owned(), None);
        let found = labelled(&alone.labels(ObjectKind::Service));

        assert!(shared().is_ours(&found, |server| server == "west"));
        assert!(!shared().is_ours(&found, |server| server == "east"));
    }

    #[test]
    fn the_slices_of_no_two_servers_have_one_name() {
        let name =
            |server: &str, cluster| Owner::new(server.to_owned(), Some("edge.example")).slice_name(cluster);
        assert_eq!(name("west", "store"), "store.west");
        assert_ne!(name("west", "store-eu"), name("eu-west", "store"));
        assert_eq!(Owner::new("west".to_owned(), None).slice_name("store"), "store");
        let longest = "x".repeat(63);
        // RFC 1123, as Kubernetes checks the names of slices.
        assert!(name(&longest, &longest).len() <= 253);
        assert!(name(&longest, &longest).split('.').all(|label| label.len() <= 63));
    }

    #[test]
    fn a_trust_domain_that_can_be_no_label_becomes_its_digest() {
        for (domain, is_kept) in [
            ("edge.example", true),
            (&"x".repeat(LABEL_BYTES_MAX), true),
            (&"x".repeat(LABEL_BYTES_MAX + 1), false),
            ("edge.example.", false),
            ("_edge.example", false),
            ("", false),
        ] {
            let value = label_value(domain);
            assert_eq!(value == domain, is_kept, "{domain:?}");
            assert!(
                value.len() <= LABEL_BYTES_MAX && value.ends_with(|last: char| last.is_ascii_alphanumeric())
            );
        }
        assert_ne!(label_value(&"x".repeat(64)), label_value(&"x".repeat(65)));
    }

    #[test]
    fn the_slices_of_servers_that_run_are_not_listed_as_those_of_gone_ones() {
        let running = ["east", "west"].map(str::to_owned).into();
        let query = Owner::selector_of_gone(&running);
        assert!(query.ends_with("server,tombolo.dev%2Fserver%20notin%20%28east,west%29"), "{query}");
    }
}
