//! A caller who is known: its name, and how it proved that it is its own.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::credential::{Credential, RetainedToken};
use super::reviewed::Reviewed;

/// Who asks. Only [`Authenticator::authenticate`](super::Authenticator::authenticate), [`Caller::by_dial_token`] and the ways in
/// ([`by_certificate`](super::by_certificate), [`by_socket`](super::by_socket), [`by_source`](super::by_source)) make one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub(super) method: Method,
    pub(super) user: String,
    pub(super) groups: Vec<String>,
    pub(super) credential: Credential,
    /// How the cluster that reviewed its token knows it.
    pub(super) reviewed: Option<Arc<Reviewed>>,
    /// The token that is to be reviewed again.
    pub(super) token: Option<RetainedToken>,
    /// Where it came from, if that is all that is known of it.
    pub(super) source: Option<IpAddr>,
}

/// How a caller proved who it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Method {
    /// A client certificate of the callers' CA.
    ClientCertificate,
    /// A bearer token of the token file.
    StaticToken,
    /// A token of an OpenID Connect issuer; `oidc:` and the name that the configuration gives it.
    Oidc(Arc<str>),
    /// A token that the API server beside us knows; `token-review:` and the name that the configuration gives it.
    TokenReview(Arc<str>),
    /// It came by a way in, which is one principal, whoever that is; `entry-point:` and the name that the configuration gives it.
    EntryPoint(Arc<str>),
    /// A token of our own store that is good for being connected to targets.
    DialToken,
}

impl Caller {
    /// The owner of a dial token that the directory has found good, under the name that it was made for. Without groups: what
    /// others may by theirs is not lent to a token.
    #[must_use]
    pub fn by_dial_token(user: String, credential: Credential) -> Self {
        let method = Method::DialToken;
        Self { method, user, groups: Vec::new(), credential, reviewed: None, token: None, source: None }
    }

    /// How it proved who it is.
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

    /// The token that is to be reviewed again while something runs by it, if it came by one.
    pub(crate) fn token(&self) -> Option<&RetainedToken> {
        self.token.as_ref()
    }

    /// How the cluster that reviewed its token knows it.
    #[must_use]
    pub fn reviewed(&self) -> Option<&Reviewed> {
        self.reviewed.as_deref()
    }

    /// Where it came from, where nobody has proved anything: an address of IPv4, or the first of a /64.
    #[must_use]
    pub fn source_address(&self) -> Option<IpAddr> {
        self.source
    }

    /// With what it proved that.
    #[must_use]
    pub fn credential(&self) -> &Credential {
        &self.credential
    }

    /// A caller whom nobody authenticated.
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

    /// The same name, proved in another way.
    #[cfg(test)]
    pub(crate) fn with_certificate_method(self) -> Self {
        Self { method: Method::ClientCertificate, ..self }
    }
}

impl Method {
    /// A name for the policy, logs and labels, which [`policy::method()`] takes.
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
