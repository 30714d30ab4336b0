//! The question to a policy: a principal, a cluster and a request.

use std::collections::BTreeMap;

use proto::allow_list::NameKind;

use crate::action::{Object, Verb};
use crate::target::Target;

/// The authenticated caller of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Principal<'a> {
    /// The authentication method; a text that [`crate::parse_method`] accepts.
    pub method: &'a str,
    /// The user's name, with the prefix of the method.
    pub user: &'a str,
    /// The names of the groups, with the prefix of the method.
    pub groups: &'a [String],
}

/// Facts about a cluster from the server's own store. Claims of an agent are never among them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterFacts {
    /// Its labels, as in Kubernetes.
    pub labels: BTreeMap<String, String>,
}

/// A request to a cluster, in one of the three modes of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// An action at its Kubernetes API.
    KubeApi(Verb, &'a Object),
    /// A connection from within the cluster to a target.
    Dial(&'a Target),
    /// Impersonation of this user or group. [`Rules::decide_identity`](super::Rules::decide_identity) decides about all parts of an identity.
    Impersonate(NameKind, &'a str),
}
