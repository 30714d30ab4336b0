//! The greeting: an agent's first frame, and how the server checks it.

use std::fmt;
use std::time::Duration;

use crate::capabilities::Capabilities;
use crate::endpoint_text::is_plain;
use crate::server_list::ServerList;
use crate::session::SILENCE_LEAST;
use crate::spiffe::AgentId;
use crate::wire::{Endpoints, Hello, Refused, ServedCertificate, Welcome, refused::Reason};

/// The protocol versions that this build speaks, newest last.
pub const VERSIONS: [u32; 1] = [1];

/// A greeting, from the carrier's handshake to the `Welcome`, takes no longer than this. Six round trips of
/// the slowest link that we serve, a satellite's 2 s, would fit.
pub const GREETING_MAX: Duration = Duration::from_secs(12);

/// Most endpoints that one agent may advertise.
pub const ENDPOINTS_MAX: usize = 64;

/// Most serving certificates of API servers that one agent advertises: those among which it balances, and the
/// one that its credential names.
pub const CERTIFICATES_MAX: usize = 17;

/// Most bytes of names in all of them.
pub const CERTIFICATE_NAME_BYTES_MAX: usize = 8 * 1024;

/// Longest version of an API server, in bytes. A longer one counts as none.
pub const KUBERNETES_VERSION_BYTES_MAX: usize = 64;

/// Longest software name that is kept, in bytes; the rest is cut off.
pub(crate) const SOFTWARE_BYTES_MAX: usize = 64;

/// 16 random bytes that each process draws at its start, so that its peers recognize it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BootNonce(pub [u8; 16]);

impl fmt::Display for BootNonce {
    /// Formats the bytes as lower-case hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A server that is stopping asks agents to retry after this time: its successor at the same address may be
/// there then.
const RETRY_AFTER_DRAINING: Duration = Duration::from_secs(2);

/// A server that has as many tunnels as it may asks agents to retry after this time.
const RETRY_AFTER_FULL: Duration = Duration::from_secs(20);

/// An accepted greeting, which identifies the tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    /// The agent that greets, from its verified certificate.
    pub agent: AgentId,
    /// The process of this agent that dialed.
    pub boot: BootNonce,
    /// The number of this tunnel among those of its process, from 1.
    pub sequence: u64,
    /// The version that both sides speak from here on.
    pub version: u32,
    /// Name and version of the agent's software, printable, for people.
    pub software: String,
    /// The control-plane endpoints and certificates that the agent advertises.
    pub advertised: Advertised,
    /// Silence after which the agent gives the tunnel up; `None` leaves that to the server.
    pub silence_max: Option<Duration>,
    /// The abilities of the agent beyond the protocol's version.
    pub capabilities: Capabilities,
}

/// An agent's description of its cluster's control plane, printable. Shown, never trusted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Advertised {
    /// Addresses at which the cluster claims to answer.
    pub endpoints: Vec<String>,
    /// The serving certificates of API servers. No decision depends on them.
    pub certificates: Vec<Certificate>,
    /// The version of its API server, such as `v1.36.3`. Empty if the agent does not tell one.
    pub kubernetes_version: String,
}

/// The serving certificate of an API server, as an agent saw it last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The address that the agent dialed: `host:port`.
    pub address: String,
    /// The DNS names and addresses for which it is valid.
    pub names: Vec<String>,
    /// True if the certificate has more names than are listed here.
    pub is_cut: bool,
}

/// The server's part of every `Welcome`: its name, its process and its trust bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerInfo {
    /// The server's name, a DNS label.
    pub server_id: String,
    /// Name and version of its software, for people.
    pub software: String,
    /// The server process that answers.
    pub boot: BootNonce,
    /// A digest that identifies the server's keys without revealing them.
    pub keys_mark: [u8; 8],
    /// The newest trust bundle that it knows, or nothing.
    pub trust_bundle: Vec<u8>,
    /// All servers of the installation. Empty if this one shares its records with nobody.
    pub servers: ServerList,
}

/// Checks a greeting against the identity that the agent's certificate proved.
///
/// # Errors
/// The frame to send back, whose message says what is wrong and what to do.
pub fn verify_hello(hello: Hello, agent: &AgentId) -> Result<Greeting, Refused> {
    let version = negotiate(&hello.versions)?;
    if hello.cluster != agent.cluster().as_str() {
        return Err(refuse(
            Reason::Cluster,
            format!(
                "the certificate is for cluster {} and the agent is configured for {:?}; correct `cluster` in the agent's \
                 configuration or issue a certificate for that cluster",
                agent.cluster(),
                printable(&hello.cluster, SOFTWARE_BYTES_MAX),
            ),
        ));
    }
    let Ok(boot) = <[u8; 16]>::try_from(hello.boot_nonce.as_slice()) else {
        return Err(refuse(Reason::Greeting, "the boot nonce must be 16 bytes".to_owned()));
    };
    Ok(Greeting {
        agent: agent.clone(),
        boot: BootNonce(boot),
        sequence: hello.sequence,
        version,
        software: printable(&hello.software, SOFTWARE_BYTES_MAX),
        advertised: advertised(hello.endpoints.unwrap_or_default()),
        silence_max: (hello.silence_max_ms > 0).then(|| Duration::from_millis(hello.silence_max_ms.into())),
        capabilities: Capabilities::from_words(&hello.capabilities),
    })
}

/// The sender's software, if this greeting offers no version: it only checks the connection, as `tombolo doctor`
/// does, and is refused in any case.
#[must_use]
pub fn only_checks(hello: &Hello) -> Option<String> {
    hello.versions.is_empty().then(|| printable(&hello.software, SOFTWARE_BYTES_MAX))
}

/// Silence after which both sides give a tunnel up: the shorter of the two sides' limits.
#[must_use]
pub fn silence_agreed(greeting: &Greeting, servers: Duration) -> Duration {
    greeting.silence_max.map_or(servers, |agents| agents.min(servers)).max(SILENCE_LEAST)
}

/// The answer to an accepted greeting, with the silence that was agreed.
#[must_use]
pub fn welcome(greeting: &Greeting, server: &ServerInfo, silence_max: Duration) -> Welcome {
    Welcome {
        version: greeting.version,
        server_id: server.server_id.clone(),
        software: server.software.clone(),
        silence_max_ms: u32::try_from(silence_max.as_millis()).unwrap_or(u32::MAX),
        boot_nonce: server.boot.0.to_vec(),
        keys_mark: server.keys_mark.to_vec(),
        trust_bundle: server.trust_bundle.clone(),
        servers: (!server.servers.is_empty()).then(|| server.servers.to_wire()),
    }
}

/// Builds a refusal that names the versions this build speaks, and the time after which to retry.
#[must_use]
pub fn refuse(reason: Reason, message: String) -> Refused {
    let after = retry_after(reason).unwrap_or_default();
    Refused {
        reason: reason.into(),
        message,
        versions: VERSIONS.to_vec(),
        retry_after_ms: u32::try_from(after.as_millis()).unwrap_or(u32::MAX),
    }
}

/// Time after which a retry may succeed; `None` where somebody has to change something first.
fn retry_after(reason: Reason) -> Option<Duration> {
    match reason {
        Reason::Draining => Some(RETRY_AFTER_DRAINING),
        Reason::Limit => Some(RETRY_AFTER_FULL),
        Reason::Unspecified | Reason::Version | Reason::Cluster | Reason::Greeting | Reason::Revoked => None,
    }
}

/// An agent's description of its cluster's control plane, cut to the limits and to what can be printed.
#[must_use]
pub fn advertised(endpoints: Endpoints) -> Advertised {
    let Endpoints { addresses, certificates, mut kubernetes_version } = endpoints;
    if !is_kubernetes_version(&kubernetes_version) {
        kubernetes_version.clear();
    }
    let endpoints = addresses.into_iter().filter(|address| is_plain(address)).take(ENDPOINTS_MAX).collect();
    let certificate = |ServedCertificate { address, names, cut }| Certificate { address, names, is_cut: cut };
    Advertised {
        endpoints,
        certificates: truncate_certificates(certificates).into_iter().map(certificate).collect(),
        kubernetes_version,
    }
}

/// Returns true for a version as API servers write it: letters, digits, `.`, `-`, `+`, `_` and `~`, and not too many of them.
#[must_use]
pub fn is_kubernetes_version(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-+_~".contains(&byte);
    !text.is_empty() && text.len() <= KUBERNETES_VERSION_BYTES_MAX && text.bytes().all(fits)
}

/// Cuts certificates and their names to the limits and to what can be printed. A certificate that loses names
/// is marked as cut.
#[must_use]
pub fn truncate_certificates(certificates: Vec<ServedCertificate>) -> Vec<ServedCertificate> {
    let mut bytes = 0;
    let plain = certificates.into_iter().filter(|certificate| is_plain(&certificate.address));
    let certificate = |ServedCertificate { address, names, cut }: ServedCertificate| {
        let before = names.len();
        let fits = |name: &String| {
            bytes += name.len();
            is_plain(name) && bytes <= CERTIFICATE_NAME_BYTES_MAX
        };
        let names: Vec<String> = names.into_iter().filter(fits).collect();
        ServedCertificate { address, cut: cut || names.len() < before, names }
    };
    plain.take(CERTIFICATES_MAX).map(certificate).collect()
}

/// The newest version that both sides speak.
fn negotiate(theirs: &[u32]) -> Result<u32, Refused> {
    if theirs.is_empty() {
        let message = "the greeting offers no version, so no tunnel is opened: it only checks the connection";
        return Err(refuse(Reason::Version, message.to_owned()));
    }
    best_version(theirs, &VERSIONS).ok_or_else(|| {
        refuse(
            Reason::Version,
            format!(
                "the agent speaks versions {} and this server {}; upgrade the older of the two",
                listed(theirs),
                listed(&VERSIONS)
            ),
        )
    })
}

/// The last of our versions that the other side speaks, too.
pub(crate) fn best_version(theirs: &[u32], ours: &[u32]) -> Option<u32> {
    ours.iter().rev().find(|version| theirs.contains(version)).copied()
}

/// A list of versions in braces, cut after eight of them.
pub(crate) fn listed(versions: &[u32]) -> String {
    let shown: Vec<_> = versions.iter().take(8).map(u32::to_string).collect();
    format!("{{{}}}", shown.join(", "))
}

/// Text from an untrusted peer, made safe for logs and terminals: printable ASCII, and no longer than
/// `bytes_max`.
pub(crate) fn printable(text: &str, bytes_max: usize) -> String {
    text.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(bytes_max).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_one_and_two_are_accepted_with_one() {
        let greeting = verify_hello(Hello { versions: vec![1, 2], ..hello() }, &agent()).unwrap();
        assert_eq!(greeting.version, 1);
    }

    #[test]
    fn version_two_alone_is_refused_with_a_text_that_names_both() {
        let refused = verify_hello(Hello { versions: vec![2], ..hello() }, &agent()).unwrap_err();
        assert_eq!(refused.reason(), Reason::Version);
        assert_eq!(
            refused.message,
            "the agent speaks versions {2} and this server {1}; upgrade the older of the two"
        );
        assert_eq!(refused.versions, VERSIONS);
    }

    #[test]
    fn a_greeting_without_a_version_only_checks_and_says_by_what() {
        let check = Hello { versions: Vec::new(), software: "tombolo-doctor/1\r\n".to_owned(), ..hello() };
        assert_eq!(only_checks(&check).as_deref(), Some("tombolo-doctor/1"));
        assert_eq!(only_checks(&hello()), None);

        let refused = verify_hello(check, &agent()).unwrap_err();

        assert_eq!(refused.reason(), Reason::Version);
        assert!(refused.message.contains("only checks the connection"), "{}", refused.message);
    }

    #[test]
    fn another_cluster_than_the_certificates_is_refused() {
        let refused = verify_hello(Hello { cluster: "edge-b".to_owned(), ..hello() }, &agent()).unwrap_err();
        assert_eq!(refused.reason(), Reason::Cluster);
        assert!(
            refused.message.contains("edge-a") && refused.message.contains("edge-b"),
            "{}",
            refused.message
        );
    }

    #[test]
    fn the_cluster_comes_from_the_certificate() {
        assert_eq!(verify_hello(hello(), &agent()).unwrap().agent, agent());
    }

    #[test]
    fn only_a_refusal_that_passes_by_itself_is_retried_soon() {
        let after = |reason| refuse(reason, String::new()).retry_after_ms;
        assert!(after(Reason::Draining) > 0 && after(Reason::Draining) < after(Reason::Limit));
        for reason in [Reason::Version, Reason::Cluster, Reason::Greeting] {
            assert_eq!(after(reason), 0, "{reason:?}");
        }
    }

    /// Below the minimum an idle tunnel would not last.
    #[test]
    fn the_shorter_silence_limit_applies_but_not_below_the_minimum() {
        let seconds = Duration::from_secs;
        for (agents, servers, agreed) in [(0, 300, 300), (60, 300, 60), (600, 300, 300), (1, 300, 9)] {
            let greeting =
                verify_hello(Hello { silence_max_ms: agents * 1000, ..hello() }, &agent()).unwrap();
            assert_eq!(
                silence_agreed(&greeting, seconds(servers)),
                seconds(agreed),
                "{agents} and {servers}"
            );
        }
    }

    #[test]
    fn a_welcome_says_who_the_server_is_and_what_was_agreed() {
        let host = ServerInfo {
            server_id: "gateway".to_owned(),
            software: "tombolo 1".to_owned(),
            boot: BootNonce([3; 16]),
            keys_mark: [5; 8],
            trust_bundle: vec![9],
            servers: ServerList::default(),
        };
        let welcome = |silence| welcome(&verify_hello(hello(), &agent()).unwrap(), &host, silence);
        let expected = Welcome {
            version: 1,
            server_id: "gateway".to_owned(),
            software: "tombolo 1".to_owned(),
            silence_max_ms: 60_000,
            boot_nonce: vec![3; 16],
            keys_mark: vec![5; 8],
            trust_bundle: vec![9],
            servers: None,
        };
        assert_eq!(welcome(Duration::from_secs(60)), expected);
        assert_eq!(welcome(Duration::MAX).silence_max_ms, u32::MAX);
    }

    #[test]
    fn a_short_nonce_is_refused() {
        let refused = verify_hello(Hello { boot_nonce: vec![0; 15], ..hello() }, &agent()).unwrap_err();
        assert_eq!(refused.reason(), Reason::Greeting);
    }

    #[test]
    fn advertised_texts_are_cut_and_made_printable() {
        let addresses = std::iter::repeat_n("192.168.1.10:6443".to_owned(), 100);
        let addresses = ["\u{1b}[2J".to_owned()].into_iter().chain(addresses).collect();
        let endpoints = Some(Endpoints { addresses, ..Endpoints::default() });
        let software = format!("agent\r\n\u{1b}{}", "x".repeat(200));

        let greeting = verify_hello(Hello { endpoints, software, ..hello() }, &agent()).unwrap();

        assert_eq!(greeting.advertised.endpoints, vec!["192.168.1.10:6443"; ENDPOINTS_MAX]);
        assert_eq!(greeting.software, format!("agent{}", "x".repeat(59)));
    }

    #[test]
    fn a_version_that_no_api_server_would_write_counts_as_none() {
        let kept = |version: &str| {
            advertised(Endpoints { kubernetes_version: version.to_owned(), ..Endpoints::default() })
                .kubernetes_version
        };
        let longest = "1".repeat(KUBERNETES_VERSION_BYTES_MAX);
        for version in ["", "v1.36.3", "v1.33.2+k3s1", "v1.31.4-gke.1183000", &longest] {
            assert_eq!(kept(version), version);
        }
        for version in ["v1 2", "v1\u{1b}[2J", "v1\u{e9}", "v1\"}", &format!("{longest}1")] {
            assert_eq!(kept(version), "", "{version:?}");
        }
    }

    #[test]
    fn certificates_and_their_names_are_kept_up_to_the_limits() {
        let certificate = |address: &str, names: &[&str]| ServedCertificate {
            address: address.to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            cut: false,
        };
        let served = |certificates: Vec<ServedCertificate>| {
            advertised(Endpoints { certificates, ..Endpoints::default() }).certificates
        };
        let plain = certificate("10.0.0.1:6443", &["kubernetes", "10.96.0.1"]);
        let kept = served(vec![plain.clone(); CERTIFICATES_MAX + 1]);
        assert_eq!(kept.len(), CERTIFICATES_MAX);
        assert_eq!((kept[0].names.len(), kept[0].is_cut), (2, false));
        let kept = served(vec![certificate("a b:1", &["x"]), certificate("a:1", &["\u{1b}[2J", "x", ""])]);
        assert_eq!(
            kept,
            [Certificate { address: "a:1".to_owned(), names: vec!["x".to_owned()], is_cut: true }]
        );

        let name = "x".repeat(256);
        let most = CERTIFICATE_NAME_BYTES_MAX / name.len();
        for (count, is_cut) in [(most, false), (most + 1, true)] {
            let kept = served(vec![certificate("a:1", &vec![name.as_str(); count])]);
            assert_eq!((kept[0].names.len(), kept[0].is_cut), (most, is_cut));
        }
        // The limit applies to all certificates together.
        let kept = served(vec![certificate("a:1", &vec![name.as_str(); most]), plain]);
        assert_eq!((kept[1].names.len(), kept[1].is_cut), (0, true));
    }

    fn agent() -> AgentId {
        AgentId::parse("spiffe://tombolo/cluster/edge-a/agent/x", "tombolo").unwrap()
    }

    fn hello() -> Hello {
        Hello {
            versions: VERSIONS.to_vec(),
            cluster: "edge-a".to_owned(),
            boot_nonce: vec![7; 16],
            sequence: 1,
            ..Hello::default()
        }
    }
}
