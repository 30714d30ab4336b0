//! Why somebody is not connected, before anything has passed.

use http::StatusCode;
use policy::Target;
use proto::ClusterId;

use crate::dialing::NotConnected;
use crate::dialing::asking::Refuses;
use crate::permit::Forbidden;
use crate::shares::Limit;

/// Why somebody is not connected; a sentence that says what to do, and names no cluster but those of their token.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
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
    NoTarget,
    /// Several clusters of the token have it.
    #[error("{target} is ambiguous among {among}: use a token for one of them", target = .0, among = listed(.1))]
    Ambiguous(Target, Vec<ClusterId>),
    /// None of several clusters of the token has it.
    #[error(
        "{0} is in none of this token's clusters where you may dial it: check the address, or use a token for its cluster"
    )]
    Nowhere(Target),
    /// Too much at once, or too fast.
    #[error("{0}")]
    Limited(#[from] Limit),
    /// It may not be, or cannot.
    #[error("{0}")]
    NotConnected(#[from] NotConnected),
}

impl Refusal {
    /// Every word that its causes have and no other refusal does.
    pub const CAUSES: [&str; 1] = ["TargetAmbiguous"];
}

impl Refuses for Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::NotAuthenticated => StatusCode::PROXY_AUTHENTICATION_REQUIRED,
            Self::OtherMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoTarget => StatusCode::BAD_REQUEST,
            Self::Ambiguous(..) | Self::Nowhere(_) => StatusCode::FORBIDDEN,
            Self::Limited(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::NotConnected(fault) => match fault.status() {
                // What ended for want of a credential is asked for by the proxy here, not by the target.
                StatusCode::UNAUTHORIZED => StatusCode::PROXY_AUTHENTICATION_REQUIRED,
                status => status,
            },
        }
    }

    fn cause(&self) -> &'static str {
        match self {
            Self::NotAuthenticated => "NotAuthenticated",
            Self::OtherMethod | Self::NoTarget => "NotARequest",
            Self::Ambiguous(..) => "TargetAmbiguous",
            Self::Nowhere(_) => "TargetRefused",
            Self::Limited(limit) => limit.cause(),
            Self::NotConnected(fault) => fault.cause(),
        }
    }

    fn forbidden(&self) -> Option<&Forbidden> {
        if let Self::NotConnected(fault) = self { fault.forbidden() } else { None }
    }
}

fn listed(clusters: &[ClusterId]) -> String {
    clusters.iter().map(ClusterId::as_str).collect::<Vec<_>>().join(", ")
}
