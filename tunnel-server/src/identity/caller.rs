//! An authenticated caller: its name, its groups, and the method that proved them.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::credential::{Credential, RetainedToken};
use super::reviewed::Reviewed;

/// The principal of a request. Only [`Authenticator::authenticate`](super::Authenticator::authenticate),
/// [`Caller::by_dial_token`] and the entry points ([`by_certificate`](super::by_certificate),
/// [`by_socket`](super::by_socket), [`by_source`](super::by_source)) make one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub(super) method: Method,
    pub(super) user: String,
    pub(super) groups: Vec<String>,
    pub(super) credential: Credential,
    /// The identity that the reviewing cluster has for it.
    pub(super) reviewed: Option<Arc<Reviewed>>,
    /// The token that is reviewed again while requests run.
    pub(super) token: Option<RetainedToken>,
    /// The source address, if it is all that is known of the caller.
    pub(super) source: Option<IpAddr>,
}

/// The method by which a caller authenticated.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Method {
    /// A client certificate of the callers' CA.
    ClientCertificate,
    /// A bearer token of the token file.
    StaticToken,
    /// A token of an OpenID Connect issuer; `oidc:` and the issuer's name in the configuration.
    Oidc(Arc<str>),
    /// A token that the host cluster's API server reviews; `token-review:` and the reviewer's name in the
    /// configuration.
    TokenReview(Arc<str>),
    /// An entry point, which is one principal for all its clients; `entry-point:` and its name in the
    /// configuration.
    EntryPoint(Arc<str>),
    /// A dial token of our own store.
    DialToken,
}

impl Caller {
    /// The owner of a valid dial token. It has no groups: a dial token does not give the rights that others
    /// have by theirs.
    #[must_use]
    pub fn by_dial_token(user: String, credential: Credential) -> Self {
        let method = Method::DialToken;
        Self { method, user, groups: Vec::new(), credential, reviewed: None, token: None, source: None }
    }

    /// The method by which it authenticated.
    #[must_use]
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Its name, with the prefix of the method; 1 to [`NAME_BYTES_MAX`](super::NAME_BYTES_MAX) bytes without control characters.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Its groups, with the prefix of the method; at most [`GROUPS_MAX`](super::GROUPS_MAX).
    #[must_use]
    pub fn groups(&self) -> &[String] {
        &self.groups
    }

    /// The token that is reviewed again while requests run, if there is one.
    pub(crate) fn token(&self) -> Option<&RetainedToken> {
        self.token.as_ref()
    }

    /// The identity that the reviewing cluster has for it.
    #[must_use]
    pub fn reviewed(&self) -> Option<&Reviewed> {
        self.reviewed.as_deref()
    }

    /// The source address of a client that did not authenticate: an IPv4 address, or the first address of a
    /// /64.
    #[must_use]
    pub fn source_address(&self) -> Option<IpAddr> {
        self.source
    }

    /// The credential by which it authenticated.
    #[must_use]
    pub fn credential(&self) -> &Credential {
        &self.credential
    }

    /// A caller that no method has authenticated, for tests.
    #[cfg(test)]
    pub(crate) fn for_test(user: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().map(|&group| group.to_owned()).collect();
        let credential = Credential { id: "for-test".into(), issued: None, expires: None };
        Self {
            method: Method::StaticToken,
            user: user.to_owned(),
            groups,
            credential,
            reviewed: None,
            token: None,
            source: None,
        }
    }

    /// The same caller, authenticated by a client certificate.
    #[cfg(test)]
    pub(crate) fn with_certificate_method(self) -> Self {
        Self { method: Method::ClientCertificate, ..self }
    }
}

impl Method {
    /// The method's name in policies, logs and labels, which [`policy::parse_method()`] parses.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::ClientCertificate => "client-certificate",
            Self::StaticToken => "token",
            Self::Oidc(word) | Self::TokenReview(word) | Self::EntryPoint(word) => word,
            Self::DialToken => policy::DIAL_TOKEN,
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
