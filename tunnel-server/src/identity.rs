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
mod entry_point;
mod error;
#[cfg(test)]
mod fuzz;
mod host_api;
mod https;
mod leaf;
mod name;
pub mod oidc;
pub(crate) mod review_cache;
mod reviewed;
mod shared_tokens;
mod static_tokens;
#[cfg(test)]
mod test_server;
pub mod token_review;
mod verified;

pub use admin::{AdminCertificate, NotAnAdmin, admin_identity};
pub use agent::{AgentCertificate, NotAnAgent, agent_identity};
use bearer::SentCredential;
pub use caller::{Caller, Method};
pub use certificate::CertificateError;
use certificate::Validity;
pub use credential::Credential;
pub(crate) use credential::RetainedToken;
pub use entry_point::{EntryPointError, by_certificate, by_socket, by_source};
pub use error::{AcceptedMethods, NotAuthenticated, SubprotocolError};
pub use host_api::{ANSWER_BYTES_MAX, HostApi};
pub(crate) use host_api::{HostApiError, JSON};
pub use name::{GROUPS_MAX, NAME_BYTES_MAX, NameError, Prefixes, is_name};
use oidc::{Issuer, Jwt, OidcTokenError};
pub use reviewed::{REVIEWED_BYTES_MAX, Reviewed};
pub use shared_tokens::SharedTokens;
use static_tokens::TokenHolder;
pub use static_tokens::{StaticTokens, TOKENS_MAX, TokenFileError, TokenLineError};
use token_review::{TokenReviewError, TokenReviewer};
pub use verified::Verified;

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

/// The methods in which callers prove who they are. Its `Debug` shows no token.
#[derive(Debug, Clone)]
pub struct Authenticator {
    trust_domain: String,
    methods: AuthMethods,
    /// Of all methods.
    prefixes: Vec<Prefixes>,
}

/// What callers may prove themselves by. A name that begins with the longer prefix of another way is that way's, and is
/// refused.
#[derive(Debug, Clone, Default)]
pub struct AuthMethods {
    /// Client certificates, whose names get these prefixes.
    pub certificates: Option<Prefixes>,
    /// These tokens.
    pub tokens: Option<SharedTokens>,
    /// Tokens of these issuers, no two of which bear the same name.
    pub issuers: Vec<Arc<Issuer>>,
    /// Whatever other token it knows.
    pub reviewer: Option<Arc<TokenReviewer>>,
}

impl Authenticated {
    /// The caller, if it sent one credential: everywhere but where callers' own pass through.
    ///
    /// # Errors
    ///
    /// `TwoCredentials`.
    pub fn require_single_credential(&self) -> Result<&Caller, NotAuthenticated> {
        if self.has_second { Err(NotAuthenticated::TwoCredentials) } else { Ok(&self.caller) }
    }

    /// The caller, if it came by certificate: then `Authorization`, if there is one, is not for this server.
    ///
    /// # Errors
    ///
    /// `NoCertificate`: what it sent as `Authorization` was for this server, and passes to nobody.
    pub fn require_certificate(&self) -> Result<&Caller, NotAuthenticated> {
        match self.caller.method {
            Method::ClientCertificate => Ok(&self.caller),
            Method::StaticToken
            | Method::Oidc(_)
            | Method::TokenReview(_)
            | Method::EntryPoint(_)
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
    pub fn new(trust_domain: String, methods: AuthMethods) -> Self {
        let tokens = methods.tokens.as_ref().map(SharedTokens::prefixes);
        let issuers = methods.issuers.iter().map(|issuer| issuer.prefixes());
        let reviewer = methods.reviewer.as_ref().map(|reviewer| reviewer.prefixes());
        let all = methods.certificates.iter().chain(tokens).chain(issuers).chain(reviewer);
        let prefixes = all.cloned().collect();
        Self { trust_domain, methods, prefixes }
    }

    /// Whom the verified certificates of a connection name, leaf first; `None` if there are none. Whether they hold is
    /// asked with each request.
    #[must_use]
    pub fn read_certificate(&self, chain: &[CertificateDer<'_>]) -> Option<Certified> {
        let leaf = certificate::read(chain.first()?);
        let validity = leaf.as_ref().map(Validity::from_certificate);
        let caller = match &leaf {
            Some(leaf) => self.by_certificate(leaf),
            None => Err(CertificateError::Unreadable.into()),
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
        let sent = SentCredential::from_headers(headers)?;
        let has_second = certified.is_some() && sent.is_some();
        let caller = match (certified, sent) {
            // Beside a certificate a header may be for somebody else; a subprotocol is for nobody but us.
            (Some(_), Some(SentCredential::Subprotocol(_))) => Err(NotAuthenticated::TwoCredentials),
            (Some(certified), Some(SentCredential::Authorization(_)) | None) => certified.caller_at(now),
            (None, None) => Err(NotAuthenticated::NoCredential(self.accepted())),
            (None, Some(sent)) => {
                let token = sent.token().filter(|_| self.accepted().tokens);
                let token = token.ok_or_else(|| NotAuthenticated::Scheme(self.accepted()))?;
                if token.len() > TOKEN_BYTES_MAX || !static_tokens::is_token(token) {
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
    pub fn is_still_valid(&self, caller: &Caller) -> bool {
        match caller.method {
            Method::StaticToken => {
                self.methods.tokens.as_ref().is_none_or(|tokens| tokens.current().knows(caller))
            }
            Method::ClientCertificate | Method::Oidc(_) | Method::TokenReview(_) | Method::EntryPoint(_) => {
                true
            }
            // The directory says it.
            Method::DialToken => true,
        }
    }

    /// Resolves when [`Authenticator::is_still_valid`] may have another answer. Cancel-safe.
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
        self.methods.tokens.as_ref().map(SharedTokens::changes)
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
        let (Some(reviewer), Some(token)) = (&self.methods.reviewer, &caller.token) else { return Ok(()) };
        let again = reviewer.caller(token.token(), now).await?;
        let again = self.check_prefixes(again, reviewer.prefixes()).map_err(TokenReviewError::Name)?;
        if again == *caller { Ok(()) } else { Err(NotAuthenticated::UnknownToken) }
    }

    fn by_certificate(&self, leaf: &X509Certificate<'_>) -> Result<Caller, NotAuthenticated> {
        let Some(prefixes) = &self.methods.certificates else {
            return Err(NotAuthenticated::NoCredential(self.accepted()));
        };
        peer::caller(leaf, &self.trust_domain).map_err(|_| CertificateError::Role)?;
        let (user, groups) = certificate::subject(leaf, prefixes)?;
        let credential = certificate::credential(leaf);
        let caller = Caller {
            method: Method::ClientCertificate,
            user,
            groups,
            credential,
            reviewed: None,
            token: None,
            source: None,
        };
        Ok(self.check_prefixes(caller, prefixes).map_err(CertificateError::Name)?)
    }

    /// One way alone is asked, which the token itself decides: none says yes where another has said no.
    async fn by_token(&self, token: &str, now: SystemTime) -> Result<Caller, NotAuthenticated> {
        // Good at another door, and nothing for a reviewer to see.
        if token.starts_with(policy::DIAL_TOKEN_PREFIX) {
            return Err(NotAuthenticated::UnknownToken);
        }
        let AuthMethods { tokens, issuers, reviewer, .. } = &self.methods;
        if let Some((tokens, holder)) =
            tokens.as_ref().and_then(|tokens| Some((tokens, tokens.current().holder(token)?.clone())))
        {
            let TokenHolder { user, groups, credential } = holder;
            let method = Method::StaticToken;
            let caller =
                Caller { method, user, groups, credential, reviewed: None, token: None, source: None };
            return self
                .check_prefixes(caller, tokens.prefixes())
                .map_err(|_| NotAuthenticated::UnknownToken);
        }
        if issuers.is_empty() && reviewer.is_none() {
            return Err(NotAuthenticated::UnknownToken);
        }
        // What looks like a JWT and is none is nobody's: not even a reviewer's, who might read it in another way.
        let jwt = Jwt::parse(token).transpose().map_err(OidcTokenError::from)?;
        if let Some(jwt) = &jwt
            && let Some(issuer) = issuers.iter().find(|issuer| issuer.is_issuer_of(jwt))
        {
            let caller = issuer.caller(token, jwt, now).await?;
            return Ok(self
                .check_prefixes(caller, issuer.prefixes())
                .map_err(|fault| OidcTokenError::Claims(fault.into()))?);
        }
        let reviewer = reviewer.as_ref().ok_or(NotAuthenticated::UnknownToken)?;
        let caller = reviewer.caller(token, now).await?;
        Ok(self.check_prefixes(caller, reviewer.prefixes()).map_err(TokenReviewError::Name)?)
    }

    /// The caller, unless its names look like those of another way.
    fn check_prefixes(&self, caller: Caller, prefixes: &Prefixes) -> Result<Caller, NameError> {
        for others in &self.prefixes {
            prefixes.check_no_overlap(others, &caller.user, &caller.groups)?;
        }
        Ok(caller)
    }

    fn accepted(&self) -> AcceptedMethods {
        let AuthMethods { certificates, tokens, issuers, reviewer } = &self.methods;
        let has_tokens = tokens.is_some() || !issuers.is_empty() || reviewer.is_some();
        AcceptedMethods { certificates: certificates.is_some(), tokens: has_tokens }
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
