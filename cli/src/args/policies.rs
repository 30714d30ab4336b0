//! The words of `tombolo policy`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use policy::Target;
use policy::action::Verb;
use proto::ClusterId;

use super::examples;

#[derive(Subcommand)]
pub(crate) enum Policy {
    /// Say what is wrong in a policy, with the line, or that nothing is
    ///
    /// A server takes a policy exactly if this finds nothing. Ends with 1 if something is wrong.
    #[command(after_long_help = examples::POLICY_CHECK)]
    Check(PolicyCheck),
    /// Say whether a policy allows something, and which rule decides
    ///
    /// Asks the file, not a server. What is asked is a resource with its verb, or a path as a caller sends it, or a host
    /// and port that is dialed, or another identity. Ends with 0 if it is allowed, 1 if it is not, 2 if nothing could be decided.
    #[command(after_long_help = examples::POLICY_EXPLAIN)]
    Explain(Box<PolicyExplain>),
}

#[derive(Args)]
pub(crate) struct PolicyCheck {
    /// The policy
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Args)]
pub(crate) struct PolicyExplain {
    /// The policy
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: PathBuf,
    /// How somebody came in: client-certificate, token, dial-token, oidc:NAME, token-review:NAME or way-in:NAME
    #[arg(long, value_name = "METHOD", value_parser = policy::method)]
    pub(crate) method: String,
    /// Who that is, with the prefix of the method
    #[arg(long, value_name = "USER")]
    pub(crate) user: String,
    /// A group, with the prefix of the method; repeat for more
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
    /// Which cluster is asked
    #[arg(long, value_name = "CLUSTER")]
    pub(crate) cluster: ClusterId,
    /// Labels that the server keeps for the cluster; repeat for more
    #[arg(long, value_name = "KEY=VALUE", value_parser = label, value_delimiter = ',')]
    pub(crate) labels: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) asked: PolicyAsked,
    /// How to say it
    #[arg(long, short, value_name = "FORMAT")]
    pub(crate) output: Option<PolicyOutput>,
}

/// What is asked for, in one of four ways.
#[derive(Args)]
#[group(id = "asked", skip)]
#[command(group(ArgGroup::new("way").args(["resource", "path", "target", "as_user"]).required(true)))]
pub(crate) struct PolicyAsked {
    /// What is done with the resource: get, list, watch, create, connect and so on
    #[arg(long, value_name = "VERB", requires = "resource")]
    pub(crate) verb: Option<Verb>,
    /// A resource in the plural, perhaps with a subresource: pods/log
    #[arg(long, value_name = "RESOURCE", requires = "verb")]
    pub(crate) resource: Option<String>,
    /// The resource's API group; empty for the core group
    #[arg(long, value_name = "GROUP", default_value = "", requires = "resource")]
    pub(crate) api_group: String,
    /// The resource's namespace [default: none, or all together]
    #[arg(long, value_name = "NAMESPACE", requires = "resource")]
    pub(crate) namespace: Option<String>,
    /// A path of the cluster's API with its query
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<String>,
    /// The method with which the path is asked
    #[arg(long, value_name = "METHOD", default_value = "GET", requires = "path")]
    pub(crate) http_method: http::Method,
    /// What is dialed from within the cluster
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) target: Option<Target>,
    /// A user whom that somebody wants to be taken for, as by kubectl --as
    #[arg(long = "as", value_name = "USER")]
    pub(crate) as_user: Option<String>,
    /// A group that goes with it, as by kubectl --as-group; repeat for more
    #[arg(long = "as-group", value_name = "GROUP", requires = "as_user")]
    pub(crate) as_groups: Vec<String>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicyOutput {
    Json,
}

fn label(text: &str) -> Result<(String, String), &'static str> {
    let (key, value) = text.split_once('=').ok_or("not KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}
