//! Selects the proxy to a host: by the configuration or the environment, and with exceptions.

use std::net::IpAddr;

use super::proxy::{NotAProxy, Proxy};

/// The proxy by which servers are reached over TCP, and the exceptions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    /// The proxy, if one is configured.
    pub proxy: Option<Proxy>,
    /// Hosts that are reached without the proxy, as in `NO_PROXY`.
    pub except: Vec<String>,
}

/// The configured text is no proxy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {reason}")]
pub struct ProxiesError {
    /// The environment variable or the key of the configuration that has the text.
    pub key: &'static str,
    /// The reason why the text cannot be used.
    pub reason: NotAProxy,
}

impl Proxies {
    /// The proxy of `HTTPS_PROXY` if that is set, or else the configured `url`; and the exceptions of `NO_PROXY`, or else
    /// `except`. Lower-case names of the variables count too. `environment` looks a variable up.
    ///
    /// # Errors
    /// [`ProxiesError`], without the value, which may contain a password.
    pub fn by_environment(
        url: Option<String>,
        except: Option<Vec<String>>,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ProxiesError> {
        let variable = |names: [&str; 2]| {
            let mut values = names.into_iter().filter_map(environment);
            values.find(|value| !value.trim().is_empty())
        };
        let (key, url) = match variable(["HTTPS_PROXY", "https_proxy"]) {
            Some(url) => ("HTTPS_PROXY", Some(url)),
            None => ("proxy.url", url),
        };
        let except = match variable(["NO_PROXY", "no_proxy"]) {
            Some(list) => list.split(',').map(|entry| entry.trim().to_owned()).collect(),
            None => except.unwrap_or_default(),
        };
        let proxy = url.map(|url| url.trim().parse::<Proxy>()).transpose();
        let proxy = proxy.map_err(|reason| ProxiesError { key, reason })?;
        Ok(Self { proxy, except: except.into_iter().filter(|entry| !entry.is_empty()).collect() })
    }

    /// The proxy to a host, if one is used: none to a loopback address, and none where an exception matches.
    /// The rules are those of Go's `golang.org/x/net/http/httpproxy`, which other programs of a cluster
    /// follow.
    #[must_use]
    pub fn to(&self, host: &str, port: u16) -> Option<&Proxy> {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let address = host.parse::<IpAddr>().ok();
        let is_loopback = host == "localhost" || address.is_some_and(|address| address.is_loopback());
        let is_excepted = || self.except.iter().any(|entry| fits(entry, &host, address, port));
        self.proxy.as_ref().filter(|_| !is_loopback && !is_excepted())
    }
}

/// Returns true if an exception matches a host. An exception is `*`, a name with its subdomains, `.name` for
/// only the subdomains, an address, or a network. A name or an address with a port matches only that port.
fn fits(entry: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    let entry = entry.to_ascii_lowercase();
    if entry == "*" {
        return true;
    }
    if let Some((network, bits)) = entry.split_once('/') {
        let network = network.parse::<IpAddr>().ok().zip(bits.parse::<u32>().ok());
        return network.zip(address).is_some_and(|((network, bits), address)| is_in(address, network, bits));
    }
    let (name, its_port) = without_port(&entry);
    if its_port.is_some_and(|its_port| its_port != port) {
        return false;
    }
    if let Ok(its_address) = name.parse::<IpAddr>() {
        return address == Some(its_address);
    }
    let name = name.strip_prefix('*').unwrap_or(name);
    match name.strip_prefix('.') {
        Some(_) => host.ends_with(name),
        None => host == name || host.strip_suffix(name).is_some_and(|front| front.ends_with('.')),
    }
}

/// Splits `host:port`, `[v6]:port`, or neither.
fn without_port(entry: &str) -> (&str, Option<u16>) {
    if let Some(rest) = entry.strip_prefix('[') {
        let (address, behind) = rest.split_once(']').unwrap_or((rest, ""));
        return (address, behind.strip_prefix(':').and_then(|port| port.parse().ok()));
    }
    match entry.split_once(':') {
        // More than one colon: an IPv6 address.
        Some((name, port)) if !port.contains(':') => (name, port.parse().ok()),
        Some(_) | None => (entry, None),
    }
}

fn is_in(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    let (address, network, width) = match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            (u128::from(address.to_bits()), u128::from(network.to_bits()), 32)
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => (address.to_bits(), network.to_bits(), 128),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
    };
    let Some(rest) = u32::checked_sub(width, bits) else { return false };
    address.checked_shr(rest).unwrap_or_default() == network.checked_shr(rest).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_are_read_as_other_programs_read_them() {
        for (entry, host, port, fits) in [
            ("*", "anything", 1, true),
            ("example.com", "example.com", 443, true),
            ("example.com", "gateway.example.com", 443, true),
            ("example.com", "notexample.com", 443, false),
            (".example.com", "gateway.example.com", 443, true),
            (".example.com", "example.com", 443, false),
            ("*.example.com", "gateway.example.com", 443, true),
            ("EXAMPLE.com", "Example.Com.", 443, true),
            ("example.com:443", "example.com", 443, true),
            ("example.com:443", "example.com", 8443, false),
            ("192.0.2.7", "192.0.2.7", 443, true),
            ("192.0.2.7", "192.0.2.70", 443, false),
            ("192.0.2.0/24", "192.0.2.7", 443, true),
            ("192.0.2.0/25", "192.0.2.200", 443, false),
            ("0.0.0.0/0", "192.0.2.7", 443, true),
            ("192.0.2.0/33", "192.0.2.7", 443, false),
            ("192.0.2.0/24", "gateway.test", 443, false),
            ("2001:db8::/32", "2001:db8::1", 443, true),
            ("2001:db8::1", "2001:db8::1", 443, true),
            ("[2001:db8::1]:443", "2001:db8::1", 8443, false),
            ("::/0", "192.0.2.7", 443, false),
        ] {
            let proxies = Proxies { proxy: "http://p:1".parse().ok(), except: vec![entry.to_owned()] };
            assert_eq!(proxies.to(host, port).is_none(), fits, "{entry} and {host}:{port}");
        }
    }

    #[test]
    fn a_loopback_address_needs_no_proxy() {
        let proxies = Proxies { proxy: "http://p:1".parse().ok(), except: Vec::new() };
        for host in ["localhost", "127.0.0.9", "::1"] {
            assert_eq!(proxies.to(host, 443), None, "{host}");
        }
        assert!(proxies.to("gateway.test", 443).is_some());
    }
}
