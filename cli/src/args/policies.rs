//! The arguments of `tombolo policy`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use policy::Target;
use policy::action::Verb;
use proto::ClusterId;

use super::examples;

#[derive(Subcommand)]
pub(crate) enum PolicyCommand {
    /// Check a policy file, and print the first error with its line
    ///
    /// A server accepts exactly the policies in which this finds no error. The exit code is 1 if there is an error.
    #[command(after_long_help = examples::POLICY_CHECK)]
    Check(PolicyCheck),
    /// Explain whether a policy allows a request, and which rule decides
    ///
    /// Evaluates the file, without a server. The request is a resource with its verb, or a path as a caller sends it, or a host
    /// and port to dial, or a user to impersonate. The exit code is 0 if it is allowed, 1 if it is denied, and 2 if nothing could
    /// be decided.
    #[command(after_long_help = examples::POLICY_EXPLAIN)]
    Explain(Box<PolicyExplain>),
}

#[derive(Args)]
pub(crate) struct PolicyCheck {
    /// The policy file to read
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Args)]
pub(crate) struct PolicyExplain {
    /// The policy file to read
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: PathBuf,
    /// The method by which the caller authenticated: client-certificate, token, dial-token, oidc:NAME, token-review:NAME or entry-point:NAME
    #[arg(long, value_name = "METHOD", value_parser = policy::parse_method)]
    pub(crate) method: String,
    /// The caller's user name, with the prefix of the method
    #[arg(long, value_name = "USER")]
    pub(crate) user: String,
    /// A group of the caller, with the prefix of the method; repeat for more
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
    /// The cluster of the request
    #[arg(long, value_name = "CLUSTER")]
    pub(crate) cluster: ClusterId,
    /// Labels that the cluster has at the server; repeat for more
    #[arg(long, value_name = "KEY=VALUE", value_parser = label, value_delimiter = ',')]
    pub(crate) labels: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) asked: PolicyAsked,
    /// The output format, in place of lines for people
    #[arg(long, short, value_name = "FORMAT")]
    pub(crate) output: Option<PolicyOutput>,
}

/// The request, in one of four forms.
#[derive(Args)]
#[group(id = "asked", skip)]
#[command(group(ArgGroup::new("request").args(["resource", "path", "target", "as_user"]).required(true)))]
pub(crate) struct PolicyAsked {
    /// The verb for the resource: get, list, watch, create, connect and so on
    #[arg(long, value_name = "VERB", requires = "resource")]
    pub(crate) verb: Option<Verb>,
    /// A resource in the plural, perhaps with a subresource: pods/log
    #[arg(long, value_name = "RESOURCE", requires = "verb")]
    pub(crate) resource: Option<String>,
    /// The resource's API group; empty for the core group
    #[arg(long, value_name = "GROUP", default_value = "", requires = "resource")]
    pub(crate) api_group: String,
    /// The resource's namespace [default: none, or all namespaces]
    #[arg(long, value_name = "NAMESPACE", requires = "resource")]
    pub(crate) namespace: Option<String>,
    /// A path of the cluster's API, with its query
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<String>,
    /// The HTTP method for the path
    #[arg(long, value_name = "METHOD", default_value = "GET", requires = "path")]
    pub(crate) http_method: http::Method,
    /// A target to dial in the cluster
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) target: Option<Target>,
    /// A user to impersonate, as with kubectl --as
    #[arg(long = "as", value_name = "USER")]
    pub(crate) as_user: Option<String>,
    /// A group to impersonate, as with kubectl --as-group; repeat for more
    #[arg(long = "as-group", value_name = "GROUP", requires = "as_user")]
    pub(crate) as_groups: Vec<String>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicyOutput {
    Json,
}

fn label(text: &str) -> Result<(String, String), &'static str> {
    let (key, value) = text.split_once('=').ok_or("use KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}
