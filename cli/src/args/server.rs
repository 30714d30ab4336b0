//! The arguments of `tombolo server`: the list of servers, exports and imports of their records.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use proto::spiffe::TRUST_DOMAIN_DEFAULT;

use super::admin_endpoint::AdminServerArgs;
use super::examples;
use crate::names::TrustDomain;

#[derive(Subcommand)]
pub(crate) enum ServerCommand {
    /// List the servers that share their records, with their states
    ///
    /// Any server answers for all of them, by the registrations in etcd and by what the others tell it every 2 s. PEERS is the number of
    /// servers with an open session, of all that are registered. FRESHNESS is the time since which changes may be unknown at a server.
    /// POLICY begins the SHA-256 of the policy's file that is in force, which must be the same everywhere.
    ///
    /// A server is Ready, NotReady (its readiness probe fails), Draining, Behind (it has no news from etcd and changes nothing) or Stale
    /// (it serves nothing new). It is Silent if it has a session with the server that is asked, and tells nothing: it is frozen, cut off, or
    /// an earlier version. It is Unreachable if it is registered and has no session, and Gone if it has neither.
    #[command(after_long_help = examples::SERVER_LIST)]
    List(ServerList),
    /// Remove what is left of a server that is gone for good
    ///
    /// A server that has run once keeps its number, and is listed as Gone when it does not run. This removes the number, which a new
    /// server may get. A server that runs is refused: stop it first, and wait until it is listed as Gone.
    #[command(after_long_help = examples::SERVER_REMOVE)]
    Remove(ServerRemove),
    /// Write the records of running servers to a file, or to standard output
    ///
    /// The file has clusters, agents, tokens, addresses and revocations as they are at one moment, while the servers go on. It is
    /// the same text from the file of one server and from the etcd of several. It has the hashes of tokens and not the tokens,
    /// and no key. Needs root or the server's user at the socket, or the role operator. The server notes it in its audit log.
    ///
    /// The audit log and its two keys are not in the file: copy them from the state directory by other means.
    #[command(after_long_help = examples::SERVER_EXPORT, alias = "backup")]
    Export(ServerExport),
    /// Put an export into the empty store of servers that do not run
    ///
    /// The store is the one that the configuration names: the etcd of directory.etcd, or else the file in stateDir. A part of an
    /// export, a changed one, one of another trust domain and a store with records are refused. Servers that start meanwhile wait.
    ///
    /// A revocation that was made after the export is not in it. So make those revocations again: the command prints how to find
    /// them in the audit log. Enrollment tokens that were not used are left out, because they may have been used since.
    #[command(after_long_help = examples::SERVER_IMPORT, alias = "restore")]
    Import(ServerImport),
}

#[derive(Args)]
pub(crate) struct ServerList {
    /// The output format; wide, json and yaml also have the trust bundle, the clock, the start and the address of each server
    #[arg(long, short, value_name = "FORMAT")]
    pub(crate) output: Option<ServersOutput>,
    /// Order by a column in place of the ID: the smallest first, the worst state first. Servers without a value come last
    #[arg(long, value_name = "COLUMN")]
    pub(crate) sort_by: Option<ServerSort>,
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServersOutput {
    Wide,
    Json,
    Yaml,
    Name,
}

/// A value by which servers are ordered.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerSort {
    Id,
    State,
    Tunnels,
    /// The peers that are connected
    Peers,
    Freshness,
    /// The time of the start
    Started,
}

#[derive(Args)]
pub(crate) struct ServerRemove {
    /// The server's ID, as `tombolo server list` shows it
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}

#[derive(Args)]
pub(crate) struct ServerExport {
    /// The file to write the export to, with mode 0600; - for standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}

#[derive(Args)]
pub(crate) struct ServerImport {
    /// The export, as `tombolo server export` wrote it; - for standard input
    #[arg(value_name = "FILE")]
    pub(crate) export: PathBuf,
    /// The configuration of a server that will use the store
    #[arg(long, value_name = "FILE", default_value = "/etc/tombolo/server.yaml")]
    pub(crate) config: PathBuf,
    /// The server's name among its like, if the server is started with this flag; it replaces each $(serverId) in the file
    #[arg(long, value_name = "NAME", env = "TOMBOLO_SERVER_SERVER_ID")]
    pub(crate) server_id: Option<String>,
    /// The state directory of a server without directory.etcd, in place of --config
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub(crate) state_dir: Option<PathBuf>,
    /// The trust domain of that server, with --state-dir
    #[arg(long, value_name = "DOMAIN", default_value = TRUST_DOMAIN_DEFAULT, conflicts_with = "config")]
    pub(crate) trust_domain: TrustDomain,
    /// Keep enrollment tokens that were not used, if no server has run since the export
    #[arg(long)]
    pub(crate) keep_tokens: bool,
    /// Check the export and the store, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}
