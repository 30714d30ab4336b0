//! The list `clusters`: how the API servers of some clusters are asked, as the agent or with the caller's own credential,
//! and how long their answers may take.

use std::time::Duration;

use daemon::config::{KeyError, bounded};
use proto::deadlines::{ANSWER_LIMIT_MAX, API_SERVER_HEAD_MAX};
use proto::{AllowList, ClusterId};

use serde::Deserialize;

use super::value::NAMES_MAX;

/// The identity of requests at the API servers of the clusters that match a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterRules {
    /// The name of one cluster, or a pattern in which `*` stands for any text.
    pub pattern: String,
    /// The identity that a request has at the API server.
    pub asked_as: AskedAs,
    /// The longest time from the last byte of a request to the head of its answer; 75 s to an hour.
    pub request_timeout: Duration,
}

/// The identity that a request has at a cluster's API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskedAs {
    /// The agent's, which impersonates the caller if this list has it.
    Asserted(AllowList),
    /// The one that the caller's own credential for that cluster proves.
    PassedThrough,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawCluster {
    /// The name of one cluster. An entry has either `name` or `pattern`.
    name: Option<String>,
    /// A pattern of names, in which `*` matches any text.
    pattern: Option<String>,
    /// The identities that this server may assert there. The file of the agent has the last word.
    impersonation: Option<RawImpersonation>,
    /// Callers send that cluster's own token, and the server asserts nobody. It replaces `impersonation`.
    #[cfg_attr(test, schemars(extend("default" = false)))]
    pass_through: Option<bool>,
    /// Longest time from the end of a request to the head of its answer. A longer timeout of the request itself applies.
    #[cfg_attr(test, schemars(range(min = API_SERVER_HEAD_MAX.as_secs(), max = ANSWER_LIMIT_MAX.as_secs()), extend("default" = API_SERVER_HEAD_MAX.as_secs())))]
    request_timeout_seconds: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawImpersonation {
    /// Users that may be asserted: full names, or patterns in which `*` matches any text.
    #[cfg_attr(test, schemars(extend("default" = ["tombolo:*"]), length(min = 0, max = proto::allow_list::PATTERNS_MAX)))]
    users: Option<Vec<String>>,
    /// Groups that may be asserted, in the same form.
    #[cfg_attr(test, schemars(extend("default" = ["tombolo:*"]), length(min = 0, max = proto::allow_list::PATTERNS_MAX)))]
    groups: Option<Vec<String>>,
    /// Names of Kubernetes' own (system:, kubeadm:) that may be asserted, each in full. system:masters and system:nodes
    /// are never allowed.
    #[cfg_attr(test, schemars(extend("default" = []), length(min = 0, max = proto::allow_list::PATTERNS_MAX)))]
    system_names: Option<Vec<String>>,
}

/// The valid entries, in the order of the file.
pub(super) fn clusters(raw: Vec<RawCluster>) -> Result<Vec<ClusterRules>, KeyError> {
    bounded("clusters", raw.len(), 0..=NAMES_MAX)?;
    raw.into_iter().enumerate().map(|(index, entry)| rules(&format!("clusters[{index}]"), entry)).collect()
}

fn rules(at: &str, raw: RawCluster) -> Result<ClusterRules, KeyError> {
    let RawCluster { name, pattern, impersonation, pass_through, request_timeout_seconds } = raw;
    let pattern = match (name, pattern) {
        (Some(name), None) => {
            let refused = |_| {
                KeyError::new(format!("{at}.name"), &name, "the name of a cluster, or `pattern` for some")
            };
            name.parse::<ClusterId>().map_err(refused)?.to_string()
        }
        (None, Some(pattern)) => {
            let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-*".contains(&byte);
            if pattern.is_empty() || !pattern.bytes().all(fits) {
                let allowed = "names of clusters, in which '*' stands for any text";
                return Err(KeyError::new(format!("{at}.pattern"), format_args!("{pattern:?}"), allowed));
            }
            pattern
        }
        (Some(_), Some(_)) => return Err(KeyError::new(at, "name and pattern together", "one of them")),
        (None, None) => return Err(KeyError::new(at, "neither name nor pattern", "one of them")),
    };
    let request_timeout = request_timeout(at, request_timeout_seconds)?;
    if pass_through == Some(true) {
        if impersonation.is_some() {
            return Err(KeyError::new(at, "impersonation and passThrough together", "one of them"));
        }
        return Ok(ClusterRules { pattern, asked_as: AskedAs::PassedThrough, request_timeout });
    }
    let RawImpersonation { users, groups, system_names } = impersonation.unwrap_or_default();
    let impersonation = AllowList::new(users, groups, system_names).map_err(|error| {
        KeyError::new(format!("{at}.impersonation.{}", error.list), error.entry, error.allowed)
    })?;
    Ok(ClusterRules { pattern, asked_as: AskedAs::Asserted(impersonation), request_timeout })
}

/// A shorter time than the default would blame an API server for a caller that pauses.
fn request_timeout(at: &str, seconds: Option<u64>) -> Result<Duration, KeyError> {
    let default = API_SERVER_HEAD_MAX.as_secs();
    let allowed = default..=ANSWER_LIMIT_MAX.as_secs();
    let key = format!("{at}.requestTimeoutSeconds");
    Ok(Duration::from_secs(bounded(&key, seconds.unwrap_or(default), allowed)?))
}
