//! Who asks: callers by certificate or token, agents and administrators by certificate.
//!
//! Certificates come in verified, the time comes in as an argument. Those who issue and review tokens are asked from here.

use std::future::pending;
use std::sync::Arc;
use std::time::SystemTime;

use http::HeaderMap;
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;
use trust::peer;
use x509_parser::prelude::X509Certificate;

mod admin;
mod agent;
mod bearer;
mod caller;
mod certificate;
mod credential;
mod fault;
mod fetch;
#[cfg(test)]
mod fuzz;
mod host_api;
mod name;
#[cfg(test)]
mod neighbour;
pub mod oidc;
pub(crate) mod questions;
pub mod review;
mod token;
mod token_book;
mod verified;
mod way_in;

pub use admin::{AdminCertificate, NotAnAdmin, admin_identity};
pub use agent::{AgentCertificate, NotAnAgent, agent_identity};
use bearer::Sent;
pub use bearer::SubprotocolFault;
pub use caller::{Caller, Method};
pub use certificate::CertificateFault;
use certificate::Validity;
pub use credential::Credential;
pub(crate) use credential::KeptToken;
pub use fault::{Accepted, NotAuthenticated};
pub use host_api::{ANSWER_BYTES_MAX, HostApi};
pub(crate) use host_api::{JSON, NoAnswer};
pub use name::{GROUPS_MAX, NAME_BYTES_MAX, NameFault, Prefixes, is_name};
use oidc::{Issuer, Jwt, TokenFault};
use review::{ReviewFault, Reviewer};
use token::Holder;
pub use token::{StaticTokens, TOKENS_MAX, TokenFileError, TokenFileFault};
pub use token_book::TokenBook;
pub use verified::Verified;
pub use way_in::{NotOfWayIn, by_certificate, by_place, by_socket};

/// Longest bearer token, in bytes.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;

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

/// The ways in which callers prove who they are. Its `Debug` shows no token.
#[derive(Debug, Clone)]
pub struct Authenticator {
    trust_domain: String,
    ways: Ways,
    /// Of all ways.
    prefixes: Vec<Prefixes>,
}

/// What callers may prove themselves by. A name that begins with the longer prefix of another way is that way's, and is
/// refused.
#[derive(Debug, Clone, Default)]
pub struct Ways {
    /// Client certificates, whose names get these prefixes.
    pub certificates: Option<Prefixes>,
    /// These tokens.
    pub tokens: Option<TokenBook>,
    /// Tokens of these issuers, no two of which bear the same name.
    pub issuers: Vec<Arc<Issuer>>,
    /// Whatever other token it knows.
    pub reviewer: Option<Arc<Reviewer>>,
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
            Method::StaticToken
            | Method::Oidc(_)
            | Method::TokenReview(_)
            | Method::WayIn(_)
            | Method::DialToken => Err(NotAuthenticated::NoCertificate),
        }
    }

    /// The caller, for what is recorded of a request that goes nowhere.
    #[must_use]
    pub fn claimed(&self) -> &Caller {
        &self.caller
    }
}

impl Authenticator {
    /// Accepts what is given. A certificate that names another role of the trust domain is refused.
    #[must_use]
    pub fn new(trust_domain: String, ways: Ways) -> Self {
        let tokens = ways.tokens.as_ref().map(TokenBook::prefixes);
        let issuers = ways.issuers.iter().map(|issuer| issuer.prefixes());
        let reviewer = ways.reviewer.as_ref().map(|reviewer| reviewer.prefixes());
        let all = ways.certificates.iter().chain(tokens).chain(issuers).chain(reviewer);
        let prefixes = all.cloned().collect();
        Self { trust_domain, ways, prefixes }
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
    /// Waits only for those who issue and review tokens, and for them not long.
    ///
    /// # Errors
    ///
    /// Not exactly one credential, or one that does not hold at `now`.
    pub async fn authenticate(
        &self,
        certified: Option<&Certified>,
        headers: &HeaderMap,
        now: SystemTime,
    ) -> Result<Authenticated, NotAuthenticated> {
        let sent = Sent::of(headers)?;
        let has_second = certified.is_some() && sent.is_some();
        let caller = match (certified, sent) {
            // Beside a certificate a header may be for somebody else; a subprotocol is for nobody but us.
            (Some(_), Some(Sent::Subprotocol(_))) => Err(NotAuthenticated::TwoCredentials),
            (Some(certified), Some(Sent::Authorization(_)) | None) => certified.caller_at(now),
            (None, None) => Err(NotAuthenticated::NoCredential(self.accepted())),
            (None, Some(sent)) => {
                let token = sent.token().filter(|_| self.accepted().tokens);
                let token = token.ok_or_else(|| NotAuthenticated::Scheme(self.accepted()))?;
                if token.len() > TOKEN_BYTES_MAX || !token::is_token(token) {
                    return Err(NotAuthenticated::NotAToken);
                }
                self.by_token(std::str::from_utf8(token).map_err(|_| NotAuthenticated::NotAToken)?, now).await
            }
        };
        Ok(Authenticated { caller: caller?, has_second })
    }

    /// Whether what a caller came in by is still known here, as far as this server knows it itself: a token of the file may be
    /// gone from there.
    #[must_use]
    pub fn still_knows(&self, caller: &Caller) -> bool {
        match caller.method {
            Method::StaticToken => {
                self.ways.tokens.as_ref().is_none_or(|tokens| tokens.current().knows(caller))
            }
            Method::ClientCertificate | Method::Oidc(_) | Method::TokenReview(_) | Method::WayIn(_) => true,
            // The directory says it.
            Method::DialToken => true,
        }
    }

    /// Resolves when [`Authenticator::still_knows`] may have another answer. Cancel-safe.
    pub async fn changed(changes: &mut Option<watch::Receiver<Arc<StaticTokens>>>) {
        match changes {
            // The sender lives as long as whoever is asked.
            Some(changes) => drop(changes.changed().await),
            None => pending().await,
        }
    }

    /// What is waited for by [`Authenticator::changed`].
    #[must_use]
    pub fn changes(&self) -> Option<watch::Receiver<Arc<StaticTokens>>> {
        self.ways.tokens.as_ref().map(TokenBook::changes)
    }

    /// Shows the token of a caller to its reviewer again.
    ///
    /// # Errors
    ///
    /// It is nobody's any more, or somebody else's, or nobody answers.
    pub(crate) async fn review_again(
        &self,
        caller: &Caller,
        now: SystemTime,
    ) -> Result<(), NotAuthenticated> {
        let (Some(reviewer), Some(token)) = (&self.ways.reviewer, &caller.token) else { return Ok(()) };
        let again = reviewer.caller(token.token(), now).await?;
        let again = self.own(again, reviewer.prefixes()).map_err(ReviewFault::Name)?;
        if again == *caller { Ok(()) } else { Err(NotAuthenticated::UnknownToken) }
    }

    fn by_certificate(&self, leaf: &X509Certificate<'_>) -> Result<Caller, NotAuthenticated> {
        let Some(prefixes) = &self.ways.certificates else {
            return Err(NotAuthenticated::NoCredential(self.accepted()));
        };
        peer::caller(leaf, &self.trust_domain).map_err(|_| CertificateFault::Role)?;
        let (user, groups) = certificate::subject(leaf, prefixes)?;
        let credential = certificate::credential(leaf);
        let caller = Caller {
            method: Method::ClientCertificate,
            user,
            groups,
            credential,
            reviewed: None,
            token: None,
            place: None,
        };
        Ok(self.own(caller, prefixes).map_err(CertificateFault::Name)?)
    }

    /// One way alone is asked, which the token itself decides: none says yes where another has said no.
    async fn by_token(&self, token: &str, now: SystemTime) -> Result<Caller, NotAuthenticated> {
        // Good at another door, and nothing for a reviewer to see.
        if token.starts_with(policy::DIAL_TOKEN_PREFIX) {
            return Err(NotAuthenticated::UnknownToken);
        }
        let Ways { tokens, issuers, reviewer, .. } = &self.ways;
        if let Some((tokens, holder)) =
            tokens.as_ref().and_then(|tokens| Some((tokens, tokens.current().holder(token)?.clone())))
        {
            let Holder { user, groups, credential } = holder;
            let method = Method::StaticToken;
            let caller =
                Caller { method, user, groups, credential, reviewed: None, token: None, place: None };
            return self.own(caller, tokens.prefixes()).map_err(|_| NotAuthenticated::UnknownToken);
        }
        if issuers.is_empty() && reviewer.is_none() {
            return Err(NotAuthenticated::UnknownToken);
        }
        // What looks like a JWT and is none is nobody's: not even a reviewer's, who might read it in another way.
        let jwt = Jwt::parse(token).transpose().map_err(TokenFault::from)?;
        if let Some(jwt) = &jwt
            && let Some(issuer) = issuers.iter().find(|issuer| issuer.is_issuer_of(jwt))
        {
            let caller = issuer.caller(token, jwt, now).await?;
            return Ok(self
                .own(caller, issuer.prefixes())
                .map_err(|fault| TokenFault::Claims(fault.into()))?);
        }
        let reviewer = reviewer.as_ref().ok_or(NotAuthenticated::UnknownToken)?;
        let caller = reviewer.caller(token, now).await?;
        Ok(self.own(caller, reviewer.prefixes()).map_err(ReviewFault::Name)?)
    }

    /// The caller, unless its names look like those of another way.
    fn own(&self, caller: Caller, prefixes: &Prefixes) -> Result<Caller, NameFault> {
        for others in &self.prefixes {
            prefixes.do_not_trespass(others, &caller.user, &caller.groups)?;
        }
        Ok(caller)
    }

    fn accepted(&self) -> Accepted {
        let Ways { certificates, tokens, issuers, reviewer } = &self.ways;
        let has_tokens = tokens.is_some() || !issuers.is_empty() || reviewer.is_some();
        Accepted { certificates: certificates.is_some(), tokens: has_tokens }
    }
}

impl Certified {
    fn caller_at(&self, now: SystemTime) -> Result<Caller, NotAuthenticated> {
        self.validity.as_ref().map_or(Ok(()), |validity| validity.holds(now))?;
        self.caller.clone()
    }
}

#[cfg(test)]
mod tests;
