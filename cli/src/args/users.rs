//! What may be said of callers, their tokens and their revocations.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use prost_types::Timestamp;

use super::at_server::AtServer;
use super::examples;
use crate::names::{Group, User as UserName};

#[derive(Subcommand)]
pub(crate) enum User {
    /// Make tokens with which callers come in, for the server's token file
    #[command(subcommand, after_long_help = examples::USER_TOKEN)]
    Token(UserToken),
    /// Refuse callers from now on, and end what they have running
    ///
    /// By name: whoever has it, whatever proves it. By serial number: one certificate. By the time at which they were issued:
    /// all credentials from before, of one user or of everyone; those that do not say when they were issued, such as static
    /// tokens, count as from before. Certificates count from their beginning, which `tombolo ca` dates 5 minutes back.
    #[command(after_long_help = examples::USER_REVOKE)]
    Revoke(UserRevoke),
    /// Show which callers are refused
    #[command(after_long_help = examples::USER_LIST)]
    List(UserList),
    /// Take a revocation back
    #[command(after_long_help = examples::USER_RESTORE)]
    Restore(UserRestore),
}

#[derive(Subcommand)]
pub(crate) enum UserToken {
    /// Make a token, and print its line for the server's token file
    ///
    /// The token goes into a file of its own, which only you can read: carry it to whom it is for, as --token-file of
    /// `tombolo kubeconfig`. The line has its digest alone. The server reads its token file when it starts.
    #[command(after_long_help = examples::USER_TOKEN_CREATE)]
    Create(UserTokenCreate),
    /// Print a token file with digests in place of the tokens that stand in it in plain text
    #[command(after_long_help = examples::USER_TOKEN_HASH)]
    Hash(UserTokenHash),
}

#[derive(Args)]
pub(crate) struct UserTokenCreate {
    /// Whose token it is, without the prefix of tokens
    #[arg(long, value_name = "USER")]
    pub(crate) user: UserName,
    /// A group, without the prefix of tokens; repeat for more
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<Group>,
    /// Where to write the token
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Replace the file that is already there
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Args)]
pub(crate) struct UserTokenHash {
    /// The token file, with lines token,user,uid,"group1,group2"
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Args)]
#[group(id = "revoked", required = true, multiple = true)]
pub(crate) struct UserRevoke {
    /// A user, as policies name it: with the prefix of the method
    #[arg(long, value_name = "NAME", group = "revoked")]
    pub(crate) name: Option<String>,
    /// One certificate, by its serial number in hexadecimal
    #[arg(long, value_name = "SERIAL", group = "revoked", conflicts_with_all = ["name", "issued_before"])]
    pub(crate) serial: Option<String>,
    /// Only what was issued before this time, as in 2026-01-31T12:00:00Z; of everyone, without --name
    #[arg(long, value_name = "TIME", group = "revoked")]
    pub(crate) issued_before: Option<Timestamp>,
    #[command(flatten)]
    pub(crate) server: AtServer,
}

#[derive(Args)]
pub(crate) struct UserList {
    #[command(flatten)]
    pub(crate) server: AtServer,
}

#[derive(Args)]
#[group(id = "restored", required = true, multiple = false)]
pub(crate) struct UserRestore {
    /// A user
    #[arg(long, value_name = "NAME", group = "restored")]
    pub(crate) name: Option<String>,
    /// One certificate, by its serial number in hexadecimal
    #[arg(long, value_name = "SERIAL", group = "restored")]
    pub(crate) serial: Option<String>,
    /// What was revoked of everyone
    #[arg(long, group = "restored")]
    pub(crate) everyone: bool,
    #[command(flatten)]
    pub(crate) server: AtServer,
}
