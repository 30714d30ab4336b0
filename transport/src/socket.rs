//! Binds the UDP socket of an endpoint, with large buffers.

mod swappable;

use std::io;
use std::net::{SocketAddr, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};
use tracing::{debug, warn};

pub(crate) use swappable::SwappableSocket;

/// Buffer size that is requested for each direction. With the kernel's usual 208 KiB a burst of one batch is
/// lost on loopback.
const BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// With smaller buffers than this, bulk transfers are slow, and a warning is logged.
const BUFFER_BYTES_WARN: usize = 1024 * 1024;

/// The buffer sizes that the kernel granted to a socket, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffers {
    /// Buffer for datagrams that have arrived and were not read yet.
    pub receive: usize,
    /// Buffer for datagrams that wait to be sent.
    pub send: usize,
}

/// Binds a socket with large buffers, and logs the sizes that the kernel granted.
pub(crate) fn bind(address: SocketAddr) -> io::Result<(UdpSocket, Buffers)> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        // `[::]` serves IPv4 as well.
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    // Asking for more than `net.core.rmem_max` allows is no error; the kernel gives what it may.
    socket.set_recv_buffer_size(BUFFER_BYTES)?;
    socket.set_send_buffer_size(BUFFER_BYTES)?;
    socket.bind(&address.into())?;
    let (receive, send) = (socket.recv_buffer_size()?, socket.send_buffer_size()?);
    if receive.min(send) < BUFFER_BYTES_WARN {
        warn!(
            receive,
            send,
            asked = BUFFER_BYTES,
            "small UDP buffers slow bulk transfers: raise net.core.rmem_max and net.core.wmem_max"
        );
    } else {
        debug!(receive, send, "UDP buffers");
    }
    Ok((socket.into(), Buffers { receive, send }))
}
