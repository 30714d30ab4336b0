//! Socket options by which the kernel finds out that the other end has vanished.
//!
//! A connection without traffic is probed. Unacknowledged bytes are sent again at short intervals, so that the
//! kernel gives up after 15 attempts in some two minutes instead of a quarter of an hour. `TCP_USER_TIMEOUT` is
//! left alone, because it would also end connections whose clients are there and do not read.

use std::io;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// The silence of a connection before its first probe.
pub(super) const IDLE: Duration = Duration::from_secs(30);

/// The interval of unanswered probes.
pub(super) const PROBE_EVERY: Duration = Duration::from_secs(10);

/// After this number of unanswered probes the connection is closed.
pub(super) const PROBES_MAX: u32 = 6;

/// The longest interval of retransmissions, where the kernel can limit it (Linux 6.15).
pub(super) const RETRANSMIT_EVERY_MAX: Duration = Duration::from_secs(10);

/// Makes the kernel end the connection of a client that has vanished.
pub(super) fn watch(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, IDLE)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, PROBES_MAX)?;
    // An older kernel does without it.
    #[cfg(target_os = "linux")]
    let _ = sys::set_tcp_rto_max(stream, RETRANSMIT_EVERY_MAX);
    Ok(())
}
