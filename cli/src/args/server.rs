//! The arguments of `tombolo server`: backups of a server's records.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::admin_endpoint::AdminServerArgs;
use super::examples;

#[derive(Subcommand)]
pub(crate) enum ServerCommand {
    /// Copy the records of a running server to a file, or to standard output
    ///
    /// The file has clusters, agents, tokens, addresses and revocations as they are at one moment, while the server goes on. It has
    /// the hashes of tokens and not the tokens, and no key. Needs root or the server's user at the socket, or the role operator.
    /// The server notes it in its audit log.
    ///
    /// The audit log and its two keys are not in the file: copy them from the state directory by other means.
    #[command(after_long_help = examples::SERVER_BACKUP)]
    Backup(ServerBackup),
    /// Put a backup into the state directory of a server that does not run
    ///
    /// Works offline. The server reads the records when it starts, verifies them, and ends with an error if they are damaged.
    ///
    /// A revocation that was made after the backup is not in it, and a token that was used after it can be used again. So make
    /// those revocations again: the audit log of the old server lists them.
    #[command(after_long_help = examples::SERVER_RESTORE)]
    Restore(ServerRestore),
}

#[derive(Args)]
pub(crate) struct ServerBackup {
    /// The file to write the backup to, with mode 0600; - for standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}

#[derive(Args)]
pub(crate) struct ServerRestore {
    /// The backup, as `tombolo server backup` wrote it; - for standard input
    #[arg(value_name = "FILE")]
    pub(crate) backup: PathBuf,
    /// The state directory of the server: the stateDir of its configuration
    #[arg(long, value_name = "DIR", default_value = "/var/lib/tombolo/server")]
    pub(crate) state_dir: PathBuf,
    /// Replace records that are there; they are kept beside as directory.redb.replaced
    #[arg(long)]
    pub(crate) replace: bool,
}
