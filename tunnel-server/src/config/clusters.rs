//! What holds for some clusters.

use daemon::config::{KeyError, bounded};
use proto::{AllowList, ClusterId};

use super::written;
use super::{AskedAs, ClusterRules, NAMES_MAX};

/// Each entry, in the order in which they were written.
pub(super) fn clusters(written: Vec<written::Cluster>) -> Result<Vec<ClusterRules>, KeyError> {
    bounded("clusters", written.len(), 0..=NAMES_MAX)?;
    written
        .into_iter()
        .enumerate()
        .map(|(index, entry)| rules(&format!("clusters[{index}]"), entry))
        .collect()
}

fn rules(at: &str, written: written::Cluster) -> Result<ClusterRules, KeyError> {
    let written::Cluster { name, pattern, impersonation, pass_through } = written;
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
    if pass_through == Some(true) {
        if impersonation.is_some() {
            return Err(KeyError::new(at, "impersonation and passThrough together", "one of them"));
        }
        return Ok(ClusterRules { pattern, asked_as: AskedAs::PassedThrough });
    }
    let written::Impersonation { users, groups, system_names } = impersonation.unwrap_or_default();
    let impersonation = AllowList::new(users, groups, system_names).map_err(|fault| {
        KeyError::new(format!("{at}.impersonation.{}", fault.list), fault.entry, fault.allowed)
    })?;
    Ok(ClusterRules { pattern, asked_as: AskedAs::Asserted(impersonation) })
}
