//! TCP listeners: their limits, and errors that name the configuration key and the remedy.

use std::time::Duration;
use std::{io, net::SocketAddr};

use crate::exit_code::Failure;

mod counters;
mod guard;
mod keep_alive;
mod source_limits;

pub use counters::{CounterValues, Counters, ListenerEvent};
pub use guard::{
    CertificateLimited, ConnectionPermit, Expulsion, GuardedConnection, GuardedListener, HandshakeSlot,
};
pub use source_limits::{PROVING_MAX, PROVING_TIME_MAX, PerSourceLimits, source_of};

/// The limits of a listener on connections and handshakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerLimits {
    /// Most connections at once, including those in a handshake.
    pub connections_max: usize,
    /// Most handshakes in progress at once.
    pub handshakes_max: usize,
    /// The longest time from the accept to the end of the handshake.
    pub handshake: Duration,
    /// The limits of one source whose clients have not proved who they are.
    pub source: PerSourceLimits,
    /// The proof that a client beyond its source's limits owes. Only a listener with TLS reads this.
    pub proof: LaneProof,
    /// Connections beside the others, for clients that prove who they are, when all others are taken.
    pub reserved: usize,
    /// Most connections with one certificate.
    pub of_certificate: usize,
}

/// The proof of a client beyond its source's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneProof {
    /// A client certificate, in the handshake.
    Certificate,
    /// A certificate, or another credential soon after the handshake.
    Credential,
}

impl ListenerLimits {
    /// The limits of a listener that sets none of its own. Of its 2,000 handshakes one source can take 100,
    /// and 640 more that a proof must soon follow.
    pub const DEFAULT: Self = Self {
        connections_max: 4_000,
        handshakes_max: 2_000,
        handshake: Duration::from_secs(10),
        source: PerSourceLimits::DEFAULT,
        proof: LaneProof::Certificate,
        reserved: 0,
        of_certificate: usize::MAX,
    };
}

/// The reason why an address could not be listened on. `key` is the configuration key of the address.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another socket uses the address.
    #[error("{key}: {address} is already in use, stop the process that has it or set {key} to another port")]
    InUse {
        /// The configuration key of the address.
        key: &'static str,
        /// The configured address and port.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Ports below 1024 need a capability.
    #[error("{key}: {address} needs CAP_NET_BIND_SERVICE, grant it or set {key} to a port of 1024 or above")]
    Forbidden {
        /// The configuration key of the address.
        key: &'static str,
        /// The configured address and port.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// No interface of this machine has the address.
    #[error("{key}: no interface here has the address {}, set {key} to one that `ip addr` shows", address.ip())]
    NotHere {
        /// The configuration key of the address.
        key: &'static str,
        /// The configured address and port.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The operating system refused for another reason.
    #[error("{key}: cannot listen on {address}")]
    Refused {
        /// The configuration key of the address.
        key: &'static str,
        /// The configured address and port.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl BindError {
    /// Maps the system's error `source` for the address under `key`; also for UDP sockets.
    #[expect(clippy::wildcard_enum_match_arm, reason = "io::ErrorKind is foreign and non-exhaustive")]
    pub fn new(key: &'static str, address: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse { key, address, source },
            io::ErrorKind::PermissionDenied => Self::Forbidden { key, address, source },
            io::ErrorKind::AddrNotAvailable => Self::NotHere { key, address, source },
            _ => Self::Refused { key, address, source },
        }
    }
}

impl From<BindError> for Failure {
    fn from(error: BindError) -> Self {
        Self::could_not_go_on(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_named_with_its_key_and_a_way_out() {
        let any = "127.0.0.1:0".parse().unwrap();
        let taken = GuardedListener::bind("listen", any, ListenerLimits::DEFAULT).unwrap();
        let address = taken.address();

        let error = GuardedListener::bind("probesListen", address, ListenerLimits::DEFAULT).unwrap_err();

        assert_eq!(
            error.to_string(),
            format!(
                "probesListen: {address} is already in use, stop the process that has it or set probesListen to another port"
            )
        );
    }
}
