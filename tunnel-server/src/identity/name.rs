//! Names of users and groups that can be impersonated at an API server.

use proto::name_text::is_readable;

/// Longest name, with its prefix, in bytes.
pub const NAME_BYTES_MAX: usize = 256;

/// Most groups of one caller.
pub const GROUPS_MAX: usize = 64;

/// The beginning of names that have a meaning to Kubernetes itself.
const SYSTEM: &str = "system:";

/// The beginning of the user names of ServiceAccounts.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The prefixes of a method's names, so that names of two methods never collide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefixes {
    /// The prefix of user names.
    pub username: String,
    /// The prefix of group names.
    pub groups: String,
}

/// The reason why a name is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name has no character.
    #[error("a name is empty")]
    Empty,
    /// It is longer than [`NAME_BYTES_MAX`].
    #[error("a name is longer than {max} bytes", max = NAME_BYTES_MAX)]
    TooLong,
    /// In a header it would be another name, or two lines, or it looks like another name.
    #[error("a name has a control or invisible character, or white space at an end")]
    Invisible,
    /// It is reserved for Kubernetes itself.
    #[error("a name begins with system:, which belongs to Kubernetes itself; choose another name")]
    System,
    /// It has the prefix of another method of authentication.
    #[error("a name begins with the prefix of another method of authentication; choose another name")]
    OthersPrefix,
    /// There are more than [`GROUPS_MAX`].
    #[error("there are more than {max} groups", max = GROUPS_MAX)]
    TooManyGroups,
}

impl Prefixes {
    /// The user and the groups with their prefixes.
    pub(super) fn apply(&self, user: &str, groups: &[&str]) -> Result<(String, Vec<String>), NameError> {
        if groups.len() > GROUPS_MAX {
            return Err(NameError::TooManyGroups);
        }
        let user = named(&self.username, user)?;
        Ok((user, groups.iter().map(|group| named(&self.groups, group)).collect::<Result<_, _>>()?))
    }

    /// Applies the prefixes to a user of another cluster. That cluster's own groups mean nothing here and are
    /// left out, and of its own users only ServiceAccounts are accepted.
    pub(super) fn apply_reviewed(
        &self,
        user: &str,
        groups: &[&str],
    ) -> Result<(String, Vec<String>), NameError> {
        let groups: Vec<&str> = groups.iter().copied().filter(|group| !group.starts_with(SYSTEM)).collect();
        match user.strip_prefix(SERVICE_ACCOUNT).filter(|_| !self.username.is_empty()) {
            Some(account) => {
                let username = format!("{}{SERVICE_ACCOUNT}", self.username);
                Self { username, groups: self.groups.clone() }.apply(account, &groups)
            }
            None => self.apply(user, &groups),
        }
    }

    /// Refuses names, to which `self` was applied, that have the prefixes `others` of another method. The
    /// longest prefix that fits decides to which method a name belongs.
    pub(super) fn check_no_overlap(
        &self,
        others: &Self,
        user: &str,
        groups: &[String],
    ) -> Result<(), NameError> {
        let overlaps =
            |own: &str, other: &str, name: &str| other.len() > own.len() && name.starts_with(other);
        let by_group = |group: &String| overlaps(&self.groups, &others.groups, group);
        if overlaps(&self.username, &others.username, user) || groups.iter().any(by_group) {
            return Err(NameError::OthersPrefix);
        }
        Ok(())
    }
}

/// Checks that a user can have this complete name.
///
/// # Errors
///
/// [`NameError`].
pub fn is_name(name: &str) -> Result<(), NameError> {
    named("", name).map(drop)
}

/// The prefix with the name. Neither the name nor both together may be reserved for Kubernetes.
fn named(prefix: &str, name: &str) -> Result<String, NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    let full = format!("{prefix}{name}");
    if full.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong);
    }
    if !is_readable(&full) || !is_readable(name) {
        return Err(NameError::Invisible);
    }
    if name.starts_with(SYSTEM) || full.starts_with(SYSTEM) {
        return Err(NameError::System);
    }
    Ok(full)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCOUNT: &str = "system:serviceaccount:shop:cart";

    #[test]
    fn of_another_clusters_own_users_only_service_accounts_are_accepted() {
        let prefixes = Prefixes { username: "edge-a:".to_owned(), groups: "of-edge-a:".to_owned() };

        let account =
            prefixes.apply_reviewed(ACCOUNT, &["system:serviceaccounts", "system:authenticated", "ops"]);
        assert_eq!(account, Ok((format!("edge-a:{ACCOUNT}"), vec!["of-edge-a:ops".to_owned()])));
        let person = prefixes.apply_reviewed("ann", &["system:masters"]);
        assert_eq!(person, Ok(("edge-a:ann".to_owned(), vec![])));
        for (user, fault) in [
            ("system:admin", NameError::System),
            ("system:node:n1", NameError::System),
            ("system:serviceaccount", NameError::System),
            ("system:serviceaccount:system:masters", NameError::System),
            (SERVICE_ACCOUNT, NameError::Empty),
            ("", NameError::Empty),
        ] {
            assert_eq!(prefixes.apply_reviewed(user, &[]), Err(fault), "{user}");
        }
    }

    #[test]
    fn a_reviewed_service_account_without_a_prefix_is_refused() {
        let prefixes = Prefixes { username: String::new(), groups: "of-edge-a:".to_owned() };
        assert_eq!(prefixes.apply_reviewed(ACCOUNT, &[]), Err(NameError::System));
    }

    #[test]
    fn a_full_name_follows_the_same_rules_as_one_without_a_prefix() {
        assert_eq!(is_name("token:ann"), Ok(()));
        let too_long = "x".repeat(NAME_BYTES_MAX + 1);
        for (name, fault) in [
            ("", NameError::Empty),
            (ACCOUNT, NameError::System),
            ("ann\n", NameError::Invisible),
            ("an\u{200b}n", NameError::Invisible),
            ("\u{202e}nna", NameError::Invisible),
            (too_long.as_str(), NameError::TooLong),
        ] {
            assert_eq!(is_name(name), Err(fault), "{name:?}");
        }
    }
}
