//! Why it is not known who asks, in words that say what to send.

use std::fmt;

use super::caller::Method;
use super::certificate::CertificateError;
use super::oidc::OidcTokenError;
use super::token_review::TokenReviewError;

/// Why it is not known who asks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAuthenticated {
    /// 401.
    #[error("no credential was sent: {0}")]
    NoCredential(AcceptedMethods),
    /// 400.
    #[error(
        "two credentials were sent: send one, a client certificate or one bearer token in the Authorization header or in \
         the WebSocket subprotocol"
    )]
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
    Scheme(AcceptedMethods),
    /// 401.
    #[error("the Authorization header does not hold one bearer token")]
    NotAToken,
    /// 401.
    #[error("the token is not known here")]
    UnknownToken,
    /// 401.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// 400 where there are two, else 401.
    #[error(transparent)]
    Subprotocol(#[from] SubprotocolError),
    /// 401.
    #[error(transparent)]
    Token(#[from] OidcTokenError),
    /// 401.
    #[error(transparent)]
    Review(#[from] TokenReviewError),
    /// 503. Never a yes, and never a no that a program takes for the end of its token.
    #[error("it cannot be told whose this token is, because {0} does not answer: try again")]
    Unreachable(Method),
}

/// What is wrong with a token in the WebSocket subprotocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubprotocolError {
    /// 400.
    #[error("the request offers more than one bearer token as a WebSocket subprotocol")]
    Two,
    /// 401.
    #[error("the bearer token in the WebSocket subprotocol is not in base64url without padding")]
    Encoding,
    /// 401. The answer would have to choose the token for the protocol, and so repeat it.
    #[error("the bearer token is the only WebSocket subprotocol: offer the one to speak, too")]
    Alone,
}

/// What is accepted, as words for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedMethods {
    /// Client certificates are.
    pub certificates: bool,
    /// Bearer tokens are.
    pub tokens: bool,
}

impl fmt::Display for AcceptedMethods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.certificates, self.tokens) {
            (true, true) => "use a client certificate or a bearer token",
            (true, false) => "use a client certificate",
            (false, true) => "use a bearer token",
            (false, false) => "no method of authentication is configured",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sends_nothing_is_told_what_is_accepted_and_nothing_else() {
        for (certificates, tokens, said) in [
            (true, true, "a client certificate or a bearer token"),
            (true, false, "a client certificate"),
            (false, true, "a bearer token"),
            (false, false, "no method of authentication is configured"),
        ] {
            let told = NotAuthenticated::NoCredential(AcceptedMethods { certificates, tokens }).to_string();
            assert!(told.ends_with(said), "{told}");
        }
    }
}
