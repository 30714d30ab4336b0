//! The arguments of `tombolo user`: tokens and revocations of callers.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use prost_types::Timestamp;
use proto::ClusterId;

use super::admin_endpoint::AdminServerArgs;
use super::examples;
use super::kubeconfig_copy::{ClusterKubeconfig, CopyOutput};
use crate::names::{GatewayUrl, Group, Label, User, Validity};

#[derive(Subcommand)]
pub(crate) enum UserCommand {
    /// Create bearer tokens of callers, for the server's token file
    #[command(subcommand, after_long_help = examples::USER_TOKEN)]
    Token(UserTokenCommand),
    /// Create tokens with which callers without a certificate dial targets in clusters
    #[command(subcommand, after_long_help = examples::DIAL_TOKEN)]
    DialToken(DialTokenCommand),
    /// Revoke callers: refuse them from now on, and end their requests
    ///
    /// --name refuses a user, with every credential. --serial refuses one certificate. --issued-before refuses all credentials that
    /// are older, of one user or of everyone; a credential without a date of issue, such as a static token, counts as older. The
    /// date of a certificate is its beginning, which `tombolo ca` dates 5 minutes back.
    ///
    /// Servers that share their records have it within a second. If one of them has not confirmed it by then, it is named with the
    /// time from which it refuses everybody, and the exit code is 1.
    #[command(after_long_help = examples::USER_REVOKE)]
    Revoke(UserRevoke),
    /// List the revocations of callers
    #[command(after_long_help = examples::USER_LIST)]
    List(UserList),
    /// Withdraw a revocation of callers
    #[command(after_long_help = examples::USER_RESTORE)]
    Restore(UserRestore),
}

#[derive(Subcommand)]
pub(crate) enum UserTokenCommand {
    /// Create a token, and print its line for the server's token file
    ///
    /// The token is written to a file that only you can read: give it to the user, for `tombolo kubeconfig --token-file`. The line
    /// has only its digest. The server reads its token file when it starts.
    #[command(after_long_help = examples::USER_TOKEN_CREATE)]
    Create(UserTokenCreate),
    /// Print a token file with digests in place of its plain tokens
    #[command(after_long_help = examples::USER_TOKEN_HASH)]
    Hash(UserTokenHash),
}

#[derive(Args)]
pub(crate) struct UserTokenCreate {
    /// The user of the token, without the prefix of tokens
    #[arg(long, value_name = "USER")]
    pub(crate) user: User,
    /// A group of the user, without the prefix of tokens; repeat for more
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<Group>,
    /// The file to write the token to
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Replace the file if it exists
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
pub(crate) enum DialTokenCommand {
    /// Create a dial token for a user
    ///
    /// The token is written to a file that only you can read, and is not printed. It authenticates its user at the server's proxy
    /// listener and at no other listener. The policy has to allow that user to dial by the method dial-token.
    #[command(after_long_help = examples::DIAL_TOKEN_CREATE)]
    Create(DialTokenCreate),
    /// Write a copy of a cluster's own kubeconfig with a dial token, for machines without this command
    ///
    /// Only the proxy and its CA are added. Programs verify the proxy by the same CA bundle as the API server, so the added CA must be
    /// limited to the proxy's DNS name, as `tombolo ca issue proxy` makes it. For a kubeconfig with a tls-server-name use `tombolo
    /// proxy`.
    #[command(after_long_help = examples::DIAL_TOKEN_KUBECONFIG)]
    Kubeconfig(DialTokenKubeconfig),
    /// List the dial tokens, without their secrets
    #[command(after_long_help = examples::DIAL_TOKEN_LIST)]
    List(DialTokenList),
    /// Revoke a dial token, and end its connections
    #[command(after_long_help = examples::DIAL_TOKEN_REVOKE)]
    Revoke(DialTokenRevoke),
}

#[derive(Args)]
pub(crate) struct DialTokenCreate {
    /// The user of the token, as policies name it
    #[arg(long, value_name = "NAME")]
    pub(crate) user: User,
    /// A cluster in which it may dial; repeat for more, up to 100
    #[arg(long = "cluster", value_name = "CLUSTER", required_unless_present = "networks")]
    pub(crate) clusters: Vec<ClusterId>,
    /// A network in whose clusters it may dial, as they are when it is used; repeat for more
    #[arg(long = "network", value_name = "NETWORK")]
    pub(crate) networks: Vec<Label>,
    /// The lifetime of the token, from 1m to 30d
    #[arg(long, value_name = "TIME", default_value = "24h")]
    pub(crate) ttl: Validity,
    /// The file to write it to
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}

#[derive(Args)]
pub(crate) struct DialTokenKubeconfig {
    #[arg(long, value_name = "URL", help = "The URL of the server's proxy listener: https://HOST[:PORT]")]
    pub(crate) proxy: GatewayUrl,
    /// The CA of the proxy listener (proxy-ca.crt); leave it out if proxy and API server have publicly trusted certificates
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// The user of the token
    #[arg(long, value_name = "NAME")]
    pub(crate) user: User,
    /// The file with the token
    #[arg(long, value_name = "FILE")]
    pub(crate) dial_token_file: PathBuf,
    #[command(flatten)]
    pub(crate) own: ClusterKubeconfig,
    #[command(flatten)]
    pub(crate) copy: CopyOutput,
}

#[derive(Args)]
pub(crate) struct DialTokenList {
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}

#[derive(Args)]
pub(crate) struct DialTokenRevoke {
    /// The token's id, as `tombolo user dial-token list` shows it
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
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
    /// Only credentials that were issued before this time, such as 2026-01-31T12:00:00Z; of everyone, without --name
    #[arg(long, value_name = "TIME", group = "revoked")]
    pub(crate) issued_before: Option<Timestamp>,
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}

#[derive(Args)]
pub(crate) struct UserList {
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}

#[derive(Args)]
#[group(id = "restored", required = true, multiple = false)]
pub(crate) struct UserRestore {
    /// The revocation of a user
    #[arg(long, value_name = "NAME", group = "restored")]
    pub(crate) name: Option<String>,
    /// The revocation of a certificate, by its serial number in hexadecimal
    #[arg(long, value_name = "SERIAL", group = "restored")]
    pub(crate) serial: Option<String>,
    /// The revocation of everyone's older credentials
    #[arg(long, group = "restored")]
    pub(crate) everyone: bool,
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}
