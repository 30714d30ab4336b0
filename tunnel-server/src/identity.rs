//! Authentication: callers by certificate or token, agents and administrators by certificate.
//!
//! TLS has verified the certificates, and the time is an argument. Issuers and reviewers of tokens are called
//! from here.

use std::future::pending;
use std::sync::Arc;
use std::time::SystemTime;

use http::HeaderMap;
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;
use trust::identity;
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

/// An authenticated caller. Whether it sent a second credential is checked once its cluster is known.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a second credential may stand beside the caller's own"]
pub struct Authenticated {
    caller: Caller,
    /// True if an `Authorization` header came beside the certificate. Its value is not read.
    has_second: bool,
}

/// The identity in the verified certificate of a connection, read once, because a connection carries many
/// requests. Only [`Authenticator::read_certificate`] makes one.
#[derive(Debug, Clone)]
pub struct Certified {
    /// The validity; `None` if the certificate cannot be read.
    validity: Option<Validity>,
    caller: Result<Caller, NotAuthenticated>,
}

impl Certified {
    /// The caller that the certificate names; `None` if it names none. Its validity is not checked.
    #[must_use]
    pub fn caller(&self) -> Option<&Caller> {
        self.caller.as_ref().ok()
    }
}

/// The authentication methods of callers. Its `Debug` shows no token.
#[derive(Debug, Clone)]
pub struct Authenticator {
    trust_domain: String,
    methods: AuthMethods,
    /// The prefixes of all methods together.
    prefixes: Vec<Prefixes>,
}

/// The authentication methods that are configured. A name that begins with the longer prefix of another
/// method belongs to that method, and is refused.
#[derive(Debug, Clone, Default)]
pub struct AuthMethods {
    /// Client certificates, whose names get these prefixes.
    pub certificates: Option<Prefixes>,
    /// The static tokens of the token file.
    pub tokens: Option<SharedTokens>,
    /// Issuers of OpenID Connect tokens, each with a name of its own.
    pub issuers: Vec<Arc<Issuer>>,
    /// The reviewer of all other tokens.
    pub reviewer: Option<Arc<TokenReviewer>>,
}

impl Authenticated {
    /// The caller, if it sent only one credential. Clusters that take callers' own credentials allow two.
    ///
    /// # Errors
    ///
    /// `TwoCredentials`.
    pub fn require_single_credential(&self) -> Result<&Caller, NotAuthenticated> {
        if self.has_second { Err(NotAuthenticated::TwoCredentials) } else { Ok(&self.caller) }
    }

    /// The caller, if it authenticated by certificate. An `Authorization` header beside it is then for the
    /// cluster.
    ///
    /// # Errors
    ///
    /// `NoCertificate`: the `Authorization` header was for this server, and is passed to nobody.
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

    /// The caller, for the audit entry of a request that goes nowhere.
    #[must_use]
    pub fn claimed(&self) -> &Caller {
        &self.caller
    }
}

impl Authenticator {
    /// An authenticator with these methods. A certificate that names another role of the trust domain is
    /// refused.
    #[must_use]
    pub fn new(trust_domain: String, methods: AuthMethods) -> Self {
        let tokens = methods.tokens.as_ref().map(SharedTokens::prefixes);
        let issuers = methods.issuers.iter().map(|issuer| issuer.prefixes());
        let reviewer = methods.reviewer.as_ref().map(|reviewer| reviewer.prefixes());
        let all = methods.certificates.iter().chain(tokens).chain(issuers).chain(reviewer);
        let prefixes = all.cloned().collect();
        Self { trust_domain, methods, prefixes }
    }

    /// Reads the identity in the verified certificates of a connection, leaf first; `None` if there are none.
    /// Each request checks whether they are still valid.
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

    /// Authenticates a request with these `headers`, on a connection with this certificate.
    ///
    /// Waits only for issuers and reviewers of tokens, and for them only a few seconds.
    ///
    /// # Errors
    ///
    /// There is not exactly one credential, or it is not valid at `now`.
    pub async fn authenticate(
        &self,
        certified: Option<&Certified>,
        headers: &HeaderMap,
        now: SystemTime,
    ) -> Result<Authenticated, NotAuthenticated> {
        let sent = SentCredential::from_headers(headers)?;
        let has_second = certified.is_some() && sent.is_some();
        let caller = match (certified, sent) {
            // Beside a certificate a header can be for the cluster; a subprotocol is always for this server.
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

    /// Returns true if this server still knows the caller's credential. A static token can have been removed
    /// from its file; other methods are checked elsewhere.
    #[must_use]
    pub fn is_still_valid(&self, caller: &Caller) -> bool {
        match caller.method {
            Method::StaticToken => {
                self.methods.tokens.as_ref().is_none_or(|tokens| tokens.current().has_token_of(caller))
            }
            Method::ClientCertificate | Method::Oidc(_) | Method::TokenReview(_) | Method::EntryPoint(_) => {
                true
            }
            // The directory decides about dial tokens.
            Method::DialToken => true,
        }
    }

    /// Resolves when the answer of [`Authenticator::is_still_valid`] can have changed. Cancel-safe.
    pub async fn changed(changes: &mut Option<watch::Receiver<Arc<StaticTokens>>>) {
        match changes {
            // The sender lives as long as the authenticator.
            Some(changes) => drop(changes.changed().await),
            None => pending().await,
        }
    }

    /// The receiver for [`Authenticator::changed`]; `None` if nothing can change.
    #[must_use]
    pub fn changes(&self) -> Option<watch::Receiver<Arc<StaticTokens>>> {
        self.methods.tokens.as_ref().map(SharedTokens::changes)
    }

    /// Has the reviewer review the token of a caller again.
    ///
    /// # Errors
    ///
    /// The token is unknown now or belongs to somebody else, or the reviewer cannot be reached.
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
        identity::caller(leaf, &self.trust_domain).map_err(|_| CertificateError::Role)?;
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

    /// Authenticates by one method only, which the token itself selects. A token that one method has refused
    /// is never tried with another.
    async fn by_token(&self, token: &str, now: SystemTime) -> Result<Caller, NotAuthenticated> {
        // Dial tokens are valid at other listeners, and reviewers must not see them.
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
        // A malformed JWT is refused here. A reviewer could parse it in another way.
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

    /// The caller, unless its names have the prefix of another method.
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
