//! The addresses that a host can take on an interface of its own.

use std::net::{IpAddr, SocketAddr};

use daemon::config::{KeyError, socket_address};

/// Parses an address that this host can take for its own, and a port.
pub(super) fn listen(key: &str, raw: &str) -> Result<SocketAddr, KeyError> {
    let listen = socket_address(key, raw)?;
    let address = listen.ip();
    if is_special(address) || address.to_canonical() != address {
        let allowed = "an address of a cluster, or a private one that nothing else has: none of loopback, link-local (as that of a \
                       cloud's metadata is), multicast, or IPv4 in IPv6";
        return Err(KeyError::new(key, raw, allowed));
    }
    if listen.port() == 0 {
        return Err(KeyError::new(key, raw, "a port of 1 to 65535"));
    }
    Ok(listen)
}

/// Returns true if an address has a meaning of its own on every host, or none: unspecified, loopback,
/// multicast, link-local.
pub(super) fn is_special(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    address.is_unspecified() || address.is_loopback() || address.is_multicast() || is_link_local
}
