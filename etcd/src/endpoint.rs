//! Addresses of etcd's members, as `etcdctl --endpoints` takes them.

use std::fmt;
use std::str::FromStr;

use http::Uri;
use rustls_pki_types::ServerName;

/// etcd's port for clients.
const PORT: u16 = 2379;

/// The URL of a member: `https://HOST:PORT`, or `http://HOST:PORT` without TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    host: String,
    port: u16,
    name: Option<ServerName<'static>>,
}

/// The text is not the URL of a member.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no endpoint of etcd: write https://HOST:2379, or http://HOST:2379 without TLS")]
pub struct NotAnEndpoint(String);

impl Endpoint {
    /// The host, without the brackets of an IPv6 address.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; 2379 if the URL has none.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URI of the member's root.
    pub(crate) fn origin(&self) -> Uri {
        // Both were parts of a URL.
        self.to_string().parse().unwrap_or_default()
    }

    /// The name that the member's certificate must have; `None` without TLS.
    #[must_use]
    pub fn tls_name(&self) -> Option<&ServerName<'static>> {
        self.name.as_ref()
    }
}

impl FromStr for Endpoint {
    type Err = NotAnEndpoint;

    fn from_str(text: &str) -> Result<Self, NotAnEndpoint> {
        let wrong = || NotAnEndpoint(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let (authority, has_tls) = match (uri.authority(), uri.scheme_str()) {
            (Some(authority), Some("https")) => (authority, true),
            (Some(authority), Some("http")) => (authority, false),
            (Some(_) | None, Some(_) | None) => return Err(wrong()),
        };
        let (host, port) = (authority.host(), authority.port_u16());
        // Nothing else may stand there: neither a user nor a port that is none.
        let is_plain = match port {
            Some(port) => authority.as_str() == format!("{host}:{port}"),
            None => authority.as_str() == host,
        };
        // The library drops a fragment.
        if !is_plain || uri.path() != "/" || uri.query().is_some() || text.contains('#') {
            return Err(wrong());
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = has_tls.then(|| ServerName::try_from(host.clone())).transpose().map_err(|_| wrong())?;
        Ok(Self { host, port: port.unwrap_or(PORT), name })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.name.is_some() { "https" } else { "http" };
        if self.host.contains(':') {
            write!(f, "{scheme}://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{scheme}://{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_url_without_a_path_and_has_the_port_of_etcd() {
        for (text, shown) in [
            ("https://etcd-0.example:2379", Some("https://etcd-0.example:2379")),
            ("https://etcd-0.example", Some("https://etcd-0.example:2379")),
            ("https://etcd-0.example:443/", Some("https://etcd-0.example:443")),
            ("http://127.0.0.1:80", Some("http://127.0.0.1:80")),
            ("http://[::1]:2379/", Some("http://[::1]:2379")),
            ("etcd-0.example:2379", None),
            ("127.0.0.1:2379", None),
            ("https://etcd-0.example/path", None),
            ("https://user:word@etcd-0.example", None),
            ("https://etcd-0.example:99999", None),
            ("https://etcd-0.example/#x", None),
            ("unix:///etcd.sock", None),
            ("", None),
        ] {
            let parsed = text.parse::<Endpoint>();
            assert_eq!(parsed.as_ref().map(Endpoint::to_string).ok().as_deref(), shown, "{text}");
        }
    }
}
