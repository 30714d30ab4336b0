//! Hands listeners and connections from one process of node-lb to the next one, over a Unix socket.
//!
//! The successor asks. The predecessor stops all copying, and sends every socket with the bytes that it has read and
//! not yet written. Nothing is decided before the successor says that it has all of it, and the predecessor answers
//! that it lets go. Until then the predecessor can go on at any time, and afterwards only the successor serves.

mod facts;
mod predecessor;
mod successor;
mod wire;

pub use facts::{ConnectionFacts, Direction, ListenerFacts, ListenerKind, SteeringFacts};
pub use predecessor::{HandoverSocket, Successor};
pub use successor::{HandedConnection, Inventory, Offer, Predecessor, ask};
pub use wire::HandoverError;

/// The socket's file in the state directory.
pub const SOCKET_FILE: &str = "handover.sock";

#[cfg(test)]
mod tests;
