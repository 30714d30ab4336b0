//! Why somebody is not connected, before anything has passed.

use http::StatusCode;

use crate::dialing::DialError;
use crate::dialing::admit::DialRefusal;
use crate::limits::LimitExceeded;

/// Why somebody is not connected; a sentence that says what to do, and names no cluster but those of their token.
#[derive(Debug, thiserror::Error)]
pub enum ProxyRefusal {
    /// One answer, whatever is wrong with user or token.
    #[error(
        "send the name of a dial token's owner and the token: tombolo user dial-token create makes one, where the server runs"
    )]
    NotAuthenticated,
    /// Anything but CONNECT.
    #[error("this proxy serves CONNECT alone")]
    OtherMethod,
    /// Not to be told without guessing.
    #[error("name HOST:PORT, with a DNS name, an IPv4 address or [an IPv6 address]")]
    InvalidTarget,
    /// Too much at once, or too fast.
    #[error("{0}")]
    Limited(#[from] LimitExceeded),
    /// It may not be, or cannot.
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
                // What ended for want of a credential is asked for by the proxy here, not by the target.
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
