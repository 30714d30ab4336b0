//! One dial: a socket of its own, the handshake, the greeting, and what became of it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proto::wire::Welcome;
use proto::wire::refused::Reason;
use transport::{
    Carrier, DialError, Dialed, Driver, Endpoint, HANDSHAKE_MAX, Proxy, ProxyError, Tunnel, Way, dial_tcp,
};

use super::backoff::DialFailure;
use super::{BackgroundSpawner, Kit, ConfiguredServer};
use crate::metrics;

/// A handshake over QUIC takes no longer than this, but every third: Initials go out after 0 and 1 s, and whoever is not
/// answered begins anew with a socket that no NAT and no server remembers.
const QUIC_HANDSHAKE_MAX: Duration = Duration::from_secs(3);

/// One handshake of so many has the time that a link of seconds needs.
const PATIENT_EVERY: u32 = 3;

/// How to come to a server.
#[derive(Debug, Clone)]
pub(super) struct Route {
    pub(super) server: ConfiguredServer,
    /// One of its addresses; `None` where only a proxy may know one.
    pub(super) address: Option<SocketAddr>,
    /// The proxy on the way, for TCP.
    pub(super) proxy: Option<Proxy>,
    /// What the proxy is asked for: the server's name, or one of several addresses.
    pub(super) target: String,
}

/// A tunnel that was greeted.
pub(super) struct Greeted {
    pub(super) tunnel: Tunnel,
    pub(super) driver: Driver,
    pub(super) welcome: Welcome,
    /// Its socket, where it is one of UDP.
    pub(super) endpoint: Option<Endpoint>,
}

/// Why a dial came to no tunnel.
#[derive(Debug, thiserror::Error)]
pub(super) enum TunnelDialError {
    #[error("no UDP socket for the tunnel")]
    Socket(#[from] transport::EndpointError),
    #[error("the server has no address")]
    NoAddress,
    #[error(transparent)]
    Dial(#[from] DialError),
}

/// Dials by this carrier. Dropped, it leaves nothing behind.
pub(super) async fn dial(
    kit: Arc<Kit>,
    route: Arc<Route>,
    carrier: Carrier,
    attempt: u32,
) -> Result<Greeted, TunnelDialError> {
    match carrier {
        Carrier::Quic => quic(&kit, &route, attempt).await,
        Carrier::Http2 => http2(&kit, &route).await,
    }
}

async fn quic(kit: &Kit, route: &Route, attempt: u32) -> Result<Greeted, TunnelDialError> {
    let address = route.address.ok_or(TunnelDialError::NoAddress)?;
    // A socket of its own for each tunnel, so that a change of one concerns no other.
    let endpoint = Endpoint::dialing(address, &kit.keys, Arc::new(BackgroundSpawner(kit.scope.clone())))?;
    let patient = attempt % PATIENT_EVERY == PATIENT_EVERY - 1;
    let handshake_max = if patient { HANDSHAKE_MAX } else { QUIC_HANDSHAKE_MAX };
    let name = &route.server.certificate_name;
    let dialed = endpoint.dial(address, name, &kit.trusted.tls(), kit.hello(), handshake_max).await?;
    let Dialed { tunnel, driver, welcome } = dialed;
    Ok(Greeted { tunnel, driver, welcome, endpoint: Some(endpoint) })
}

async fn http2(kit: &Kit, route: &Route) -> Result<Greeted, TunnelDialError> {
    let way = match (&route.proxy, route.address) {
        (Some(proxy), _) => {
            Way::Through { proxy: proxy.clone(), host: route.target.clone(), port: route.server.address.port }
        }
        (None, Some(address)) => Way::Direct(address),
        (None, None) => return Err(TunnelDialError::NoAddress),
    };
    let (name, spawn) = (&route.server.certificate_name, BackgroundSpawner(kit.scope.clone()));
    let dialed = dial_tcp(&way, name, &kit.trusted.tls(), kit.hello(), HANDSHAKE_MAX, &spawn).await?;
    let Dialed { tunnel, driver, welcome } = dialed;
    Ok(Greeted { tunnel, driver, welcome, endpoint: None })
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
    /// What it means for the next dial.
    pub(super) fn setback(&self) -> DialFailure {
        match self {
            Self::Socket(_) | Self::NoAddress => DialFailure::Unanswered,
            Self::Dial(error) => setback(error),
        }
    }

    /// Counts it.
    pub(super) fn count(&self) {
        match self {
            Self::Socket(_) => metrics::dial_failed_early("socket"),
            Self::NoAddress => metrics::dial_failed_early("no_address"),
            Self::Dial(error) => metrics::dial_failed(error),
        }
    }
}

fn setback(error: &DialError) -> DialFailure {
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
            // From a server that does not say for how long.
            Reason::Draining | Reason::Limit => DialFailure::Overloaded,
            Reason::Unspecified | Reason::Version | Reason::Cluster | Reason::Greeting | Reason::Revoked => {
                DialFailure::Refused
            }
        },
        DialError::NotNow | DialError::Handshake(_) | DialError::TooSlow => DialFailure::Overloaded,
        DialError::Proxy(error) => proxy_setback(error),
        DialError::NoAnswer | DialError::Tcp(_) | DialError::Broke(_) | DialError::Local(_) => {
            DialFailure::Unanswered
        }
    }
}

fn proxy_setback(error: &ProxyError) -> DialFailure {
    match error {
        ProxyError::Credentials(_) | ProxyError::NotHttp(_) => DialFailure::Refused,
        // It could not reach the server, which may be away.
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
    fn what_a_server_says_decides_when_it_is_dialed_again() {
        let refused = |reason| setback(&DialError::Refused(refuse(reason, String::new())));
        assert!(matches!(refused(Reason::Draining), DialFailure::RetryAfter(_)));
        assert!(matches!(refused(Reason::Limit), DialFailure::RetryAfter(_)));
        assert_eq!(refused(Reason::Version), DialFailure::Refused);
        assert_eq!(setback(&DialError::Rejected("expired".to_owned())), DialFailure::Refused);
        assert_eq!(setback(&DialError::NotNow), DialFailure::Overloaded);
        assert_eq!(setback(&DialError::NoAnswer), DialFailure::Unanswered);
    }

    #[test]
    fn a_proxy_that_says_no_is_not_a_server_that_is_away() {
        let answered = |status| {
            let (proxy, target) = ("http://p:1".parse().unwrap(), "gateway.test:8443".to_owned());
            setback(&DialError::Proxy(ProxyError::Refused { proxy, target, status }))
        };
        assert_eq!((answered(403), answered(503)), (DialFailure::Refused, DialFailure::Unanswered));
    }
}
