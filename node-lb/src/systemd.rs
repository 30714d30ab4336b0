//! Tells systemd that this process serves, and that it is the main process of its unit: sd_notify(3).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use tracing::warn;

/// The variable with the address of systemd's socket. Without it nobody wants to know.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// Tells systemd that this process is the main one and ready. A failure is logged.
pub(crate) fn notify_ready() {
    let Some(socket) = std::env::var_os(VARIABLE) else { return };
    if let Err(error) = notify(&socket) {
        warn!(%error, socket = %socket.display(), "systemd was not told that this process is ready");
    }
}

fn notify(socket: &OsStr) -> io::Result<()> {
    // A name that begins with @ has no file (unix(7)).
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let message = format!("MAINPID={}\nREADY=1\n", std::process::id());
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_learns_of_the_process_by_a_path_or_an_abstract_name() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("notify");
        let name = format!("tombolo-test-{}", std::process::id());
        let by_name = SocketAddr::from_abstract_name(&name).unwrap();
        let sockets = [
            (path.as_os_str().to_owned(), UnixDatagram::bind(&path).unwrap()),
            (format!("@{name}").into(), UnixDatagram::bind_addr(&by_name).unwrap()),
        ];

        for (address, socket) in sockets {
            notify(&address).unwrap();

            let mut message = [0; 100];
            let read = socket.recv(&mut message).unwrap();
            let expected = format!("MAINPID={}\nREADY=1\n", std::process::id());
            assert_eq!(String::from_utf8_lossy(&message[..read]), expected);
        }
        assert!(notify(scratch.path().join("nobody").as_os_str()).is_err());
    }
}
