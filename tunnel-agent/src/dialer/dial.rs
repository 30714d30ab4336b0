//! One dial: a socket of its own, the handshake, the greeting, and what became of it.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use proto::wire::Welcome;
use proto::wire::refused::Reason;
use transport::{DialError, Dialed, Driver, Endpoint, HANDSHAKE_MAX, Tunnel};

use super::patience::Setback;
use super::{Attendants, Kit, Named};
use crate::metrics;

/// A handshake over QUIC takes no longer than this, but every third: Initials go out after 0 and 1 s, and whoever is not
/// answered begins anew with a socket that no NAT and no server remembers.
const QUIC_HANDSHAKE_MAX: Duration = Duration::from_secs(3);

/// One handshake of so many has the time that a link of seconds needs.
const PATIENT_EVERY: u32 = 3;

/// An address of a server.
#[derive(Debug, Clone)]
pub(super) struct Way {
    pub(super) server: Named,
    pub(super) address: SocketAddr,
}

/// A tunnel that was greeted.
pub(super) struct Greeted {
    pub(super) tunnel: Tunnel,
    pub(super) driver: Driver,
    pub(super) welcome: Welcome,
    pub(super) endpoint: Endpoint,
}

/// Why a dial came to no tunnel.
#[derive(Debug, thiserror::Error)]
pub(super) enum Vain {
    #[error("no UDP socket for the tunnel")]
    Socket(#[from] transport::EndpointError),
    #[error(transparent)]
    Dial(#[from] DialError),
}

/// Dials. Dropped, it leaves nothing behind.
pub(super) async fn dial(kit: Arc<Kit>, way: Arc<Way>, attempt: u32) -> Result<Greeted, Vain> {
    // A socket of its own for each tunnel, so that a change of one concerns no other.
    let local: SocketAddr = match way.address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let endpoint = Endpoint::dialing(local, &kit.keys, Arc::new(Attendants(kit.scope.clone())))?;
    let patient = attempt % PATIENT_EVERY == PATIENT_EVERY - 1;
    let handshake_max = if patient { HANDSHAKE_MAX } else { QUIC_HANDSHAKE_MAX };
    let name = &way.server.certificate_name;
    let Dialed { tunnel, driver, welcome } =
        endpoint.dial(way.address, name, &kit.tls, kit.hello(), handshake_max).await?;
    Ok(Greeted { tunnel, driver, welcome, endpoint })
}

impl Vain {
    /// What it means for the next dial.
    pub(super) fn setback(&self) -> Setback {
        match self {
            Self::Socket(_) => Setback::Unanswered,
            Self::Dial(error) => setback(error),
        }
    }

    /// Counts it.
    pub(super) fn count(&self) {
        match self {
            Self::Socket(_) => metrics::dial_in_vain("socket"),
            Self::Dial(error) => metrics::dial_failed(error),
        }
    }
}

fn setback(error: &DialError) -> Setback {
    match error {
        DialError::Name(_)
        | DialError::Rejected(_)
        | DialError::Untrusted(_)
        | DialError::TurnedAway(_)
        | DialError::NotAWelcome => Setback::Refused,
        DialError::Refused(refused) if refused.retry_after_ms > 0 => {
            Setback::Told(Duration::from_millis(refused.retry_after_ms.into()))
        }
        DialError::Refused(refused) => match refused.reason() {
            // From a server that does not say for how long.
            Reason::Draining | Reason::Limit => Setback::Crowded,
            Reason::Unspecified | Reason::Version | Reason::Cluster | Reason::Greeting => Setback::Refused,
        },
        DialError::NotNow | DialError::Handshake(_) | DialError::TooSlow => Setback::Crowded,
        DialError::NoAnswer
        | DialError::Tcp(_)
        | DialError::Proxy(_)
        | DialError::Broke(_)
        | DialError::Local(_) => Setback::Unanswered,
    }
}

#[cfg(test)]
mod tests {
    use proto::greeting::refuse;

    use super::*;

    #[test]
    fn what_a_server_says_decides_when_it_is_dialed_again() {
        let refused = |reason| setback(&DialError::Refused(refuse(reason, String::new())));
        assert!(matches!(refused(Reason::Draining), Setback::Told(_)));
        assert!(matches!(refused(Reason::Limit), Setback::Told(_)));
        assert_eq!(refused(Reason::Version), Setback::Refused);
        assert_eq!(setback(&DialError::Rejected("expired".to_owned())), Setback::Refused);
        assert_eq!(setback(&DialError::NotNow), Setback::Crowded);
        assert_eq!(setback(&DialError::NoAnswer), Setback::Unanswered);
    }
}
