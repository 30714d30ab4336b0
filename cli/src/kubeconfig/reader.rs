//! Reads kubeconfigs for every command that takes one, and the URLs of servers in them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use url::Url;

pub(crate) use daemon::kubeconfig::{
    ClusterEntry, Kubeconfig, KubeconfigSyntaxError, SelectContextError, UserEntry, first_document,
};

/// The URL of a server that is reached by https.
pub(crate) struct HttpsServer(Url);

impl HttpsServer {
    /// `None` unless the text is a URL of the scheme https.
    pub(crate) fn parse(server: &str) -> Option<Self> {
        let url = Url::parse(server).ok()?;
        (url.scheme() == "https" && url.host_str().is_some()).then_some(Self(url))
    }

    /// The host as URLs spell it, an IPv6 address in brackets.
    pub(crate) fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    /// The host as certificates and sockets spell it, without brackets.
    pub(crate) fn bare_host(&self) -> &str {
        self.host().trim_matches(['[', ']'])
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.port_or_known_default().unwrap_or(443)
    }

    /// The path, without a slash at its end.
    pub(crate) fn path(&self) -> &str {
        self.0.path().trim_end_matches('/')
    }
}

/// The contents of a key that ends in `-data`: base64, in which line breaks are allowed.
pub(crate) fn decode_data(data: &str) -> Option<Vec<u8>> {
    BASE64.decode(data.split_whitespace().collect::<String>()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_an_https_url_with_host_port_and_path() {
        let server = HttpsServer::parse("https://[2001:db8::1]/clusters/x/").unwrap();
        assert_eq!((server.host(), server.bare_host()), ("[2001:db8::1]", "2001:db8::1"));
        assert_eq!((server.port(), server.path()), (443, "/clusters/x"));
        for text in ["http://a", "a:6443", ""] {
            assert!(HttpsServer::parse(text).is_none(), "{text}");
        }
    }
}
