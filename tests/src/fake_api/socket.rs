//! A handle of the TCP connection below a TLS stream: it sets how the connection ends, and notices that the
//! peer ended it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::behaviour::Cut;

/// A second descriptor of a socket, to set the form of its end, and to notice the peer's.
#[derive(Debug)]
pub(super) struct SocketHandle(OwnedFd);

impl SocketHandle {
    pub(super) fn of(socket: &impl AsFd) -> io::Result<Self> {
        Ok(Self(socket.as_fd().try_clone_to_owned()?))
    }

    /// Arranges that the connection ends in this form when the last descriptor is closed; for `Hold` that
    /// must not happen.
    pub(super) fn arm(self, cut: Cut) {
        if cut == Cut::Reset {
            // Fails only on a socket that is gone already.
            let _ = set_socket_linger(&self.0, Some(Duration::ZERO));
        }
    }

    /// Waits until the peer's FIN or RST has arrived, also after unread bytes, and returns a description.
    pub(super) async fn gone(&self) -> String {
        let seen = async {
            let socket = TcpStream::from_std(self.0.try_clone()?.into())?;
            // Of what is asked for here, nothing but the end of reading ever happens: no urgent bytes are
            // sent.
            socket.ready(Interest::PRIORITY).await
        };
        seen.await.map_or_else(
            |error: io::Error| error.to_string(),
            |ready| format!("the peer has gone: {ready:?}"),
        )
    }
}
