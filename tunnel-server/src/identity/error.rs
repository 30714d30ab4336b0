//! The errors of authentication, with texts that tell a client what to send.

use std::fmt;

use super::caller::Method;
use super::certificate::CertificateError;
use super::oidc::OidcTokenError;
use super::token_review::TokenReviewError;

/// The reason why a request is not authenticated. Each variant begins with its HTTP status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAuthenticated {
    /// 401. No credential was sent.
    #[error("no credential was sent: {0}")]
    NoCredential(AcceptedMethods),
    /// 400. Two credentials were sent.
    #[error(
        "two credentials were sent: send one, a client certificate or one bearer token in the Authorization header or in \
         the WebSocket subprotocol"
    )]
    TwoCredentials,
    /// 401. The cluster takes its callers' own tokens, so the caller needs a certificate.
    #[error(
        "this cluster takes its callers' own tokens: come to this gateway with a client certificate, and send the \
         cluster's token as Authorization"
    )]
    NoCertificate,
    /// 400. There are several Authorization headers.
    #[error("the request has more than one Authorization header")]
    TwoAuthorizations,
    /// 401. The scheme is Basic, Negotiate or another; or `Bearer` where tokens are not accepted.
    #[error("this kind of Authorization is not accepted here: {0}")]
    Scheme(AcceptedMethods),
    /// 401. The header does not contain one token.
    #[error("the Authorization header does not hold one bearer token")]
    NotAToken,
    /// 401. No method knows the token.
    #[error("the token is not known here")]
    UnknownToken,
    /// 401. The certificate is refused.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// 400 if there are two tokens, else 401.
    #[error(transparent)]
    Subprotocol(#[from] SubprotocolError),
    /// 401. A token of an issuer is refused.
    #[error(transparent)]
    Token(#[from] OidcTokenError),
    /// 401. The reviewer has refused the token.
    #[error(transparent)]
    Review(#[from] TokenReviewError),
    /// 503. It is neither an acceptance, nor a refusal that a program takes for the end of its token.
    #[error("it cannot be told whose this token is, because {0} does not answer: try again")]
    Unreachable(Method),
}

/// The error of a token in the WebSocket subprotocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubprotocolError {
    /// 400. There is more than one token.
    #[error("the request offers more than one bearer token as a WebSocket subprotocol")]
    Two,
    /// 401. The token is not base64url.
    #[error("the bearer token in the WebSocket subprotocol is not in base64url without padding")]
    Encoding,
    /// 401. The answer would have to select the token as its subprotocol, and so repeat it.
    #[error("the bearer token is the only WebSocket subprotocol: offer the one to speak, too")]
    Alone,
}

/// The accepted methods, as a text for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedMethods {
    /// True if client certificates are accepted.
    pub certificates: bool,
    /// True if bearer tokens are accepted.
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
    fn an_error_without_credentials_names_only_accepted_methods() {
        for (certificates, tokens, expected) in [
            (true, true, "a client certificate or a bearer token"),
            (true, false, "a client certificate"),
            (false, true, "a bearer token"),
            (false, false, "no method of authentication is configured"),
        ] {
            let text = NotAuthenticated::NoCredential(AcceptedMethods { certificates, tokens }).to_string();
            assert!(text.ends_with(expected), "{text}");
        }
    }
}
