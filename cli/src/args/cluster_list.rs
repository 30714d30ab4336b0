//! The arguments of `tombolo cluster list`, and of its old spelling `tombolo clusters`.

use clap::{Args, ValueEnum};
use policy::LabelSelector;
use proto::ClusterId;

use super::admin_endpoint::AdminServerArgs;

#[derive(Args)]
pub(crate) struct ClustersArgs {
    /// Show only the clusters of these names
    #[arg(value_name = "CLUSTER")]
    pub(crate) names: Vec<ClusterId>,
    /// Show only clusters whose labels match, in kubectl's syntax: =, ==, !=, in, notin, NAME and !NAME, with commas between several
    #[arg(long, short = 'l', value_name = "SELECTOR", conflicts_with = "names")]
    pub(crate) selector: Option<LabelSelector>,
    /// Show a cluster again whenever it changes, until Ctrl-C
    #[arg(long, short)]
    pub(crate) watch: bool,
    /// Add a column with the clusters' labels
    #[arg(long)]
    pub(crate) show_labels: bool,
    /// Order by a column in place of the name: the smallest first, the earliest time first, the worst health first. Clusters without a
    /// value come last
    #[arg(long, value_name = "COLUMN", conflicts_with = "watch")]
    pub(crate) sort_by: Option<ClusterSort>,
    /// The output format; wide, json and yaml have each tunnel, and with --watch also show new measurements
    #[arg(long, short, value_name = "FORMAT")]
    pub(crate) output: Option<ClustersOutput>,
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClustersOutput {
    Wide,
    Json,
    Yaml,
    Name,
}

/// A value by which clusters are ordered.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClusterSort {
    Name,
    Health,
    Tunnels,
    Rtt,
    Loss,
    Streams,
    /// The begin of the oldest tunnel
    Age,
    LastSeen,
    /// The time at which the cluster was created
    Created,
    /// The oldest version among its connected agents
    Version,
}
