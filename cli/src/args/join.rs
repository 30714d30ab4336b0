//! The arguments of `tombolo cluster create --print`, which prints the command that joins a site.

use clap::{Args, ValueEnum};

use crate::names::Validity;

/// The command that is printed for a new cluster, and the values in it.
#[derive(Args, Clone)]
pub(crate) struct JoinArgs {
    /// Print the command that installs the agents in that cluster, with a token for the first one, in place of a confirmation
    #[arg(long, value_name = "COMMAND")]
    pub(crate) print: Option<PrintedCommand>,
    /// Wait until an agent of the cluster is connected, and say so
    #[arg(long, requires = "print")]
    pub(crate) wait: bool,
    /// The longest time to wait for an agent
    #[arg(long, value_name = "TIME", default_value = "15m")]
    pub(crate) timeout: Validity,
    /// The time in which the token can be used
    #[arg(long, value_name = "TIME", default_value = "15m")]
    pub(crate) token_ttl: Validity,
    /// A user that the agents may impersonate; repeat for more
    #[arg(long = "user", value_name = "USER", requires = "print")]
    pub(crate) users: Vec<String>,
    /// A group that the agents may impersonate; repeat for more
    #[arg(long = "group", value_name = "GROUP", requires = "print")]
    pub(crate) groups: Vec<String>,
    /// A ClusterRole of that cluster to which the groups are bound, or the users if no group is given
    #[arg(long, value_name = "NAME", requires = "print")]
    pub(crate) cluster_role: Option<String>,
    /// The server's address for agents; repeat for more [default: the host of enrollment.address, and the port of tunnel.listen]
    #[arg(long = "servers", value_name = "HOST:PORT", requires = "print")]
    pub(crate) servers: Vec<String>,
    /// The chart: a folder, an archive or a URL
    #[arg(long, value_name = "CHART", default_value = "deploy/charts/tombolo-agent")]
    pub(crate) chart: String,
    /// A further value of the chart, as for `helm --set`; repeat for more
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "print")]
    pub(crate) values: Vec<String>,
}

/// The program whose command is printed.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrintedCommand {
    Helm,
}
