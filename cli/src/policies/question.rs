//! A question to a policy: whether a user may do something in a cluster.

use std::fmt;

use policy::action::{Action, ActionError, Object, Resource, Verb};
use policy::{ClusterFacts, Principal, Request, Rules, Target, Verdict};
use proto::ClusterId;
use proto::wire::Assert;
use serde_json::{Value, json};

use crate::args::PolicyExplain;

/// A user, and the request that a policy is asked about.
pub(super) struct Question {
    method: String,
    pub(super) user: String,
    groups: Vec<String>,
    pub(super) cluster: ClusterId,
    facts: ClusterFacts,
    wanted: Wanted,
}

enum Wanted {
    KubeApi(Verb, Object),
    Dial(Target),
    Identity(Assert),
}

/// A question about a request that no gateway would accept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QuestionError {
    #[error("--path: the gateway refuses such a request")]
    Path(#[source] ActionError),
    #[error("no request is {0} of {1}: {advice}", advice = advice(*.0))]
    Impossible(Verb, String),
}

impl Question {
    pub(super) fn from_args(args: PolicyExplain) -> Result<Self, QuestionError> {
        let PolicyExplain { method, user, groups, cluster, labels, asked, .. } = args;
        let wanted = match (asked.resource, asked.path, asked.target, asked.as_user) {
            (_, _, _, Some(user)) => Wanted::Identity(Assert { user, groups: asked.as_groups }),
            (_, _, Some(target), None) => Wanted::Dial(target),
            (_, Some(path), None, None) => {
                let action = Action::of_cluster(cluster.clone(), &asked.http_method, &path, None)
                    .map_err(QuestionError::Path)?;
                Wanted::KubeApi(action.verb(), action.object().clone())
            }
            (resource, None, None, None) => {
                let text = resource.unwrap_or_default();
                let (resource, subresource) =
                    text.split_once('/').map_or((text.as_str(), None), |(one, two)| (one, Some(two)));
                let object = Object::Resource(Resource {
                    group: asked.api_group,
                    resource: resource.to_owned(),
                    subresource: subresource.map(str::to_owned),
                    namespace: asked.namespace,
                    name: None,
                });
                // clap requires --verb with --resource.
                let verb = asked.verb.unwrap_or(Verb::Get);
                if !verb.may_be_asked_of(&object) {
                    return Err(QuestionError::Impossible(verb, text));
                }
                Wanted::KubeApi(verb, object)
            }
        };
        let facts = ClusterFacts { labels: labels.into_iter().collect() };
        Ok(Self { method, user, groups, cluster, facts, wanted })
    }

    pub(super) fn decide<'a>(&self, rules: &'a Rules) -> Verdict<'a> {
        let who = Principal { method: &self.method, user: &self.user, groups: &self.groups };
        let decide = |request| rules.decide(who, &self.cluster, &self.facts, request);
        match &self.wanted {
            Wanted::KubeApi(verb, object) => decide(Request::KubeApi(*verb, object)),
            Wanted::Dial(target) => decide(Request::Dial(target)),
            Wanted::Identity(identity) => rules.decide_identity(who, &self.cluster, &self.facts, identity),
        }
    }

    /// The request as it was understood, in JSON.
    pub(super) fn asked(&self) -> Value {
        match &self.wanted {
            Wanted::KubeApi(verb, Object::Resource(asked)) => {
                let Resource { group, resource, subresource, namespace, name } = asked;
                json!({ "verb": verb.as_str(), "apiGroup": group, "resource": resource, "subresource": subresource,
                    "namespace": namespace, "name": name })
            }
            Wanted::KubeApi(verb, Object::Path(path)) => {
                json!({ "verb": verb.as_str(), "nonResourceURL": path })
            }
            Wanted::Dial(target) => json!({ "target": target.to_string() }),
            Wanted::Identity(Assert { user, groups }) => json!({ "as": { "user": user, "groups": groups } }),
        }
    }
}

/// `list pods in the namespace shop of the cluster edge-a`.
impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.wanted {
            Wanted::KubeApi(verb, object) => write!(f, "{verb} {object}")?,
            Wanted::Dial(target) => write!(f, "dial {target}")?,
            Wanted::Identity(Assert { user, groups }) => {
                write!(f, "act as the user {user:?} with the groups {groups:?}")?;
                return write!(f, " at the cluster {}", self.cluster);
            }
        }
        write!(f, " of the cluster {}", self.cluster)
    }
}

fn advice(verb: Verb) -> &'static str {
    if verb == Verb::Connect {
        "connect is for exec, attach, portforward, proxy and ephemeralcontainers"
    } else {
        "everything that reaches into a workload (exec, attach, portforward, proxy, ephemeralcontainers) is connect, and head, \
         post and put are for paths that are no resource"
    }
}
