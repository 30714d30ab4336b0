//! Who asks: callers by certificate or token, agents and administrators by certificate.
//!
//! Pure: certificates come in verified, the time comes in as an argument.

use std::time::SystemTime;

use http::{HeaderMap, header};
use rustls_pki_types::CertificateDer;
use trust::peer;
use x509_parser::prelude::X509Certificate;

mod admin;
mod agent;
mod certificate;
mod credential;
mod name;
mod token;

pub use admin::{AdminCertificate, NotAnAdmin, admin_identity};
pub use agent::{AgentCertificate, NotAnAgent, agent_identity};
pub use certificate::CertificateFault;
use certificate::Validity;
pub use credential::Credential;
pub use name::{GROUPS_MAX, NAME_BYTES_MAX, NameFault, Prefixes};
use token::Holder;
pub use token::{StaticTokens, TOKENS_MAX, TokenFileError, TokenFileFault};

/// Longest bearer token, in bytes.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Who asks. Only [`Authenticator::authenticate`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    method: Method,
    user: String,
    groups: Vec<String>,
    credential: Credential,
}

/// A caller who is known. Whether it may have sent a second credential is not, before it is known for which cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a second credential may stand beside the caller's own"]
pub struct Authenticated {
    caller: Caller,
    /// Whether an `Authorization` came beside the certificate; nobody has looked at it.
    has_second: bool,
}

/// What the verified certificate of a connection says, read once: a connection carries many requests. Only
/// [`Authenticator::read`] makes one.
#[derive(Debug, Clone)]
pub struct Certified {
    /// `None` where the certificate cannot be read.
    validity: Option<Validity>,
    caller: Result<Caller, NotAuthenticated>,
}

/// How a caller proved who it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Method {
    /// A client certificate of the callers' CA.
    ClientCertificate,
    /// A bearer token of the token file.
    StaticToken,
}

/// The ways in which callers prove who they are. Its `Debug` shows no token.
#[derive(Debug, Clone)]
pub struct Authenticator {
    trust_domain: String,
    certificates: Option<Prefixes>,
    tokens: Option<StaticTokens>,
}

/// Why it is not known who asks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAuthenticated {
    /// 401.
    #[error("no credential was sent: {0}")]
    NoCredential(Accepted),
    /// 400.
    #[error("two credentials were sent, a client certificate and an Authorization header: send one")]
    TwoCredentials,
    /// 401. For a cluster whose callers bring a token of its own.
    #[error(
        "this cluster takes its callers' own tokens: come to this gateway with a client certificate, and send the \
         cluster's token as Authorization"
    )]
    NoCertificate,
    /// 400.
    #[error("the request has more than one Authorization header")]
    TwoAuthorizations,
    /// 401. Basic, Negotiate and others; `Bearer` where tokens are not accepted.
    #[error("this kind of Authorization is not accepted here: {0}")]
    Scheme(Accepted),
    /// 401.
    #[error("the Authorization header does not hold one bearer token")]
    NotAToken,
    /// 401.
    #[error("the token is not known here")]
    UnknownToken,
    /// 401.
    #[error(transparent)]
    Certificate(#[from] CertificateFault),
}

/// What is accepted, as words for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// Client certificates are.
    pub certificates: bool,
    /// Bearer tokens are.
    pub tokens: bool,
}

impl Caller {
    /// How it proved who it is.
    #[must_use]
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Its name, with the prefix of the method; 1 to [`NAME_BYTES_MAX`] bytes without control characters.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Its groups, with the prefix of the method; at most [`GROUPS_MAX`].
    #[must_use]
    pub fn groups(&self) -> &[String] {
        &self.groups
    }

    /// With what it proved that.
    #[must_use]
    pub fn credential(&self) -> &Credential {
        &self.credential
    }

    /// A caller whom nobody authenticated.
    #[cfg(test)]
    pub(crate) fn pretended(user: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().map(|&group| group.to_owned()).collect();
        let credential = Credential { id: "pretended".into(), issued: None, expires: None };
        Self { method: Method::StaticToken, user: user.to_owned(), groups, credential }
    }
}

impl Authenticated {
    /// The caller, if it sent one credential: everywhere but where callers' own pass through.
    ///
    /// # Errors
    ///
    /// `TwoCredentials`.
    pub fn alone(&self) -> Result<&Caller, NotAuthenticated> {
        if self.has_second { Err(NotAuthenticated::TwoCredentials) } else { Ok(&self.caller) }
    }

    /// The caller, if it came by certificate: then `Authorization`, if there is one, is not for this server.
    ///
    /// # Errors
    ///
    /// `NoCertificate`: what it sent as `Authorization` was for this server, and passes to nobody.
    pub fn by_certificate(&self) -> Result<&Caller, NotAuthenticated> {
        match self.caller.method {
            Method::ClientCertificate => Ok(&self.caller),
            Method::StaticToken => Err(NotAuthenticated::NoCertificate),
        }
    }

    /// The caller, for what is recorded of a request that goes nowhere.
    #[must_use]
    pub fn claimed(&self) -> &Caller {
        &self.caller
    }
}

impl Method {
    /// A name for the policy, logs and labels, which [`policy::method()`] takes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::ClientCertificate => "client-certificate",
            Self::StaticToken => "token",
        }
    }
}

impl Authenticator {
    /// Accepts what is given: client certificates, whose names get these prefixes, and these tokens.
    ///
    /// A name that begins with the longer prefix of the other method is that method's, and is refused. So is a certificate
    /// that names another role of the trust domain.
    #[must_use]
    pub fn new(trust_domain: String, certificates: Option<Prefixes>, tokens: Option<StaticTokens>) -> Self {
        Self { trust_domain, certificates, tokens }
    }

    /// Whom the verified certificates of a connection name, leaf first; `None` if there are none. Whether they hold is
    /// asked with each request.
    #[must_use]
    pub fn read(&self, chain: &[CertificateDer<'_>]) -> Option<Certified> {
        let leaf = certificate::read(chain.first()?);
        let validity = leaf.as_ref().map(Validity::of);
        let caller = match &leaf {
            Some(leaf) => self.by_certificate(leaf),
            None => Err(CertificateFault::Unreadable.into()),
        };
        Some(Certified { validity, caller })
    }

    /// Who sent a request with these `headers`, on a connection with this certificate.
    ///
    /// # Errors
    ///
    /// Not exactly one credential, or one that does not hold at `now`.
    pub fn authenticate(
        &self,
        certified: Option<&Certified>,
        headers: &HeaderMap,
        now: SystemTime,
    ) -> Result<Authenticated, NotAuthenticated> {
        let mut authorizations = headers.get_all(header::AUTHORIZATION).iter();
        let (authorization, None) = (authorizations.next(), authorizations.next()) else {
            return Err(NotAuthenticated::TwoAuthorizations);
        };
        let caller = match (certified, authorization) {
            (Some(certified), _) => certified.caller_at(now),
            (None, Some(authorization)) => self.by_token(authorization.as_bytes()),
            (None, None) => Err(NotAuthenticated::NoCredential(self.accepted())),
        };
        Ok(Authenticated { caller: caller?, has_second: certified.is_some() && authorization.is_some() })
    }

    fn by_certificate(&self, leaf: &X509Certificate<'_>) -> Result<Caller, NotAuthenticated> {
        let Some(prefixes) = &self.certificates else {
            return Err(NotAuthenticated::NoCredential(self.accepted()));
        };
        peer::caller(leaf, &self.trust_domain).map_err(|_| CertificateFault::Role)?;
        let (user, groups) = certificate::subject(leaf, prefixes)?;
        if let Some(tokens) = &self.tokens {
            prefixes.do_not_trespass(tokens.prefixes(), &user, &groups).map_err(CertificateFault::Name)?;
        }
        let credential = certificate::credential(leaf);
        Ok(Caller { method: Method::ClientCertificate, user, groups, credential })
    }

    fn by_token(&self, authorization: &[u8]) -> Result<Caller, NotAuthenticated> {
        let Some((tokens, token)) = self.tokens.as_ref().zip(token::of_bearer(authorization)) else {
            return Err(NotAuthenticated::Scheme(self.accepted()));
        };
        if token.len() > TOKEN_BYTES_MAX || !token::is_token(token) {
            return Err(NotAuthenticated::NotAToken);
        }
        let holder = tokens.holder(token).ok_or(NotAuthenticated::UnknownToken)?;
        if let Some(certificates) = &self.certificates {
            let trespass = tokens.prefixes().do_not_trespass(certificates, &holder.user, &holder.groups);
            trespass.map_err(|_| NotAuthenticated::UnknownToken)?;
        }
        let Holder { user, groups, credential } = holder.clone();
        Ok(Caller { method: Method::StaticToken, user, groups, credential })
    }

    fn accepted(&self) -> Accepted {
        Accepted { certificates: self.certificates.is_some(), tokens: self.tokens.is_some() }
    }
}

impl Certified {
    fn caller_at(&self, now: SystemTime) -> Result<Caller, NotAuthenticated> {
        self.validity.as_ref().map_or(Ok(()), |validity| validity.holds(now))?;
        self.caller.clone()
    }
}

impl std::fmt::Display for Accepted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match (self.certificates, self.tokens) {
            (true, true) => "use a client certificate or a bearer token",
            (true, false) => "use a client certificate",
            (false, true) => "use a bearer token",
            (false, false) => "no method of authentication is configured",
        })
    }
}

#[cfg(test)]
mod tests;
