//! One dial of one address by one carrier: a socket of its own, the handshake, and the greeting.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proto::wire::Welcome;
use proto::wire::refused::Reason;
use transport::tls::TlsError;
use transport::{
    Carrier, DialError, DialPath, Dialed, Driver, Endpoint, HANDSHAKE_MAX, Proxy, ProxyError, Tunnel,
    dial_tcp,
};

use super::backoff::DialFailure;
use super::dependencies::{ConfiguredServer, SharedDialer};
use crate::metrics::{self, DialFailureReason};

/// Longest handshake over QUIC, except every third one. Initials are sent after 0 and 1 s. Without an answer,
/// the next attempt uses a new socket, which no NAT and no server remembers.
const QUIC_HANDSHAKE_MAX: Duration = Duration::from_secs(3);

/// One of so many handshakes has the time that a link with a delay of seconds needs.
const LONG_HANDSHAKE_EVERY: u32 = 3;

/// The route to one address of a server.
#[derive(Debug, Clone)]
pub(super) struct Route {
    pub(super) server: ConfiguredServer,
    /// One of its addresses. `None` where only a proxy can resolve the name.
    pub(super) address: Option<SocketAddr>,
    /// The proxy to go through, for TCP.
    pub(super) proxy: Option<Proxy>,
    /// The host in the request to the proxy: the server's name, or one of its several addresses.
    pub(super) target: String,
}

/// A tunnel after its greeting.
pub(super) struct Greeted {
    pub(super) tunnel: Tunnel,
    pub(super) driver: Driver,
    pub(super) welcome: Welcome,
    /// Its number among the tunnels that this process has dialed.
    pub(super) sequence: u64,
    /// Its UDP socket, if it has one.
    pub(super) endpoint: Option<Endpoint>,
}

/// A dial that led to no tunnel.
#[derive(Debug, thiserror::Error)]
pub(super) enum TunnelDialError {
    #[error("no UDP socket for the tunnel")]
    Socket(#[from] transport::EndpointError),
    #[error("the server has no address")]
    NoAddress,
    #[error("this agent's certificate cannot be used")]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Dial(#[from] DialError),
}

/// Dials by this carrier. A dial that is dropped leaves nothing behind.
pub(super) async fn dial(
    shared: Arc<SharedDialer>,
    route: Arc<Route>,
    carrier: Carrier,
    attempt: u32,
) -> Result<Greeted, TunnelDialError> {
    match carrier {
        Carrier::Quic => quic(&shared, &route, attempt).await,
        Carrier::Http2 => http2(&shared, &route).await,
    }
}

async fn quic(shared: &SharedDialer, route: &Route, attempt: u32) -> Result<Greeted, TunnelDialError> {
    let address = route.address.ok_or(TunnelDialError::NoAddress)?;
    // Each tunnel has a socket of its own, so that replacing one affects no other.
    let endpoint = Endpoint::dialing(address, &shared.dependencies.keys, Arc::new(shared.background()))?;
    let is_long = attempt % LONG_HANDSHAKE_EVERY == LONG_HANDSHAKE_EVERY - 1;
    let handshake_max = if is_long { HANDSHAKE_MAX } else { QUIC_HANDSHAKE_MAX };
    let name = &route.server.certificate_name;
    let hello = shared.hello();
    let sequence = hello.sequence;
    let tls = shared.trust.tls_for(route.server.id.as_deref())?;
    let dialed = endpoint.dial(address, name, &tls, hello, handshake_max).await?;
    let Dialed { tunnel, driver, welcome } = dialed;
    Ok(Greeted { tunnel, driver, welcome, sequence, endpoint: Some(endpoint) })
}

async fn http2(shared: &SharedDialer, route: &Route) -> Result<Greeted, TunnelDialError> {
    let way = match (&route.proxy, route.address) {
        (Some(proxy), _) => DialPath::Proxied {
            proxy: proxy.clone(),
            host: route.target.clone(),
            port: route.server.address.port,
        },
        (None, Some(address)) => DialPath::Direct(address),
        (None, None) => return Err(TunnelDialError::NoAddress),
    };
    let (name, spawn) = (&route.server.certificate_name, shared.background());
    let hello = shared.hello();
    let sequence = hello.sequence;
    let tls = shared.trust.tls_for(route.server.id.as_deref())?;
    let dialed = dial_tcp(&way, name, &tls, hello, HANDSHAKE_MAX, &spawn).await?;
    let Dialed { tunnel, driver, welcome } = dialed;
    Ok(Greeted { tunnel, driver, welcome, sequence, endpoint: None })
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.address, &self.proxy) {
            (Some(address), _) => write!(f, "{address}"),
            (None, Some(proxy)) => write!(f, "by the proxy {proxy}"),
            (None, None) => f.write_str("nowhere"),
        }
    }
}

impl TunnelDialError {
    /// The kind of failure, which decides when the next dial begins.
    pub(super) fn failure(&self) -> DialFailure {
        match self {
            Self::Socket(_) | Self::NoAddress => DialFailure::Unanswered,
            Self::Tls(_) => DialFailure::Refused,
            Self::Dial(error) => failure_of(error),
        }
    }

    /// Counts it in the metrics, by reason.
    pub(super) fn count(&self) {
        match self {
            Self::Socket(_) => metrics::dial_failed(DialFailureReason::Socket),
            Self::NoAddress => metrics::dial_failed(DialFailureReason::NoAddress),
            Self::Tls(_) => metrics::dial_failed(DialFailureReason::Handshake),
            Self::Dial(error) => metrics::dial_failed(error.into()),
        }
    }
}

fn failure_of(error: &DialError) -> DialFailure {
    match error {
        DialError::Name(_)
        | DialError::Rejected(_)
        | DialError::Untrusted(_)
        | DialError::TurnedAway(_)
        | DialError::NotAWelcome => DialFailure::Refused,
        DialError::Refused(refused) if refused.retry_after_ms > 0 => {
            DialFailure::RetryAfter(Duration::from_millis(refused.retry_after_ms.into()))
        }
        DialError::Refused(refused) => match refused.reason() {
            // From a server that does not send for how long.
            Reason::Draining | Reason::Limit => DialFailure::Overloaded,
            Reason::Unspecified | Reason::Version | Reason::Cluster | Reason::Greeting | Reason::Revoked => {
                DialFailure::Refused
            }
        },
        // A clock may be set at any moment.
        DialError::Clock(_) | DialError::ServerUnavailable | DialError::Handshake(_) | DialError::TooSlow => {
            DialFailure::Overloaded
        }
        DialError::Proxy(error) => proxy_failure(error),
        DialError::NoAnswer | DialError::Tcp(_) | DialError::Broke(_) | DialError::Local(_) => {
            DialFailure::Unanswered
        }
    }
}

fn proxy_failure(error: &ProxyError) -> DialFailure {
    match error {
        ProxyError::Credentials(_) | ProxyError::NotHttp(_) => DialFailure::Refused,
        // The proxy could not reach the server, which may be down.
        ProxyError::Refused { status: 500.., .. } => DialFailure::Unanswered,
        ProxyError::Refused { .. } => DialFailure::Refused,
        ProxyError::Unreachable(..) | ProxyError::Broke(..) => DialFailure::Unanswered,
    }
}

#[cfg(test)]
mod tests {
    use proto::greeting::refuse;

    use super::*;

    #[test]
    fn a_servers_refusal_decides_when_it_is_dialed_again() {
        let refused = |reason| failure_of(&DialError::Refused(refuse(reason, String::new())));
        assert!(matches!(refused(Reason::Draining), DialFailure::RetryAfter(_)));
        assert!(matches!(refused(Reason::Limit), DialFailure::RetryAfter(_)));
        assert_eq!(refused(Reason::Version), DialFailure::Refused);
        assert_eq!(failure_of(&DialError::Rejected("expired".to_owned())), DialFailure::Refused);
        assert_eq!(failure_of(&DialError::ServerUnavailable), DialFailure::Overloaded);
        assert_eq!(failure_of(&DialError::NoAnswer), DialFailure::Unanswered);
    }

    #[test]
    fn a_refusal_of_the_proxy_is_not_an_unanswered_dial() {
        let answered = |status| {
            let (proxy, target) = ("http://p:1".parse().unwrap(), "gateway.test:8443".to_owned());
            failure_of(&DialError::Proxy(ProxyError::Refused { proxy, target, status }))
        };
        assert_eq!((answered(403), answered(503)), (DialFailure::Refused, DialFailure::Unanswered));
    }
}
