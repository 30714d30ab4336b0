//! What people may say of a cluster.

use std::net::{IpAddr, SocketAddr};

use proto::cluster::is_dns_label;

use super::records::Cluster;

/// Most labels of a cluster.
pub const LABELS_MAX: usize = 32;

/// Most networks of a cluster.
pub const NETWORKS_MAX: usize = 16;

/// Most addresses that a cluster may advertise.
pub const ADDRESSES_MAX: usize = 256;

/// Longest name or value of a label, as in Kubernetes.
const LABEL_BYTES_MAX: usize = 63;

/// Longest DNS name: the domain in front of a label's name, or an address (RFC 1035, section 2.3.4).
const DNS_NAME_BYTES_MAX: usize = 253;

/// Why something is not taken as said of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSaid {
    /// More than may be.
    #[error("a cluster has at most {max} {what}, not {found}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        max: usize,
        /// How many there would be.
        found: usize,
    },
    /// The name of a label.
    #[error(
        "{0:?} is not the name of a label: use letters, digits, '-', '_' and '.', at most 63, after a domain and '/' if you like"
    )]
    LabelName(String),
    /// The value of a label.
    #[error("{0:?} is not the value of a label: use letters, digits, '-', '_' and '.', at most 63")]
    LabelValue(String),
    /// The name of a network.
    #[error("{0:?} is not the name of a network: use 1 to 63 lower-case letters, digits and '-'")]
    Network(String),
    /// An address.
    #[error(
        "{0:?} cannot be advertised: use HOST:PORT, such as 192.168.1.10:6443, or addresses as CIDR, such as 192.168.1.0/24"
    )]
    Address(String),
}

/// Whether everything that is said of a cluster may be.
pub(super) fn check(said: &Cluster) -> Result<(), NotSaid> {
    let Cluster { created: _, labels, networks, advertise, tombstone: _ } = said;
    bounded("labels", labels.len(), LABELS_MAX)?;
    bounded("networks", networks.len(), NETWORKS_MAX)?;
    bounded("addresses to advertise", advertise.len(), ADDRESSES_MAX)?;
    for (name, value) in labels {
        if !is_label_name(name) {
            return Err(NotSaid::LabelName(quoted(name)));
        }
        if !value.is_empty() && !is_label_text(value) {
            return Err(NotSaid::LabelValue(quoted(value)));
        }
    }
    if let Some(network) = networks.iter().find(|network| !is_dns_label(network)) {
        return Err(NotSaid::Network(quoted(network)));
    }
    match advertise.iter().find(|address| !is_address(address)) {
        Some(address) => Err(NotSaid::Address(quoted(address))),
        None => Ok(()),
    }
}

fn bounded(what: &'static str, found: usize, max: usize) -> Result<(), NotSaid> {
    if found > max { Err(NotSaid::TooMany { what, max, found }) } else { Ok(()) }
}

/// As Kubernetes has it: <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/>.
fn is_label_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((domain, name)) => is_dns_name(domain) && is_label_text(name),
        None => is_label_text(text),
    }
}

fn is_label_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    bytes.len() <= LABEL_BYTES_MAX
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(fits)
}

fn is_dns_name(text: &str) -> bool {
    text.len() <= DNS_NAME_BYTES_MAX && text.split('.').all(is_dns_label)
}

fn is_address(text: &str) -> bool {
    if let Some((address, bits)) = text.split_once('/') {
        let most = address.parse::<IpAddr>().map(|address| if address.is_ipv4() { 32 } else { 128 });
        return most.is_ok_and(|most| bits.parse::<u8>().is_ok_and(|bits| bits <= most));
    }
    let is_named =
        |(host, port): (&str, &str)| is_dns_name(host) && port.parse::<u16>().is_ok_and(|port| port > 0);
    text.parse::<SocketAddr>().is_ok_and(|address| address.port() > 0)
        || text.rsplit_once(':').is_some_and(is_named)
}

/// A quotation, so that nobody can fill a log with it.
fn quoted(text: &str) -> String {
    text.chars().take(LABEL_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_those_of_kubernetes() {
        for name in ["a", "A.b-c_d", "example.com/site", "0"] {
            assert!(is_label_name(name), "{name:?}");
        }
        let long = "x".repeat(64);
        for name in ["", "-a", "a-", "a/b/c", "Example.com/a", "/a", "a/", "a b", "ä", long.as_str()] {
            assert!(!is_label_name(name), "{name:?}");
        }
    }

    #[test]
    fn what_may_be_advertised_is_an_address_with_its_port_or_a_range() {
        for address in
            ["192.168.1.10:6443", "[fd00::1]:6443", "api.site.example:6443", "10.0.0.0/8", "fd00::/8"]
        {
            assert!(is_address(address), "{address:?}");
        }
        for address in
            ["", "192.168.1.10", "api:0", "api:x", "10.0.0.0/33", "10.0.0.0/", "a/8", ":6443", "a b:1"]
        {
            assert!(!is_address(address), "{address:?}");
        }
    }
}
