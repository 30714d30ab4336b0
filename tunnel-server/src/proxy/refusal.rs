//! The reasons why the proxy does not connect a caller.

use http::StatusCode;

use crate::dialing::DialError;
use crate::dialing::admit::DialRefusal;
use crate::limits::LimitExceeded;

/// The reason why a caller is not connected. The message says what to do, and names only clusters of the
/// caller's token.
#[derive(Debug, thiserror::Error)]
pub enum ProxyRefusal {
    /// The user or the token is wrong. The message is the same for both.
    #[error(
        "send the name of a dial token's owner and the token: tombolo user dial-token create makes one, where the server runs"
    )]
    NotAuthenticated,
    /// The request's method is not CONNECT.
    #[error("this proxy serves only CONNECT")]
    OtherMethod,
    /// The target is not a valid `HOST:PORT`.
    #[error("name HOST:PORT, with a DNS name, an IPv4 address or [an IPv6 address]")]
    InvalidTarget,
    /// A limit of the caller or of the cluster is reached.
    #[error("{0}")]
    Limited(#[from] LimitExceeded),
    /// The target may not be dialed, or cannot be.
    #[error("{0}")]
    NotConnected(#[from] DialError),
}

impl DialRefusal for ProxyRefusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::NotAuthenticated => StatusCode::PROXY_AUTHENTICATION_REQUIRED,
            Self::OtherMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::InvalidTarget => StatusCode::BAD_REQUEST,
            Self::Limited(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::NotConnected(error) => match error.status() {
                // Here the proxy asks for the credential, not the target.
                StatusCode::UNAUTHORIZED => StatusCode::PROXY_AUTHENTICATION_REQUIRED,
                status => status,
            },
        }
    }

    fn cause(&self) -> &'static str {
        match self {
            Self::NotAuthenticated => "NotAuthenticated",
            Self::OtherMethod | Self::InvalidTarget => "NotARequest",
            Self::Limited(limit) => limit.cause(),
            Self::NotConnected(error) => error.cause(),
        }
    }

    fn dial_error(&self) -> Option<&DialError> {
        if let Self::NotConnected(error) = self { Some(error) } else { None }
    }
}
