//! The facts about each socket that is handed over, as JSON.

use std::net::{SocketAddr, SocketAddrV4};

use serde::{Deserialize, Serialize};

/// The callers of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ListenerKind {
    /// Programs of the worker itself.
    Worker,
    /// Pods, at the address for pods.
    Pods,
    /// Those that ask for `/livez`, `/readyz` and `/metrics`.
    Probes,
}

/// A socket that listens for callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListenerFacts {
    /// The callers of the listener.
    pub kind: ListenerKind,
    /// The address that is bound.
    pub address: SocketAddr,
}

/// A connection of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConnectionFacts {
    /// The listener that accepted the connection.
    pub listener: ListenerFacts,
    /// The address of the caller.
    pub peer: SocketAddr,
    /// The API server, whose socket comes with this. `None` if none was dialed yet.
    pub api_server: Option<SocketAddr>,
    /// The way from the caller to the API server.
    pub to: Direction,
    /// The way from the API server to the caller.
    pub from: Direction,
}

/// One direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Direction {
    /// The number of bytes that were read and not yet written. They come with this.
    pub unwritten: usize,
    /// The end of file was read and passed on.
    pub is_done: bool,
}

/// A table of nftables, which belongs to the netlink socket that comes with this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SteeringFacts {
    /// The address of the Service, whose packets are led.
    pub service: SocketAddrV4,
    /// The address to which they are led.
    pub to: SocketAddrV4,
}
