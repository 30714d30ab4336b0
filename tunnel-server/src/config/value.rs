//! Values that several sections share: file paths, addresses, names and prefixes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use daemon::config::{HOST_BYTES_MAX, KeyError, socket_address};
use proto::cluster::is_dns_label;

/// The value that an error shows for a missing key.
pub(super) const NOTHING: &str = "nothing";

/// The highest rate that can be configured, in requests, connections or handshakes per second.
pub const REQUESTS_PER_SECOND_MAX: u32 = 100_000;

/// Most names in one list.
pub const NAMES_MAX: usize = 1_000;

pub(super) const USERNAME_PREFIX: &str = "usernamePrefix";
pub(super) const GROUPS_PREFIX: &str = "groupsPrefix";

/// The address of the callers' and of the agents' listener, unless another is configured.
pub(super) const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8443);

/// Longest prefix of user or group names, in bytes.
const PREFIX_BYTES_MAX: usize = 64;

/// The prefixes of one authentication method's names. No method's prefix begins with another's, and at most one is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePrefixes {
    /// In front of user names.
    pub username: String,
    /// In front of group names.
    pub groups: String,
}

/// The path of a file that must be named; a relative one starts at the configuration file.
pub(super) fn file(key: &str, path: Option<PathBuf>, directory: &Path) -> Result<PathBuf, KeyError> {
    match path {
        Some(path) if !path.as_os_str().is_empty() => Ok(directory.join(path)),
        Some(_) | None => Err(KeyError::new(key, NOTHING, "the path of a file")),
    }
}

/// The prefixes that the `section` of a method gives the names of its users and groups.
pub(super) fn prefixes(
    section: &str,
    username: Option<String>,
    groups: Option<String>,
) -> Result<NamePrefixes, KeyError> {
    Ok(NamePrefixes {
        username: prefix(format!("{section}.{USERNAME_PREFIX}"), username)?,
        groups: prefix(format!("{section}.{GROUPS_PREFIX}"), groups)?,
    })
}

fn prefix(key: String, prefix: Option<String>) -> Result<String, KeyError> {
    let Some(prefix) = prefix else {
        let allowed =
            "a prefix that tells these names from those of every other method; \"\" for one method at most";
        return Err(KeyError::new(key, NOTHING, allowed));
    };
    let visible = prefix.bytes().all(|byte| byte.is_ascii_graphic());
    if visible && prefix.len() <= PREFIX_BYTES_MAX && !prefix.starts_with("system:") {
        return Ok(prefix);
    }
    let allowed =
        format!("at most {PREFIX_BYTES_MAX} visible ASCII characters that do not begin with system:");
    Err(KeyError::new(key, format_args!("{prefix:?}"), allowed))
}

/// The address of a listener with a default: the flag, else the configured one, else the default.
pub(super) fn listen_address(
    key: &str,
    flag: Option<SocketAddr>,
    raw: Option<String>,
) -> Result<SocketAddr, KeyError> {
    match (flag, raw) {
        (Some(address), _) => Ok(address),
        (None, Some(raw)) => socket_address(key, &raw),
        (None, None) => Ok(LISTEN_DEFAULT),
    }
}

/// The address of a listener that has no default.
pub(super) fn required_listen_address(key: &str, raw: Option<String>) -> Result<SocketAddr, KeyError> {
    let raw = raw.ok_or_else(|| KeyError::new(key, NOTHING, "an address and a port"))?;
    socket_address(key, &raw)
}

/// The name by which policy rules refer to an issuer or a reviewer: a DNS label.
pub(super) fn label(key: String, name: Option<String>) -> Result<String, KeyError> {
    let allowed = "1 to 63 lower-case letters, digits and '-', by which the policy's rules name it";
    match name {
        Some(name) if is_dns_label(&name) => Ok(name),
        Some(name) => Err(KeyError::new(key, format_args!("{name:?}"), allowed)),
        None => Err(KeyError::new(key, NOTHING, allowed)),
    }
}

/// A text that must be there and must not be empty.
pub(super) fn text(key: String, text: Option<String>) -> Result<String, KeyError> {
    match text {
        Some(text) if !text.is_empty() => Ok(text),
        Some(_) | None => Err(KeyError::new(key, NOTHING, "a text that is not empty")),
    }
}

/// Returns true if the text is a host and a port other than 0, with an IPv6 address in brackets.
pub(super) fn is_host_and_port(text: &str) -> bool {
    let is_host = |host: &str| match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
        None => is_dns_name(host),
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    text.rsplit_once(':').is_some_and(|(host, port)| is_host(host) && is_port(port))
}

/// Returns true if the text reads as a DNS name without the dot of the root; an IPv4 address does too.
pub(super) fn is_dns_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    text.len() <= HOST_BYTES_MAX && text.split('.').all(|label| !label.is_empty() && label.bytes().all(fits))
}
