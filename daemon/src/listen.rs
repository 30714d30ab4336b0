//! Binds listeners, with errors that name the configuration key and the remedy.

use std::{io, net::SocketAddr};

use tokio::net::TcpListener;

use crate::exit_code::Failure;

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

/// Binds a TCP listener on `address`, which is configured under `key`.
///
/// # Errors
///
/// [`BindError`], which names the key and the remedy.
pub async fn tcp(key: &'static str, address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address).await.map_err(|source| BindError::new(key, address, source))
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
        let taken = tcp("listen", "127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = taken.local_addr().unwrap();

        let error = tcp("probesListen", address).await.unwrap_err();

        assert_eq!(
            error.to_string(),
            format!(
                "probesListen: {address} is already in use, stop the process that has it or set probesListen to another port"
            )
        );
    }
}
