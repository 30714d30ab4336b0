//! Names of Nodes, as Kubernetes has them: DNS-1123 subdomains.

use proto::cluster::is_dns_label;

/// Longest name of a Node, in bytes (RFC 1123, section 2.1).
const NAME_BYTES_MAX: usize = 253;

#[derive(Debug, thiserror::Error)]
#[error(
    "not a Node's name, which has at most 253 characters of a-z, 0-9, '-' and '.', and begins and ends with a letter or a digit"
)]
pub(crate) struct NotANodeName;

/// Parses the name that a machine's Node will have.
pub(crate) fn node_name(text: &str) -> Result<String, NotANodeName> {
    if text.len() <= NAME_BYTES_MAX && text.split('.').all(is_dns_label) {
        Ok(text.to_owned())
    } else {
        Err(NotANodeName)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_as_kubernetes_has_it() {
        for good in ["worker", "worker-1.site.example", "0a"] {
            assert_eq!(node_name(good).unwrap(), good);
        }
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        for bad in ["", "Worker", "worker_1", "-a", "a-", "a..b", ".", "a b", "a\n", &long] {
            assert!(node_name(bad).is_err(), "{bad}");
        }
    }
}
