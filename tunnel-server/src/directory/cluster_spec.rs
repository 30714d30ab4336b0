//! Validation of a cluster's description: labels, networks and addresses to advertise.

use policy::{LABEL_BYTES_MAX, Network, Target, is_label_name, is_label_value};
use proto::cluster::is_dns_label;

use super::records::Cluster;

/// Most labels of a cluster.
pub const LABELS_MAX: usize = 32;

/// Most networks of a cluster.
pub const NETWORKS_MAX: usize = 16;

/// Most addresses that a cluster can advertise.
pub const ADDRESSES_MAX: usize = 256;

/// The reason why a description of a cluster is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterSpecError {
    /// A list has too many entries.
    #[error("a cluster has at most {max} {what}, not {found}")]
    TooMany {
        /// The kind of the entries.
        what: &'static str,
        /// The most entries that it can have.
        max: usize,
        /// The number of entries that it would have.
        found: usize,
    },
    /// The name of a label is invalid.
    #[error(
        "{0:?} is not the name of a label: use letters, digits, '-', '_' and '.', at most 63, after a domain and '/' if you like"
    )]
    LabelName(String),
    /// The value of a label is invalid.
    #[error("{0:?} is not the value of a label: use letters, digits, '-', '_' and '.', at most 63")]
    LabelValue(String),
    /// The name of a network is invalid.
    #[error("{0:?} is not the name of a network: use 1 to 63 lower-case letters, digits and '-'")]
    Network(String),
    /// An address to advertise is invalid.
    #[error(
        "{0:?} cannot be advertised: use HOST:PORT, such as 192.168.1.10:6443, or addresses as CIDR, such as 192.168.1.0/24"
    )]
    Address(String),
}

/// Checks each part of a cluster's description.
pub(super) fn validate(record: &Cluster) -> Result<(), ClusterSpecError> {
    let Cluster { created: _, labels, networks, advertise, tombstone: _ } = record;
    bounded("labels", labels.len(), LABELS_MAX)?;
    bounded("networks", networks.len(), NETWORKS_MAX)?;
    bounded("addresses to advertise", advertise.len(), ADDRESSES_MAX)?;
    for (name, value) in labels {
        if !is_label_name(name) {
            return Err(ClusterSpecError::LabelName(quoted(name)));
        }
        if !is_label_value(value) {
            return Err(ClusterSpecError::LabelValue(quoted(value)));
        }
    }
    if let Some(network) = networks.iter().find(|network| !is_dns_label(network)) {
        return Err(ClusterSpecError::Network(quoted(network)));
    }
    match advertise.iter().find(|address| !is_address(address)) {
        Some(address) => Err(ClusterSpecError::Address(quoted(address))),
        None => Ok(()),
    }
}

fn bounded(what: &'static str, found: usize, max: usize) -> Result<(), ClusterSpecError> {
    if found > max { Err(ClusterSpecError::TooMany { what, max, found }) } else { Ok(()) }
}

fn is_address(text: &str) -> bool {
    text.parse::<Network>().is_ok() || text.parse::<Target>().is_ok()
}

/// The beginning of a text for an error message, short enough that nobody can fill a log with it.
fn quoted(text: &str) -> String {
    text.chars().take(LABEL_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::directory::records::UnixSeconds;
    use policy::may_advertise;

    #[test]
    fn the_numbers_of_labels_networks_and_addresses_are_limited() {
        let of = |labels, networks, addresses| Cluster {
            labels: (0..labels).map(|n| (format!("l{n}"), String::new())).collect(),
            networks: (0..networks).map(|n| format!("net-{n}")).collect(),
            advertise: (0..addresses).map(|n| format!("10.0.0.{n}:6443")).collect(),
            ..nothing()
        };
        let too_many = |what, max| Err(ClusterSpecError::TooMany { what, max, found: max + 1 });

        assert_eq!(validate(&of(LABELS_MAX, NETWORKS_MAX, ADDRESSES_MAX)), Ok(()));
        assert_eq!(validate(&of(LABELS_MAX + 1, 0, 0)), too_many("labels", LABELS_MAX));
        assert_eq!(validate(&of(0, NETWORKS_MAX + 1, 0)), too_many("networks", NETWORKS_MAX));
        assert_eq!(validate(&of(0, 0, ADDRESSES_MAX + 1)), too_many("addresses to advertise", ADDRESSES_MAX));
    }

    #[test]
    fn an_invalid_text_is_quoted_up_to_the_length_of_a_label() {
        let long = "ä".repeat(LABEL_BYTES_MAX + 1);
        let short = "ä".repeat(LABEL_BYTES_MAX);
        let labelled = |name: &str, value: &str| {
            validate(&Cluster { labels: [(name.to_owned(), value.to_owned())].into(), ..nothing() })
        };

        assert_eq!(labelled(&long, ""), Err(ClusterSpecError::LabelName(short.clone())));
        assert_eq!(labelled("a", &long), Err(ClusterSpecError::LabelValue(short.clone())));
        let networks = vec!["plant-7".to_owned(), long.clone()];
        assert_eq!(
            validate(&Cluster { networks, ..nothing() }),
            Err(ClusterSpecError::Network(short.clone()))
        );
        let advertise = vec!["10.0.0.0/8".to_owned(), long];
        assert_eq!(validate(&Cluster { advertise, ..nothing() }), Err(ClusterSpecError::Address(short)));
    }

    /// A network covers its addresses on any port and no name. Every other entry covers exactly the target that it names.
    #[test]
    fn an_advertised_network_covers_any_port_and_a_target_itself_only() {
        let advertised = ["192.168.1.10:6443", "10.0.0.0/8", "api.site.example:6443"];
        let may =
            |target: &str| advertised.iter().any(|entry| may_advertise(entry, &target.parse().unwrap()));

        for target in
            ["192.168.1.10:6443", "[::ffff:192.168.1.10]:6443", "10.1.2.3:1", "API.site.example.:6443"]
        {
            assert!(may(target), "{target}");
        }
        for target in ["192.168.1.10:443", "192.168.1.11:6443", "11.0.0.1:1", "[a::a]:1", "site.example:6443"]
        {
            assert!(!may(target), "{target}");
        }
    }

    #[test]
    fn what_may_be_advertised_is_an_address_with_its_port_or_a_range() {
        for address in
            ["192.168.1.10:6443", "[fd00::1]:6443", "api.site.example:6443", "10.0.0.0/8", "fd00::/8"]
        {
            assert!(is_address(address), "{address:?}");
        }
        for address in [
            "",
            "192.168.1.10",
            "api:0",
            "api:x",
            "10.0.0.0/33",
            "10.0.0.1/8",
            "10.0.0.0/",
            "a/8",
            ":6443",
            "a b:1",
        ] {
            assert!(!is_address(address), "{address:?}");
        }
    }

    fn nothing() -> Cluster {
        Cluster {
            created: UnixSeconds(0),
            labels: BTreeMap::new(),
            networks: vec![],
            advertise: vec![],
            tombstone: None,
        }
    }
}
