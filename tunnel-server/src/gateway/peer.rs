//! The other end of a caller's connection.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::connection_end::ConnectionEnd;
use super::entry_point::EntryPoint;
use super::low_priority::LowPrioritySwitch;
use crate::forwarding::park_timeout::ConnectionWaits;
use crate::identity::Certified;

/// The address of a peer without one.
const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The other end of a connection, with the state that its requests share.
pub struct Peer {
    pub(super) address: SocketAddr,
    /// True if `address` means nothing, because the connection came by a Unix socket.
    is_local: bool,
    /// The host name that the peer asked TLS for.
    pub(super) server_name: Option<String>,
    pub(super) certified: Option<Certified>,
    /// The waits of its requests for disconnected clusters.
    pub(super) waits: ConnectionWaits,
    /// The entry point, if the connection did not come by the callers' listener.
    pub(super) entry_point: Option<EntryPoint>,
    /// Moves the connection to the low-priority runtime once its source's logins fail too often.
    pub(super) low_priority: LowPrioritySwitch,
    /// Ends the connection when its caller may have none.
    pub(super) end: ConnectionEnd,
}

impl Peer {
    /// A caller on the callers' listener, with the host name that it asked TLS for and its certificate, if it
    /// showed one.
    pub(super) fn caller(
        address: SocketAddr,
        server_name: Option<String>,
        certified: Option<Certified>,
    ) -> Self {
        Self {
            address,
            is_local: false,
            server_name,
            certified,
            waits: ConnectionWaits::default(),
            entry_point: None,
            low_priority: LowPrioritySwitch::default(),
            end: ConnectionEnd::default(),
        }
    }

    /// The same peer, whose connection ends so.
    pub(super) fn ending(self, end: ConnectionEnd) -> Self {
        Self { end, ..self }
    }

    /// The peer of a connection by `entry_point`. `address` is `None` at a Unix socket.
    pub(super) fn of_entry_point(entry_point: EntryPoint, address: Option<SocketAddr>) -> Self {
        let caller = Self::caller(address.unwrap_or(NO_ADDRESS), None, None);
        Self { is_local: address.is_none(), entry_point: Some(entry_point), ..caller }
    }

    /// The listener's name in the audit log.
    pub(super) fn listener(&self) -> &'static str {
        if self.entry_point.is_some() { "egress" } else { "gateway" }
    }

    /// The peer's address, if it has one.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        (!self.is_local).then_some(self.address)
    }

    /// The peer's address as text, or `unix`.
    pub(super) fn source(&self) -> String {
        self.address().map_or_else(|| "unix".to_owned(), |address| address.to_string())
    }
}
