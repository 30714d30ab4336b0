//! Where a server's admin API is, for other machines.

use std::fmt;
use std::str::FromStr;

use url::{Host, Url};

use super::GatewayUrl;

/// The port where none is named, that of https.
const PORT_DEFAULT: u16 = 443;

/// `https://HOST[:PORT]` and nothing more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerUrl {
    /// Without brackets.
    host: String,
    port: u16,
    shown: String,
}

/// Why a text is not the URL of an admin API.
#[derive(Debug, thiserror::Error)]
#[error("use https://HOST:PORT with the port of admin.tcp.listen in the server's configuration")]
pub(crate) struct NotAServerUrl;

impl ServerUrl {
    /// The host, an IPv6 address without brackets.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl FromStr for ServerUrl {
    type Err = NotAServerUrl;

    fn from_str(text: &str) -> Result<Self, NotAServerUrl> {
        // The same form as a gateway's.
        text.parse::<GatewayUrl>().map_err(|_| NotAServerUrl)?;
        let url = Url::parse(text).map_err(|_| NotAServerUrl)?;
        let host = match url.host().ok_or(NotAServerUrl)? {
            Host::Domain(name) => name.to_owned(),
            Host::Ipv4(address) => address.to_string(),
            Host::Ipv6(address) => address.to_string(),
        };
        Ok(Self { host, port: url.port().unwrap_or(PORT_DEFAULT), shown: text.to_owned() })
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_comes_without_brackets_and_a_port_may_be_left_out() {
        for (text, host, port) in [
            ("https://server.example:9443", "server.example", 9443),
            ("https://10.0.0.1:1", "10.0.0.1", 1),
            ("https://[::1]:9443", "::1", 9443),
            ("https://server.example", "server.example", 443),
        ] {
            let url: ServerUrl = text.parse().unwrap();
            assert_eq!((url.host(), url.port(), url.to_string().as_str()), (host, port, text));
        }
    }

    #[test]
    fn what_is_no_address_of_https_is_refused() {
        for text in ["", "server:9443", "http://server:9443", "https://u:p@server", "https://server/x"] {
            assert!(text.parse::<ServerUrl>().is_err(), "{text}");
        }
    }
}
