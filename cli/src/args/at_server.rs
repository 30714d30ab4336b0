//! Where a server's admin API is asked.

use std::path::PathBuf;

use clap::Args;
use proto::admin::SOCKET_DEFAULT;

use crate::names::ServerUrl;

/// Where the server is asked.
#[derive(Args)]
pub(crate) struct AtServer {
    /// The server's admin socket, on its own machine
    #[arg(long, value_name = "PATH", env = "TOMBOLO_ADMIN_SOCKET", default_value = SOCKET_DEFAULT)]
    socket: PathBuf,
    /// From another machine, in place of the socket: https://HOST:PORT of the server's admin.tcp
    #[arg(
        long,
        value_name = "URL",
        env = "TOMBOLO_ADMIN_SERVER",
        requires_all = ["ca", "cert", "key"]
    )]
    server: Option<ServerUrl>,
    /// The root that the server's certificate chains to, for --server
    #[arg(long, value_name = "FILE", env = "TOMBOLO_ADMIN_CERTIFICATE_AUTHORITY")]
    ca: Option<PathBuf>,
    /// Your administrator's certificate, for --server
    #[arg(long, value_name = "FILE", env = "TOMBOLO_ADMIN_CLIENT_CERTIFICATE")]
    cert: Option<PathBuf>,
    /// Its key, for --server
    #[arg(long, value_name = "FILE", env = "TOMBOLO_ADMIN_CLIENT_KEY")]
    key: Option<PathBuf>,
}

/// An admin API.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// Of a server on this machine.
    Socket(PathBuf),
    /// Of a server elsewhere.
    Server(Box<Remote>),
}

/// An admin API elsewhere, and what it takes to be let in.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    pub(crate) url: ServerUrl,
    pub(crate) ca: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl AtServer {
    /// Which one is meant. The other machine's wins, because the socket is always named.
    pub(crate) fn place(&self) -> Place {
        match (&self.server, &self.ca, &self.cert, &self.key) {
            (Some(url), Some(ca), Some(certificate), Some(key)) => Place::Server(Box::new(Remote {
                url: url.clone(),
                ca: ca.clone(),
                certificate: certificate.clone(),
                key: key.clone(),
            })),
            // clap asks for all of the others beside the first.
            _ => Place::Socket(self.socket.clone()),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(f),
            Self::Server(remote) => remote.url.fmt(f),
        }
    }
}
