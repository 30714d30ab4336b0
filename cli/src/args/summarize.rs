//! The arguments of `tombolo summarize`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Args)]
pub(crate) struct SummarizeArgs {
    /// The resource, as for kubectl: pods, deploy, deployments.apps
    #[arg(value_name = "RESOURCE")]
    pub(crate) resource: String,
    /// Summarize the objects of all namespaces
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    /// The namespace of the objects
    #[arg(long, short, value_name = "NAME", default_value = "default")]
    pub(crate) namespace: String,
    /// A field by which objects are grouped; at most four
    #[arg(long, value_name = "PATH", allow_hyphen_values = true)]
    pub(crate) by: Vec<String>,
    /// Count the objects that have this field
    #[arg(long, value_name = "PATH")]
    pub(crate) count: Vec<String>,
    /// Add the numbers in this field up
    #[arg(long, value_name = "PATH")]
    pub(crate) sum: Vec<String>,
    /// Show the least number or time in this field
    #[arg(long, value_name = "PATH")]
    pub(crate) min: Vec<String>,
    /// Show the greatest number or time in this field
    #[arg(long, value_name = "PATH")]
    pub(crate) max: Vec<String>,
    /// Show the mean of the numbers in this field
    #[arg(long, value_name = "PATH")]
    pub(crate) avg: Vec<String>,
    /// Take only objects that meet this: PATH=VALUE,VALUE or PATH!=VALUE,VALUE or PATH (it is there) or !PATH (it is not)
    #[arg(long = "where", value_name = "CONDITION")]
    pub(crate) conditions: Vec<String>,
    /// Name the N objects with the greatest number or time in this field
    #[arg(long, value_name = "N:PATH")]
    pub(crate) top: Option<String>,
    /// Show this field of each object, of the first 200
    #[arg(long, value_name = "PATH")]
    pub(crate) select: Vec<String>,
    /// Take only objects with these labels
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub(crate) selector: Option<String>,
    /// Ask the clusters of this set, at the gateway of the context
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster_set: Option<String>,
    /// The seconds after which clusters without an answer are left out, if a set is asked
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=15))]
    pub(crate) timeout: u32,
    /// The kubeconfig [default: the first of $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context to use [default: its current-context]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The output format, in place of a table for people
    #[arg(long, short, value_name = "FORMAT")]
    pub(crate) output: Option<SummarizeOutput>,
}

/// The format of a summary for programs.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum SummarizeOutput {
    /// The document of the gateway as it came
    Json,
}
