//! The reasons why TLS is not passed through, and the alerts that clients receive.

use http::StatusCode;

use super::client_hello::ClientHelloError;
use crate::dialing::ServeError;
use crate::dialing::admit::DialRefusal as _;

/// The reason why TLS is not passed through. The message is for the log.
#[derive(Debug, thiserror::Error)]
pub enum PassthroughRefusal {
    /// The client sent no complete ClientHello.
    #[error("{0}")]
    NotTls(#[from] ClientHelloError),
    /// The ClientHello did not arrive in time.
    #[error("its ClientHello did not come in time")]
    Silent,
    /// The ClientHello has no server name, as when a program connects to an IP address.
    #[error("it names no server")]
    NoName,
    /// The server name is not configured, and there is no default. The name is not logged, because an
    /// unauthenticated client chose it.
    #[error("it names a server that passthrough.servers does not have")]
    UnknownName,
    /// The target may not be dialed, or cannot be.
    #[error("{0}")]
    NotServed(#[from] ServeError),
}

/// An alert of TLS that ends the connection (RFC 8446, section 6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsAlert {
    /// The client is known and may not connect.
    AccessDenied = 49,
    /// The fault is not the client's.
    InternalError = 80,
    /// The server name is not known.
    UnrecognizedName = 112,
}

impl TlsAlert {
    /// The alert in a TLS record, as it is sent before keys are agreed on.
    #[must_use]
    pub fn record(self) -> [u8; 7] {
        const ALERT: u8 = 21;
        const FATAL: u8 = 2;
        [ALERT, 3, 3, 0, 2, FATAL, self as u8]
    }
}

impl PassthroughRefusal {
    /// The alert for the client. `None` if the client does not speak TLS, so that its connection is only
    /// closed.
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

/// Defines the causes that only this room has in one table, which also yields their list.
macro_rules! own_causes {
    ($($refusal:pat => $cause:literal;)+) => {
        impl PassthroughRefusal {
            /// Every cause that no other room has.
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
    fn alerts_distinguish_denied_clients_from_faults_on_our_side() {
        let by_agent = |reason| {
            let (cluster, target) = ("edge-a".parse().unwrap(), "10.0.0.1:443".parse().unwrap());
            ServeError::from(DialError::ByAgent(cluster, target, reason)).into()
        };
        for (refusal, alert) in [
            (PassthroughRefusal::Silent, None),
            (PassthroughRefusal::NoName, Some(112)),
            (PassthroughRefusal::UnknownName, Some(112)),
            (ServeError::from(LimitExceeded::PassthroughSource(1)).into(), Some(80)),
            (by_agent(Reason::Unlisted), Some(49)),
            (by_agent(Reason::Unreachable), Some(80)),
            (ServeError::from(DialError::Lost("edge-a".parse().unwrap())).into(), Some(80)),
        ] {
            let record = refusal.alert().map(TlsAlert::record);
            assert_eq!(record, alert.map(|alert| [21, 3, 3, 0, 2, 2, alert]), "{refusal}");
        }
    }
}
