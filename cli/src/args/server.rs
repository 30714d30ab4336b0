//! The arguments of `tombolo server`: exports and imports of servers' records.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use proto::spiffe::TRUST_DOMAIN_DEFAULT;

use super::admin_endpoint::AdminServerArgs;
use super::examples;
use crate::names::TrustDomain;

#[derive(Subcommand)]
pub(crate) enum ServerCommand {
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
