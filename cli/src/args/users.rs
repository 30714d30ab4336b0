//! What may be said of callers, their tokens and their revocations.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use prost_types::Timestamp;
use proto::ClusterId;

use super::at_server::AtServer;
use super::copied::{CopyPlace, OwnKubeconfig};
use super::examples;
use crate::names::{GatewayUrl, Group, Label, User as UserName, Validity};

#[derive(Subcommand)]
pub(crate) enum User {
    /// Make tokens with which callers come in, for the server's token file
    #[command(subcommand, after_long_help = examples::USER_TOKEN)]
    Token(UserToken),
    /// Make tokens that connect callers without a certificate to targets of clusters
    #[command(subcommand, after_long_help = examples::DIAL_TOKEN)]
    DialToken(DialToken),
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

#[derive(Subcommand)]
pub(crate) enum DialToken {
    /// Make a dial token
    ///
    /// It is written to a file, which only you can read, and shown nowhere. It opens the server's proxy listener and no other door,
    /// for its owner alone, and policy has to let that user dial by the method dial-token.
    #[command(after_long_help = examples::DIAL_TOKEN_CREATE)]
    Create(DialTokenCreate),
    /// Write a cluster's own kubeconfig with a dial token in it, for machines without this command
    ///
    /// Nothing in it changes but the proxy and what vouches for that. Programs verify the proxy by the same certificates as the API
    /// server: so what is added vouches for the proxy's DNS name and no address, as `tombolo ca issue proxy` makes it. A kubeconfig
    /// with a tls-server-name needs `tombolo proxy`.
    #[command(after_long_help = examples::DIAL_TOKEN_KUBECONFIG)]
    Kubeconfig(DialTokenKubeconfig),
    /// Show the dial tokens that are kept, without what makes them tokens
    #[command(after_long_help = examples::DIAL_TOKEN_LIST)]
    List(DialTokenList),
    /// Take a dial token away, and end what runs by it
    #[command(after_long_help = examples::DIAL_TOKEN_REVOKE)]
    Revoke(DialTokenRevoke),
}

#[derive(Args)]
pub(crate) struct DialTokenCreate {
    /// Whose it is, as policies name them
    #[arg(long, value_name = "NAME")]
    pub(crate) user: UserName,
    /// A cluster of whose targets it is; repeat for more, up to 100
    #[arg(long = "cluster", value_name = "CLUSTER", required_unless_present = "networks")]
    pub(crate) clusters: Vec<ClusterId>,
    /// A network of whose clusters' targets it is, whichever those are when it is used; repeat for more
    #[arg(long = "network", value_name = "NETWORK")]
    pub(crate) networks: Vec<Label>,
    /// How long it holds, from 1m to 30d
    #[arg(long, value_name = "TIME", default_value = "24h")]
    pub(crate) ttl: Validity,
    /// Where to write it
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Replace the file that is already there
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) server: AtServer,
}

#[derive(Args)]
pub(crate) struct DialTokenKubeconfig {
    #[arg(long, value_name = "URL", help = "Where the server's proxy listener is: https://HOST[:PORT]")]
    pub(crate) proxy: GatewayUrl,
    /// What vouches for it (proxy-ca.crt); without, it has a publicly trusted certificate, and so has the API server
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Whose the token is
    #[arg(long, value_name = "NAME")]
    pub(crate) user: UserName,
    /// The file with the token
    #[arg(long, value_name = "FILE")]
    pub(crate) dial_token_file: PathBuf,
    #[command(flatten)]
    pub(crate) own: OwnKubeconfig,
    #[command(flatten)]
    pub(crate) copy: CopyPlace,
}

#[derive(Args)]
pub(crate) struct DialTokenList {
    #[command(flatten)]
    pub(crate) server: AtServer,
}

#[derive(Args)]
pub(crate) struct DialTokenRevoke {
    /// The token's id, as `tombolo user dial-token list` shows it
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) server: AtServer,
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
