//! The URL of the gateway, `https://HOST[:PORT]`.

use std::str::FromStr;

use proto::ClusterId;
use url::Url;

use super::{HostSuffix, Label};

/// Longest URL of a gateway, in bytes. A DNS name with scheme and port is shorter.
const URL_BYTES_MAX: usize = 512;

/// An https URL without path, query, fragment or login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GatewayUrl(Url);

/// The error if a text is not the URL of a gateway.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotAGatewayUrl {
    #[error("the gateway's URL is https://HOST[:PORT], such as https://gateway.example:8443")]
    Malformed(#[source] url::ParseError),
    #[error("the gateway's URL is longer than {max} bytes; use https://HOST[:PORT]", max = URL_BYTES_MAX)]
    TooLong,
    #[error("the gateway is reached by https only, not {0}; use https://HOST[:PORT]")]
    Scheme(String),
    #[error(
        "the gateway's URL may carry no user name or password; pass a token with --token-file, and use https://HOST[:PORT]"
    )]
    UserInfo,
    #[error(
        "the gateway's URL may have no {0}; use https://HOST[:PORT], the path of a cluster is added to it"
    )]
    NotAllowed(&'static str),
}

impl GatewayUrl {
    /// The host as it is in the URL, an IPv6 address in brackets.
    pub(crate) fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    /// The URL without a slash at its end.
    pub(crate) fn as_str(&self) -> &str {
        self.0.as_str().trim_end_matches('/')
    }

    /// The URL with user and password, percent-encoded.
    pub(crate) fn with_login(&self, user: &str, password: &str) -> String {
        let mut url = self.0.clone();
        // This fails only for a URL without a host.
        let _ = url.set_username(user).and_then(|()| url.set_password(Some(password)));
        url.as_str().trim_end_matches('/').to_owned()
    }

    /// The host without brackets, and the port, for a connection.
    pub(crate) fn address(&self) -> (&str, u16) {
        let host = self.host();
        let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        (host, self.0.port_or_known_default().unwrap_or_default())
    }

    /// The URL of a cluster below the gateway's own host name.
    pub(crate) fn cluster_url_by_path(&self, cluster: &ClusterId) -> String {
        format!("https://{}{}/clusters/{cluster}", self.host(), self.port_suffix())
    }

    /// The URL of a cluster set, `https://HOST/clustersets/SET`.
    pub(crate) fn cluster_set_url(&self, set: &Label) -> String {
        format!("https://{}{}/clustersets/{set}", self.host(), self.port_suffix())
    }

    /// The URL of a cluster by a host name of its own, `CLUSTER.SUFFIX`.
    pub(crate) fn cluster_url_by_host_name(&self, cluster: &ClusterId, suffix: &HostSuffix) -> String {
        format!("https://{cluster}.{suffix}{}", self.port_suffix())
    }

    /// `:PORT`, or nothing for the default port of https.
    fn port_suffix(&self) -> String {
        self.0.port().map(|port| format!(":{port}")).unwrap_or_default()
    }
}

impl FromStr for GatewayUrl {
    type Err = NotAGatewayUrl;

    fn from_str(text: &str) -> Result<Self, NotAGatewayUrl> {
        if text.len() > URL_BYTES_MAX {
            return Err(NotAGatewayUrl::TooLong);
        }
        let url = Url::parse(text).map_err(NotAGatewayUrl::Malformed)?;
        // `gateway.example:8443` parses as a URL of the scheme `gateway.example`.
        if url.scheme() != "https" {
            return Err(NotAGatewayUrl::Scheme(url.scheme().to_owned()));
        }
        // Checked in the text, because the parser drops an empty user name.
        if text.split(['?', '#']).next().is_some_and(|before| before.contains('@')) {
            return Err(NotAGatewayUrl::UserInfo);
        }
        if url.query().is_some() {
            return Err(NotAGatewayUrl::NotAllowed("query"));
        }
        if url.fragment().is_some() {
            return Err(NotAGatewayUrl::NotAllowed("fragment"));
        }
        if url.path() != "/" {
            return Err(NotAGatewayUrl::NotAllowed("path"));
        }
        Ok(Self(url))
    }
}
