//! The intervals at which a session sends heartbeats.

use std::time::Duration;

/// Interval of heartbeats while the tunnel carries streams, or while the other side is silent.
pub const HEARTBEAT_ACTIVE: Duration = Duration::from_secs(1);

/// Interval of heartbeats while the tunnel is idle: about 0.23 kbit/s each way.
pub const HEARTBEAT_IDLE: Duration = Duration::from_secs(3);

/// The slowest heartbeat that a peer may promise: below the 30 s after which common NATs forget a UDP
/// mapping.
pub const HEARTBEAT_SLOWEST: Duration = Duration::from_secs(25);

const _: () = assert!(HEARTBEAT_ACTIVE.as_millis() < HEARTBEAT_IDLE.as_millis());
const _: () = assert!(HEARTBEAT_IDLE.as_millis() < HEARTBEAT_SLOWEST.as_millis());
