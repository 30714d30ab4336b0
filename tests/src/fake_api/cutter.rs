//! Ending a TCP connection that something else owns, by FIN or by RST.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

use super::behaviour::Cut;

/// A second descriptor of a socket, kept only to say how its end looks.
#[derive(Debug)]
pub(super) struct Cutter(OwnedFd);

impl Cutter {
    pub(super) fn of(socket: &impl AsFd) -> io::Result<Self> {
        Ok(Self(socket.as_fd().try_clone_to_owned()?))
    }

    /// Arranges that the connection ends as told when the last descriptor is closed; for `Hold` that must not happen.
    pub(super) fn arm(self, cut: Cut) {
        if cut == Cut::Reset {
            // Fails only on a socket that is gone already.
            let _ = set_socket_linger(&self.0, Some(Duration::ZERO));
        }
    }
}
