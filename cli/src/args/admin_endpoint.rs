//! The flags that name a server's admin API.

use std::path::PathBuf;

use clap::Args;
use proto::admin::SOCKET_DEFAULT;

use crate::names::AdminUrl;

/// The flags of every command that asks a server's admin API.
#[derive(Args)]
pub(crate) struct AdminServerArgs {
    /// The server's admin socket, on its own machine
    #[arg(long, value_name = "PATH", env = "TOMBOLO_ADMIN_SOCKET", default_value = SOCKET_DEFAULT)]
    socket: PathBuf,
    /// The server's admin.tcp, for use from another machine: https://HOST:PORT; replaces --socket
    #[arg(
        long,
        value_name = "URL",
        env = "TOMBOLO_ADMIN_SERVER",
        requires_all = ["ca", "cert", "key"]
    )]
    server: Option<AdminUrl>,
    /// The CA that signed the server's certificate (server-ca.crt), for --server
    #[arg(long, value_name = "FILE", env = "TOMBOLO_ADMIN_CERTIFICATE_AUTHORITY")]
    ca: Option<PathBuf>,
    /// Your administrator's certificate, for --server
    #[arg(long, value_name = "FILE", env = "TOMBOLO_ADMIN_CLIENT_CERTIFICATE")]
    cert: Option<PathBuf>,
    /// The key of that certificate, for --server
    #[arg(long, value_name = "FILE", env = "TOMBOLO_ADMIN_CLIENT_KEY")]
    key: Option<PathBuf>,
}

/// The admin API of one server.
#[derive(Clone, Debug)]
pub(crate) enum AdminEndpoint {
    /// The Unix socket of a server on this machine.
    Socket(PathBuf),
    /// The TCP address of a server on any machine.
    Remote(Box<RemoteAdmin>),
}

/// The URL of an admin API, and the files that authenticate both sides.
#[derive(Clone, Debug)]
pub(crate) struct RemoteAdmin {
    pub(crate) url: AdminUrl,
    pub(crate) ca: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl AdminServerArgs {
    /// The endpoint that the flags name. --server wins, because --socket has a default.
    pub(crate) fn endpoint(&self) -> AdminEndpoint {
        match (&self.server, &self.ca, &self.cert, &self.key) {
            (Some(url), Some(ca), Some(certificate), Some(key)) => {
                AdminEndpoint::Remote(Box::new(RemoteAdmin {
                    url: url.clone(),
                    ca: ca.clone(),
                    certificate: certificate.clone(),
                    key: key.clone(),
                }))
            }
            // clap requires the other three flags with --server.
            _ => AdminEndpoint::Socket(self.socket.clone()),
        }
    }
}

impl std::fmt::Display for AdminEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(f),
            Self::Remote(remote) => remote.url.fmt(f),
        }
    }
}
