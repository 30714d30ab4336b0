//! The shortest round trip of a TCP connection, as the kernel has measured it (`TCP_INFO`).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use libc::socklen_t;

/// The kernel's values for a connection without a measurement, and for a socket that listens.
const NONE: [u32; 2] = [u32::MAX, 0];

/// The shortest round trip of a connection within the kernel's window of some minutes. No process of either side
/// has a part in it. `None` before the first measurement.
///
/// # Errors
/// `socket` is no TCP socket.
pub fn tcp_min_rtt(socket: impl AsFd) -> io::Result<Option<Duration>> {
    let mut info: MaybeUninit<libc::tcp_info> = MaybeUninit::zeroed();
    let mut length = size_of_val(&info) as socklen_t;
    #[expect(unsafe_code, reason = "no safe crate reads this option")]
    // SAFETY: the descriptor is borrowed and so open, and the kernel writes at most `length` bytes, which `info` has.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    #[expect(unsafe_code, reason = "the value was made by the kernel")]
    // SAFETY: all fields are integers, for which zeros are valid where an older kernel has written less.
    let info = unsafe { info.assume_init() };
    Ok(Some(info.tcpi_min_rtt)
        .filter(|micros| !NONE.contains(micros))
        .map(|micros| Duration::from_micros(micros.into())))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn a_connection_has_a_round_trip_and_another_socket_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let stream = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");

        assert!(tcp_min_rtt(&stream).expect("a TCP socket").is_some());
        assert_eq!(tcp_min_rtt(&listener).expect("a TCP socket"), None);
        tcp_min_rtt(UdpSocket::bind("127.0.0.1:0").expect("a socket")).expect_err("no TCP socket");
    }
}
