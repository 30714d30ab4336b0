//! The section `gateway`: the listener for callers, and the names by which they reach clusters.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use daemon::config::{KeyError, bounded, seconds};
use http::Uri;
use serde::Deserialize;

use super::authentication::{AuthenticationConfig, RawAuthentication, authentication};
use super::flags::Flags;
use super::value::{NAMES_MAX, is_dns_name, listen_address};

/// The longest time that one request can be allowed to run, in seconds. An endless credential is shown again that often.
pub const SESSION_AGE_SECONDS_MAX: u64 = 7 * 24 * 3_600;

/// Default maximum age of a request: a working day, so that a forgotten shell ends with it.
const SESSION_AGE_DEFAULT_SECONDS: u64 = 8 * 3_600;

/// The listener for callers, and its names.
#[derive(Debug)]
pub struct GatewayConfig {
    /// The TCP address to bind.
    pub listen: SocketAddr,
    /// Clusters are reached as `NAME.host_suffix`, in lower case.
    pub host_suffix: Option<String>,
    /// Names and addresses, without brackets and in lower case, under which clusters are reached by path. If it is empty,
    /// every name that is not under the suffix is one.
    pub hosts: Vec<String>,
    /// The authentication methods of callers; at least one.
    pub authentication: AuthenticationConfig,
    /// The origins whose pages can send cross-origin requests, as browsers write them; at most [`NAMES_MAX`].
    pub browser_origins: Vec<String>,
    /// The longest time that one request can run, a watch or an upgraded connection too; 1 s to 7 days.
    pub session_age_max: Duration,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawGateway {
    /// Address and TCP port for callers.
    #[cfg_attr(test, schemars(extend("default" = super::value::LISTEN_DEFAULT.to_string())))]
    listen: Option<String>,
    /// DNS name below which each cluster has a host name: with clusters.example, edge-a is edge-a.clusters.example.
    host_suffix: Option<String>,
    /// The gateway's own names and addresses, under which clusters are reached by path. If the list is empty, each name
    /// that is not below `hostSuffix` is one.
    #[cfg_attr(test, schemars(length(min = 0, max = NAMES_MAX), extend("default" = [])))]
    hosts: Option<Vec<String>>,
    /// The methods by which callers authenticate. At least one has to be there.
    #[cfg_attr(test, schemars(required))]
    authentication: Option<RawAuthentication>,
    /// Origins of web pages that may send requests from a browser, such as `https://console.example`.
    #[cfg_attr(test, schemars(length(min = 0, max = NAMES_MAX), extend("default" = [])))]
    browser_origins: Option<Vec<String>>,
    /// Longest duration of one request, also of a watch or a shell.
    #[cfg_attr(test, schemars(range(min = 1, max = SESSION_AGE_SECONDS_MAX), extend("default" = SESSION_AGE_DEFAULT_SECONDS)))]
    max_session_age_seconds: Option<u64>,
}

pub(super) fn gateway(raw: RawGateway, flags: &Flags, directory: &Path) -> Result<GatewayConfig, KeyError> {
    let RawGateway {
        listen,
        host_suffix,
        hosts,
        authentication: raw_authentication,
        browser_origins,
        max_session_age_seconds,
    } = raw;
    let host_suffix = host_suffix.map(|suffix| self::host_suffix(&suffix)).transpose()?;
    let hosts = hosts.unwrap_or_default();
    bounded("gateway.hosts", hosts.len(), 0..=NAMES_MAX)?;
    let browser_origins = browser_origins.unwrap_or_default();
    bounded("gateway.browserOrigins", browser_origins.len(), 0..=NAMES_MAX)?;
    Ok(GatewayConfig {
        listen: listen_address("gateway.listen", flags.gateway_listen, listen)?,
        hosts: hosts.iter().map(|name| host(name, host_suffix.as_deref())).collect::<Result<_, _>>()?,
        host_suffix,
        authentication: authentication(raw_authentication.unwrap_or_default(), directory)?,
        browser_origins: browser_origins.into_iter().map(origin).collect::<Result<_, _>>()?,
        session_age_max: seconds(
            "gateway.maxSessionAgeSeconds",
            max_session_age_seconds.unwrap_or(SESSION_AGE_DEFAULT_SECONDS),
            1..=SESSION_AGE_SECONDS_MAX,
        )?,
    })
}

/// An origin exactly as browsers write it (RFC 6454, section 6.2), because it is compared by its bytes.
fn origin(origin: String) -> Result<String, KeyError> {
    let is_canonical = |uri: Uri| {
        let (scheme, authority) = (uri.scheme_str()?, uri.authority()?);
        let port_default = if scheme == "https" { 443 } else { 80 };
        let is_bare = authority.port_u16() != Some(port_default) && !authority.as_str().contains('@');
        let again = format!("{scheme}://{}", authority.as_str().to_ascii_lowercase());
        Some(["https", "http"].contains(&scheme) && is_bare && again == origin)
    };
    if origin.parse().ok().and_then(is_canonical) == Some(true) {
        return Ok(origin);
    }
    let allowed =
        "https://HOST or https://HOST:PORT in lower case, without a path, as a browser's address bar begins";
    Err(KeyError::new("gateway.browserOrigins", format_args!("{origin:?}"), allowed))
}

fn host_suffix(suffix: &str) -> Result<String, KeyError> {
    if is_dns_name(suffix) && suffix.parse::<IpAddr>().is_err() {
        return Ok(suffix.to_ascii_lowercase());
    }
    let allowed = "a DNS name without a dot at an end, such as clusters.example";
    Err(KeyError::new("gateway.hostSuffix", suffix, allowed))
}

fn host(name: &str, suffix: Option<&str>) -> Result<String, KeyError> {
    let refused = |allowed: &str| KeyError::new("gateway.hosts", name, allowed);
    if !is_dns_name(name) && name.parse::<IpAddr>().is_err() {
        return Err(refused("DNS names without a dot at an end, and IP addresses without brackets or port"));
    }
    let name = name.to_ascii_lowercase();
    let below = |suffix: &str| name.strip_suffix(suffix).is_some_and(|label| label.ends_with('.'));
    if suffix.is_some_and(below) {
        return Err(refused("names that are not below gateway.hostSuffix, where every name is a cluster's"));
    }
    Ok(name)
}
