//! Socket options by which the kernel finds out that an API server's machine is gone.
//!
//! Probes find out earlier. These options end what is left when no probe can: connections that were kept
//! because every API server is down.

use std::io;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// The silence of a connection before its first keep-alive probe.
const IDLE: Duration = Duration::from_secs(5);

/// The interval of keep-alive probes that are not answered.
const PROBE_EVERY: Duration = Duration::from_secs(5);

/// After this number of unanswered keep-alive probes the connection ends.
const PROBES_MAX: u32 = 5;

/// Bytes that are not acknowledged for this time end the connection.
const USER_TIMEOUT: Duration = Duration::from_secs(30);

// Both agree, because the kernel takes the user timeout for the end of keep-alive probes, too.
const _: () = assert!(IDLE.as_secs() + PROBE_EVERY.as_secs() * PROBES_MAX as u64 == USER_TIMEOUT.as_secs());

/// Makes the kernel end a connection whose other end has vanished.
pub(super) fn watch(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, IDLE)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, PROBES_MAX)?;
    sockopt::set_tcp_user_timeout(stream, u32::try_from(USER_TIMEOUT.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}
