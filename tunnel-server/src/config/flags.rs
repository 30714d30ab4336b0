//! The command-line flags of the program `tunnel-server`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use daemon::args::SharedFlags;

use super::help;

/// The server of a Tombolo tunnel: agents dial it, and callers reach the agents' clusters through it
#[derive(Debug, Clone, Default, Parser)]
#[command(name = "tunnel-server", version, after_long_help = help::AFTER)]
pub struct Flags {
    /// The flags of every daemon.
    #[command(flatten)]
    pub shared: SharedFlags,

    /// This server's name among its like, a DNS label, in place of serverId and of each $(serverId) in the file [default: the one in its certificate]
    #[arg(long, value_name = "NAME")]
    pub server_id: Option<String>,

    /// Address of the listener for callers (TCP)
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub gateway_listen: Option<SocketAddr>,

    /// Address of the listener for agents (UDP)
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub tunnel_listen: Option<SocketAddr>,

    /// Unix socket for those who run this server
    #[arg(long, value_name = "PATH")]
    pub admin_socket: Option<PathBuf>,

    /// Print what of this host the configuration would change (vip), and change nothing
    #[arg(long)]
    pub dry_run: bool,
}
