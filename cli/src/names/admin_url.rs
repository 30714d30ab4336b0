//! The URL of a server's admin API on TCP, `https://HOST[:PORT]`.

use std::fmt;
use std::str::FromStr;

use url::{Host, Url};

use super::GatewayUrl;

/// The port of a URL without one, that of https.
const PORT_DEFAULT: u16 = 443;

/// An https URL without path, query, fragment or login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminUrl {
    /// An IPv6 address is without brackets.
    host: String,
    port: u16,
    shown: String,
}

/// A text that is not the URL of an admin API.
#[derive(Debug, thiserror::Error)]
#[error("use https://HOST:PORT with the port of admin.tcp.listen in the server's configuration")]
pub(crate) struct NotAnAdminUrl;

impl AdminUrl {
    /// The host, an IPv6 address without brackets.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl FromStr for AdminUrl {
    type Err = NotAnAdminUrl;

    fn from_str(text: &str) -> Result<Self, NotAnAdminUrl> {
        // It has the form of a gateway URL.
        text.parse::<GatewayUrl>().map_err(|_| NotAnAdminUrl)?;
        let url = Url::parse(text).map_err(|_| NotAnAdminUrl)?;
        let host = match url.host().ok_or(NotAnAdminUrl)? {
            Host::Domain(name) => name.to_owned(),
            Host::Ipv4(address) => address.to_string(),
            Host::Ipv6(address) => address.to_string(),
        };
        Ok(Self { host, port: url.port().unwrap_or(PORT_DEFAULT), shown: text.to_owned() })
    }
}

impl fmt::Display for AdminUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_no_brackets_and_the_port_is_optional() {
        for (text, host, port) in [
            ("https://server.example:9443", "server.example", 9443),
            ("https://10.0.0.1:1", "10.0.0.1", 1),
            ("https://[::1]:9443", "::1", 9443),
            ("https://server.example", "server.example", 443),
        ] {
            let url: AdminUrl = text.parse().unwrap();
            assert_eq!((url.host(), url.port(), url.to_string().as_str()), (host, port, text));
        }
    }

    #[test]
    fn other_urls_than_https_are_refused() {
        for text in ["", "server:9443", "http://server:9443", "https://u:p@server", "https://server/x"] {
            assert!(text.parse::<AdminUrl>().is_err(), "{text}");
        }
    }
}
