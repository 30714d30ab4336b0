//! The longest time that TCP waits before it retransmits (`TCP_RTO_MAX_MS`).

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use libc::{c_int, c_uint, socklen_t};

/// `TCP_RTO_MAX_MS` of `linux/tcp.h`, since Linux 6.15. `libc` does not have it yet.
const TCP_RTO_MAX_MS: c_int = 44;

/// Bounds the retransmission timeout of `socket`, which otherwise doubles up to 120 s, and the interval of
/// its zero-window probes. From 1 s to 120 s, in whole milliseconds.
///
/// # Errors
/// `InvalidInput` beyond those; `ENOPROTOOPT` of a kernel before 6.15.
pub fn set_tcp_rto_max(socket: impl AsFd, most: Duration) -> io::Result<()> {
    let millis = c_uint::try_from(most.as_millis()).map_err(|_| io::ErrorKind::InvalidInput)?;
    #[expect(unsafe_code, reason = "no safe crate sets this option")]
    // SAFETY: the descriptor is borrowed and so open, and the kernel reads the four bytes of `millis` before it returns.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_RTO_MAX_MS,
            (&raw const millis).cast(),
            size_of_val(&millis) as socklen_t,
        )
    };
    succeeded(outcome)
}

/// The limit that [`set_tcp_rto_max`] has set, or the system's default.
///
/// # Errors
/// `ENOPROTOOPT` of a kernel before 6.15.
pub fn tcp_rto_max(socket: impl AsFd) -> io::Result<Duration> {
    let mut millis: c_uint = 0;
    let mut length = size_of_val(&millis) as socklen_t;
    #[expect(unsafe_code, reason = "no safe crate reads this option")]
    // SAFETY: the descriptor is borrowed and so open, and the kernel writes at most `length` bytes, which `millis` has.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_RTO_MAX_MS,
            (&raw mut millis).cast(),
            &raw mut length,
        )
    };
    succeeded(outcome)?;
    Ok(Duration::from_millis(millis.into()))
}

fn succeeded(outcome: c_int) -> io::Result<()> {
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_limit_that_is_set_is_read_back_and_an_invalid_one_is_an_error() {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let Ok(before) = tcp_rto_max(&socket) else {
            // Before Linux 6.15.
            let error = set_tcp_rto_max(&socket, Duration::from_secs(1)).expect_err("it cannot be set");
            assert_eq!(error.raw_os_error(), Some(libc::ENOPROTOOPT));
            return;
        };
        assert_ne!(before, Duration::from_secs(2));

        set_tcp_rto_max(&socket, Duration::from_secs(2)).expect("it can be set");
        assert_eq!(tcp_rto_max(&socket).expect("it can be read"), Duration::from_secs(2));

        for wrong in [Duration::from_millis(999), Duration::from_secs(121), Duration::MAX] {
            let error = set_tcp_rto_max(&socket, wrong).expect_err("out of bounds");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{wrong:?}");
        }
    }
}
