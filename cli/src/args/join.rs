//! The arguments of the commands that join a site: `tombolo cluster create --print` and `tombolo token create`.

use clap::{Arg, Args, ValueEnum};

use crate::names::{Validity, WaitTime, host_and_port};

/// The command that is printed for a new cluster, and the wait for its agents.
#[derive(Args, Clone)]
#[command(mut_args(of_printed_command))]
pub(crate) struct JoinArgs {
    /// Print the command that installs the agents in that cluster, with a token for the first one, in place of a confirmation
    ///
    /// For a cluster that exists, `tombolo token create --cluster CLUSTER -o helm` prints the same.
    #[arg(long, value_name = "COMMAND")]
    pub(crate) print: Option<PrintedCommand>,
    /// Wait until an agent of the cluster is connected, and say so
    #[arg(long)]
    pub(crate) wait: bool,
    /// The longest time to wait for an agent, such as 90s, 15m or 1h; a plain number is in seconds
    #[arg(long, value_name = "TIME", default_value = "15m", requires = "wait")]
    pub(crate) timeout: WaitTime,
    /// The time in which the token can be used
    #[arg(long, value_name = "TIME", default_value = "15m")]
    pub(crate) token_ttl: Validity,
    #[command(flatten)]
    pub(crate) site: SiteArgs,
}

/// The callers of a site, and the values of the command that joins it.
#[derive(Args, Clone, Default)]
pub(crate) struct SiteArgs {
    /// A user that the agents may impersonate; repeat for more
    #[arg(long = "user", value_name = "USER")]
    pub(crate) users: Vec<String>,
    /// A group that the agents may impersonate; repeat for more
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
    /// A ClusterRole of that cluster to which the groups are bound, or the users if no group is given
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster_role: Option<String>,
    /// The server's address for agents; repeat for more [default: the host of enrollment.address, and the port of tunnel.listen]
    #[arg(long = "servers", value_name = "HOST:PORT", value_parser = host_and_port)]
    pub(crate) servers: Vec<String>,
    /// The chart of the Helm command: a folder, an archive or a URL
    #[arg(long, value_name = "CHART", default_value = CHART_DEFAULT)]
    pub(crate) chart: String,
    /// A further value of the chart, as for `helm --set`; repeat for more
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) values: Vec<String>,
}

/// The chart of this source tree.
pub(crate) const CHART_DEFAULT: &str = "deploy/charts/tombolo-agent";

/// The program whose command is printed.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrintedCommand {
    Helm,
}

/// The callers that a role is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoleSubject<'a> {
    Group(&'a str),
    User(&'a str),
}

impl SiteArgs {
    /// The callers to which `--cluster-role` is bound: the groups, or the users if no group is given.
    pub(crate) fn role_subjects(&self) -> Vec<RoleSubject<'_>> {
        RoleSubject::among(&self.users, &self.groups)
    }
}

impl<'a> RoleSubject<'a> {
    /// The callers to which a role is bound: the groups, or the users if there is no group.
    pub(crate) fn among(users: &'a [String], groups: &'a [String]) -> Vec<Self> {
        if groups.is_empty() {
            users.iter().map(|user| Self::User(user)).collect()
        } else {
            groups.iter().map(|group| Self::Group(group)).collect()
        }
    }
}

/// Lets the arguments of [`SiteArgs`] require `--print`, without which `cluster create` prints no command.
fn of_printed_command(argument: Arg) -> Arg {
    match argument.get_id().as_str() {
        "users" | "groups" | "cluster_role" | "servers" | "values" | "chart" => argument.requires("print"),
        _ => argument,
    }
}
