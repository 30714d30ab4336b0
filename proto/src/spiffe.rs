//! The SPIFFE IDs in certificates, by role: `spiffe://DOMAIN/cluster/C/agent/ID`, `…/server/ID`,
//! `…/peer/ID`, `…/admin/NAME` and `…/caller`.
//!
//! SPIFFE-ID, <https://github.com/spiffe/spiffe/blob/main/standards/SPIFFE-ID.md>.

use std::fmt;
use std::sync::Arc;

use crate::cluster::{ClusterId, is_dns_label};

/// The trust domain where nothing else is configured.
pub const TRUST_DOMAIN_DEFAULT: &str = "tombolo";

/// Longest trust domain, in bytes (SPIFFE-ID, section 2.1).
pub const TRUST_DOMAIN_BYTES_MAX: usize = 255;

/// Longest URI that is parsed, in bytes.
const URI_BYTES_MAX: usize = 2048;

/// The identity of an agent: its cluster, and its name among the cluster's agents.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AgentId {
    cluster: ClusterId,
    instance: Arc<str>,
}

/// The reason why a certificate's URI does not have the expected role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpiffeError {
    /// Not an agent's URI of this trust domain.
    #[error("the certificate's URI is not spiffe://{domain}/cluster/NAME/agent/ID")]
    NotAnAgent {
        /// The trust domain that was expected.
        domain: String,
    },
    /// Not a server's URI of this trust domain.
    #[error("the certificate's URI is not spiffe://{domain}/server/ID")]
    NotAServer {
        /// The trust domain that was expected.
        domain: String,
    },
    /// Not an administrator's URI of this trust domain.
    #[error("the certificate's URI is not spiffe://{domain}/admin/NAME")]
    NotAnAdmin {
        /// The trust domain that was expected.
        domain: String,
    },
    /// Not the URI by which a server of this trust domain dials its peers.
    #[error("the certificate's URI is not spiffe://{domain}/peer/ID")]
    NotAPeer {
        /// The trust domain that was expected.
        domain: String,
    },
}

impl AgentId {
    /// The agent `instance`, a DNS label, of `cluster`; `None` where it is no label.
    #[must_use]
    pub fn new(cluster: ClusterId, instance: &str) -> Option<Self> {
        is_dns_label(instance).then(|| Self { cluster, instance: instance.into() })
    }

    /// Reads an agent's URI. Everything must be in place: no other path, no query, no empty or escaped
    /// segment.
    ///
    /// # Errors
    /// `NotAnAgent`, where anything differs.
    pub fn parse(uri: &str, domain: &str) -> Result<Self, SpiffeError> {
        let refused = || SpiffeError::NotAnAgent { domain: domain.to_owned() };
        let mut segments = path(uri, domain).ok_or_else(refused)?.split('/');
        let (Some("cluster"), Some(cluster), Some("agent"), Some(instance), None) =
            (segments.next(), segments.next(), segments.next(), segments.next(), segments.next())
        else {
            return Err(refused());
        };
        Self::new(cluster.parse().map_err(|_| refused())?, instance).ok_or_else(refused)
    }

    /// The URI that [`AgentId::parse`] reads.
    #[must_use]
    pub fn uri(&self, domain: &str) -> String {
        format!("spiffe://{domain}/cluster/{}/agent/{}", self.cluster, self.instance)
    }

    /// The cluster that this agent serves.
    #[must_use]
    pub fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// The agent's name among those of its cluster, a DNS label.
    #[must_use]
    pub fn instance(&self) -> &str {
        &self.instance
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cluster, self.instance)
    }
}

/// Returns true if `text` can name a trust domain: 1 to 255 lower-case letters, digits, `.`, `-` and `_`
/// (SPIFFE-ID, section 2.1).
#[must_use]
pub fn is_trust_domain(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_".contains(&byte);
    !text.is_empty() && text.len() <= TRUST_DOMAIN_BYTES_MAX && text.bytes().all(fits)
}

/// Reads a server's URI and returns its id, a DNS label.
///
/// # Errors
/// `NotAServer`, where anything differs.
pub fn parse_server<'uri>(uri: &'uri str, domain: &str) -> Result<&'uri str, SpiffeError> {
    label_below(uri, domain, "server/").ok_or_else(|| SpiffeError::NotAServer { domain: domain.to_owned() })
}

/// The URI that [`parse_server`] reads.
#[must_use]
pub fn server_uri(domain: &str, id: &str) -> String {
    format!("spiffe://{domain}/server/{id}")
}

/// Reads an administrator's URI and returns the name, a DNS label.
///
/// # Errors
/// `NotAnAdmin`, where anything differs.
pub fn parse_admin<'uri>(uri: &'uri str, domain: &str) -> Result<&'uri str, SpiffeError> {
    label_below(uri, domain, "admin/").ok_or_else(|| SpiffeError::NotAnAdmin { domain: domain.to_owned() })
}

/// The URI that [`parse_admin`] reads.
#[must_use]
pub fn admin_uri(domain: &str, name: &str) -> String {
    format!("spiffe://{domain}/admin/{name}")
}

/// Reads the URI that a server shows when it dials another server, and returns its server ID, a DNS label.
///
/// # Errors
/// `NotAPeer`, where anything differs.
pub fn parse_peer<'uri>(uri: &'uri str, domain: &str) -> Result<&'uri str, SpiffeError> {
    label_below(uri, domain, "peer/").ok_or_else(|| SpiffeError::NotAPeer { domain: domain.to_owned() })
}

/// The URI that [`parse_peer`] reads.
#[must_use]
pub fn peer_uri(domain: &str, id: &str) -> String {
    format!("spiffe://{domain}/peer/{id}")
}

/// The URI in every caller's certificate of this trust domain. It names no caller: the name is in the
/// certificate's subject, because names of people are free text, for which a SPIFFE path has no letters.
#[must_use]
pub fn caller_uri(domain: &str) -> String {
    format!("spiffe://{domain}/caller")
}

/// Returns true if `uri` is a SPIFFE ID of this trust domain, in any role.
#[must_use]
pub fn is_in_trust_domain(uri: &str, domain: &str) -> bool {
    let scheme = uri.get(.."spiffe://".len()).filter(|scheme| scheme.eq_ignore_ascii_case("spiffe://"));
    let authority = scheme.and_then(|scheme| uri[scheme.len()..].split(['/', '?', '#']).next());
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(domain))
}

/// The DNS label that follows `prefix` and ends the path of the URI.
fn label_below<'uri>(uri: &'uri str, domain: &str, prefix: &str) -> Option<&'uri str> {
    path(uri, domain)?.strip_prefix(prefix).filter(|label| is_dns_label(label))
}

fn path<'uri>(uri: &'uri str, domain: &str) -> Option<&'uri str> {
    if uri.len() > URI_BYTES_MAX {
        return None;
    }
    uri.strip_prefix("spiffe://")?.strip_prefix(domain)?.strip_prefix('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agents_uri_names_cluster_and_instance() {
        let agent = AgentId::parse("spiffe://tombolo/cluster/edge-a/agent/0f3c", "tombolo").unwrap();
        assert_eq!((agent.cluster().as_str(), agent.instance()), ("edge-a", "0f3c"));
        assert_eq!(agent.to_string(), "edge-a/0f3c");
    }

    #[test]
    fn a_uri_that_differs_by_a_byte_is_no_agents() {
        for uri in [
            "",
            "spiffe://tombolo/cluster/edge-a/agent/",
            "spiffe://tombolo/cluster/edge-a/agent/x/",
            "spiffe://tombolo/cluster//agent/x",
            "spiffe://tombolo/cluster/edge-a/agent/x?y",
            "spiffe://tombolo/cluster/edge%2da/agent/x",
            "spiffe://tombolo/cluster/Edge-a/agent/x",
            "spiffe://tombolo//cluster/edge-a/agent/x",
            "spiffe://tombolo.evil/cluster/edge-a/agent/x",
            "spiffe://evil/cluster/edge-a/agent/x",
            "https://tombolo/cluster/edge-a/agent/x",
            "spiffe://tombolo/cluster/edge-a\0/agent/x",
            "spiffe://tombolo/server/edge-a",
        ] {
            assert!(AgentId::parse(uri, "tombolo").is_err(), "{uri:?}");
        }
    }

    #[test]
    fn a_trust_domain_is_lower_case_and_bounded() {
        for text in ["tombolo", "a-b_2.example.org", "7", &"x".repeat(TRUST_DOMAIN_BYTES_MAX)] {
            assert!(is_trust_domain(text), "{text:?}");
        }
        for text in ["", "Tombolo", "a/b", "a b", "ä", &"x".repeat(TRUST_DOMAIN_BYTES_MAX + 1)] {
            assert!(!is_trust_domain(text), "{text:?}");
        }
    }

    #[test]
    fn a_servers_uri_is_no_agents_and_the_other_way_round() {
        assert_eq!(parse_server("spiffe://tombolo/server/gateway", "tombolo"), Ok("gateway"));
        assert!(parse_server("spiffe://tombolo/cluster/a/agent/b", "tombolo").is_err());
        assert!(parse_server("spiffe://tombolo/server/a/b", "tombolo").is_err());
    }

    #[test]
    fn a_uri_is_parsed_by_its_own_role_alone() {
        let agent = AgentId::new("edge-a".parse().unwrap(), "0f3c").unwrap();
        let uris = [
            agent.uri("t"),
            server_uri("t", "gateway"),
            admin_uri("t", "olga"),
            peer_uri("t", "gateway"),
            caller_uri("t"),
        ];
        assert_eq!(uris[3..], ["spiffe://t/peer/gateway", "spiffe://t/caller"]);
        for (role, uri) in uris.iter().enumerate() {
            assert_eq!(AgentId::parse(uri, "t").is_ok(), role == 0, "{uri}");
            assert_eq!(parse_server(uri, "t").is_ok(), role == 1, "{uri}");
            assert_eq!(parse_admin(uri, "t").is_ok(), role == 2, "{uri}");
            assert_eq!(parse_peer(uri, "t").is_ok(), role == 3, "{uri}");
        }
        assert_eq!(AgentId::parse(&uris[0], "t"), Ok(agent));
        assert_eq!(parse_peer(&uris[3], "t"), Ok("gateway"));
    }

    #[test]
    fn a_peer_is_named_by_exactly_one_dns_label() {
        for uri in [
            "spiffe://t/peer",
            "spiffe://t/peer/",
            "spiffe://t/peer/a/",
            "spiffe://t/peer/a/b",
            "spiffe://t/peer/A",
            "spiffe://t/peer/a.b",
            "spiffe://t/peer/a?b",
            "spiffe://t//peer/a",
            "spiffe://t/Peer/a",
            "spiffe://u/peer/a",
        ] {
            assert_eq!(parse_peer(uri, "t"), Err(SpiffeError::NotAPeer { domain: "t".to_owned() }), "{uri}");
        }
    }

    #[test]
    fn a_uri_is_as_long_as_it_may_be_and_not_one_byte_longer() {
        for (bytes, is_read) in [(URI_BYTES_MAX - 1, true), (URI_BYTES_MAX, true), (URI_BYTES_MAX + 1, false)]
        {
            let uri = format!("spiffe://t/{}", "x".repeat(bytes - "spiffe://t/".len()));
            assert_eq!(path(&uri, "t").is_some(), is_read, "{bytes}");
        }
    }

    #[test]
    fn a_name_is_of_the_trust_domain_however_it_is_spelled() {
        for uri in ["spiffe://t/x", "SPIFFE://t/caller", "spiffe://T/caller", "spiffe://t", "spiffe://t?x"] {
            assert!(is_in_trust_domain(uri, "t"), "{uri}");
        }
        for uri in ["", "spiffe:/", "spiffe://tt/x", "https://t/x", "spiffe://ä/x", "späffe://t"] {
            assert!(!is_in_trust_domain(uri, "t"), "{uri}");
        }
    }
}
