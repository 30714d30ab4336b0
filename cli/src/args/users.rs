//! What may be said of callers and their tokens.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::examples;
use crate::names::{Group, User as UserName};

#[derive(Subcommand)]
pub(crate) enum User {
    /// Make tokens with which callers come in, for the server's token file
    #[command(subcommand, after_long_help = examples::USER_TOKEN)]
    Token(UserToken),
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
