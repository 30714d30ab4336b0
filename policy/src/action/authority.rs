//! Maps a host name to the cluster that it names, if it names one.

use proto::ClusterId;

use super::error::ActionError;

/// Longest DNS name (RFC 1035, section 2.3.4).
const HOST_BYTES_MAX: usize = 253;

/// The host names of the gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GatewayNames {
    /// `.SUFFIX` of `NAME.SUFFIX`, in lower case.
    dotted_suffix: Option<String>,
    /// In lower case. Empty: every name that is not below the suffix.
    hosts: Vec<String>,
}

impl GatewayNames {
    /// Clusters are reached as `NAME.host_suffix`, and by path under each of `hosts`. Without `hosts` every name that is
    /// not below the suffix serves paths. Names are compared without regard to case.
    #[must_use]
    pub fn new(host_suffix: Option<&str>, hosts: &[String]) -> Self {
        Self {
            dotted_suffix: host_suffix.map(|suffix| format!(".{}", suffix.to_ascii_lowercase())),
            hosts: hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
        }
    }

    /// The cluster that `authority` (host, and perhaps a port) names; `None` where the path names it.
    pub(super) fn cluster_of(&self, authority: &str) -> Result<Option<ClusterId>, ActionError> {
        let host = host(authority)?;
        if let Some(label) = self.dotted_suffix.as_deref().and_then(|suffix| host.strip_suffix(suffix)) {
            return label.parse().map(Some).map_err(|_| ActionError::NotAClusterName);
        }
        if self.hosts.is_empty() || self.hosts.contains(&host) {
            return Ok(None);
        }
        Err(ActionError::ForeignHost)
    }

    /// The cluster that the SNI `server_name` of a connection names; `None` for a name that is not below the suffix.
    ///
    /// # Errors
    ///
    /// [`ActionError::OtherConnection`]: the name is below the suffix, but is no cluster's name. The connection serves none.
    pub fn cluster_of_connection(&self, server_name: Option<&str>) -> Result<Option<ClusterId>, ActionError> {
        let (Some(name), Some(suffix)) = (server_name, &self.dotted_suffix) else {
            return Ok(None);
        };
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let label = name.strip_suffix(suffix.as_str());
        label.map(str::parse).transpose().map_err(|_| ActionError::OtherConnection)
    }
}

/// The host that `:authority` and `Host` agree on, where both are present.
pub(super) fn agreed_host<'a>(
    authority: Option<&'a str>,
    host: Option<&'a [u8]>,
) -> Result<&'a str, ActionError> {
    let host = host.map(|host| std::str::from_utf8(host).map_err(|_| ActionError::NotAHost)).transpose()?;
    match (authority, host) {
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => {
            Err(ActionError::HostsDisagree)
        }
        (Some(host), _) | (None, Some(host)) => Ok(host),
        (None, None) => Err(ActionError::NoHost),
    }
}

/// The host of `authority` in lower case, without brackets, port and the dot of the root.
fn host(authority: &str) -> Result<String, ActionError> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (inner, after) = rest.split_once(']').ok_or(ActionError::NotAHost)?;
            inner.parse::<std::net::Ipv6Addr>().map_err(|_| ActionError::NotAHost)?;
            (inner, after)
        }
        None => {
            let (name, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
            let name = name.strip_suffix('.').unwrap_or(name);
            if !is_name(name) {
                return Err(ActionError::NotAHost);
            }
            (name, port)
        }
    };
    if is_port(port) { Ok(host.to_ascii_lowercase()) } else { Err(ActionError::NotAHost) }
}

fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    text.len() <= HOST_BYTES_MAX && text.bytes().all(fits) && text.split('.').all(|label| !label.is_empty())
}

/// Accepts an empty text, or a colon and a number from 1 to 65535.
fn is_port(text: &str) -> bool {
    let Some(digits) = text.strip_prefix(':') else {
        return text.is_empty();
    };
    // `parse` would accept a sign.
    digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.parse::<u16>().is_ok_and(|port| port > 0)
}
