//! Why TLS does not pass through, and what its sender is told of it.

use http::StatusCode;

use super::client_hello::ClientHelloError;
use crate::dialing::EntryPointError;
use crate::dialing::admit::DialRefusal as _;

/// Why TLS does not pass through; a sentence for the log.
#[derive(Debug, thiserror::Error)]
pub enum PassthroughRefusal {
    /// No ClientHello, or not a whole one.
    #[error("{0}")]
    NotTls(#[from] ClientHelloError),
    /// Not in time.
    #[error("its ClientHello did not come in time")]
    Silent,
    /// Programs ask by an IP address without one.
    #[error("it names no server")]
    NoName,
    /// There is no default. The name is a stranger's, and stands in no log.
    #[error("it names a server that passthrough.servers does not have")]
    UnknownName,
    /// It may not be, or cannot.
    #[error("{0}")]
    NotServed(#[from] EntryPointError),
}

/// An alert of TLS that ends the connection (RFC 8446, section 6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsAlert {
    /// Who is known may not.
    AccessDenied = 49,
    /// It is not the sender's error.
    InternalError = 80,
    /// No server of that name.
    UnrecognizedName = 112,
}

impl TlsAlert {
    /// The alert in a record, as it is sent before anything is agreed on.
    #[must_use]
    pub fn record(self) -> [u8; 7] {
        const ALERT: u8 = 21;
        const FATAL: u8 = 2;
        [ALERT, 3, 3, 0, 2, FATAL, self as u8]
    }
}

impl PassthroughRefusal {
    /// What its sender is told, in words that its TLS library knows. Nothing, where no TLS is spoken: it is closed.
    #[must_use]
    pub fn alert(&self) -> Option<TlsAlert> {
        match self {
            Self::NotTls(_) | Self::Silent => None,
            Self::NoName | Self::UnknownName => Some(TlsAlert::UnrecognizedName),
            Self::NotServed(error) => match error.status() {
                StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Some(TlsAlert::AccessDenied),
                _ => Some(TlsAlert::InternalError),
            },
        }
    }
}

/// Defines the causes of refusals that only this room has in one table, from which their list comes too.
macro_rules! own_causes {
    ($($refusal:pat => $cause:literal;)+) => {
        impl PassthroughRefusal {
            /// Every cause that no other refusal has.
            pub const CAUSES: &'static [&'static str] = &[$($cause),+];

            /// The cause of the refusal, for programs.
            #[must_use]
            pub fn cause(&self) -> &'static str {
                match self {
                    $($refusal => $cause,)+
                    Self::NotServed(error) => error.cause(),
                }
            }
        }
    };
}

own_causes! {
    Self::NotTls(_) | Self::Silent => "NotTls";
    Self::NoName | Self::UnknownName => "ServerNameUnknown";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialing::DialError;
    use crate::limits::LimitExceeded;
    use proto::wire::not_connected::Reason;

    #[test]
    fn who_may_not_is_told_so_and_who_cannot_that_it_is_not_its_fault() {
        let by_agent = |reason| {
            let (cluster, target) = ("edge-a".parse().unwrap(), "10.0.0.1:443".parse().unwrap());
            EntryPointError::from(DialError::ByAgent(cluster, target, reason)).into()
        };
        for (refusal, alert) in [
            (PassthroughRefusal::Silent, None),
            (PassthroughRefusal::NoName, Some(112)),
            (PassthroughRefusal::UnknownName, Some(112)),
            (EntryPointError::from(LimitExceeded::PassthroughSource(1)).into(), Some(80)),
            (by_agent(Reason::Unlisted), Some(49)),
            (by_agent(Reason::Unreachable), Some(80)),
            (EntryPointError::from(DialError::Lost("edge-a".parse().unwrap())).into(), Some(80)),
        ] {
            let record = refusal.alert().map(TlsAlert::record);
            assert_eq!(record, alert.map(|alert| [21, 3, 3, 0, 2, 2, alert]), "{refusal}");
        }
    }
}
