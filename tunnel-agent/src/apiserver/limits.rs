//! Limits of the API server's client: connections, waiting requests, and timeouts.

use std::time::Duration;

use proto::deadlines::API_SERVER_HEAD_MAX;

/// Most connections at a time, those for upgrades included.
pub const CONNECTIONS_MAX: usize = 1024;

/// Most requests that wait for a connection.
pub const WAITING_MAX: usize = 4096;

/// Timeouts of the API server's client.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Longest time for TCP and TLS together.
    pub connect: Duration,
    /// Longest time from the last byte of the request's body that was taken to the answer's head.
    pub head: Duration,
    /// Time after which an unused connection is closed.
    pub idle: Duration,
    /// Time after which the credential's files are read again.
    pub recheck: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            head: API_SERVER_HEAD_MAX,
            idle: Duration::from_secs(60),
            recheck: Duration::from_secs(5),
        }
    }
}
