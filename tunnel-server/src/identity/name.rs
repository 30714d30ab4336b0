//! Names of users and groups, fit to be asserted at an API server.

/// Longest name, with its prefix, in bytes.
pub const NAME_BYTES_MAX: usize = 256;

/// Most groups of one caller.
pub const GROUPS_MAX: usize = 64;

/// What every name that begins with it means to Kubernetes itself.
const SYSTEM: &str = "system:";

/// How Kubernetes names the ServiceAccounts among its own users.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// What a method of authentication puts in front of its names, so that no two methods speak of the same person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefixes {
    /// In front of user names.
    pub username: String,
    /// In front of group names.
    pub groups: String,
}

/// Why a name is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// Nobody.
    #[error("a name is empty")]
    Empty,
    /// Longer than [`NAME_BYTES_MAX`].
    #[error("a name is longer than {max} bytes", max = NAME_BYTES_MAX)]
    TooLong,
    /// It would be another name, or two lines, in a header.
    #[error("a name has a control character, or white space at an end")]
    Invisible,
    /// Kubernetes' own.
    #[error("a name begins with system:, which belongs to Kubernetes itself; choose another name")]
    System,
    /// It would look like a name of the other method of authentication.
    #[error("a name begins with the prefix of another method of authentication; choose another name")]
    OthersPrefix,
    /// More than [`GROUPS_MAX`].
    #[error("there are more than {max} groups", max = GROUPS_MAX)]
    TooManyGroups,
}

impl Prefixes {
    /// The user and the groups with their prefixes.
    pub(super) fn apply(&self, user: &str, groups: &[&str]) -> Result<(String, Vec<String>), NameFault> {
        if groups.len() > GROUPS_MAX {
            return Err(NameFault::TooManyGroups);
        }
        let user = named(&self.username, user)?;
        Ok((user, groups.iter().map(|group| named(&self.groups, group)).collect::<Result<_, _>>()?))
    }

    /// The same for what another cluster's API server says: its own groups mean nothing here and are left out, and of its own
    /// users only ServiceAccounts are taken.
    pub(super) fn apply_reviewed(
        &self,
        user: &str,
        groups: &[&str],
    ) -> Result<(String, Vec<String>), NameFault> {
        let groups: Vec<&str> = groups.iter().copied().filter(|group| !group.starts_with(SYSTEM)).collect();
        match user.strip_prefix(SERVICE_ACCOUNT).filter(|_| !self.username.is_empty()) {
            Some(account) => {
                let username = format!("{}{SERVICE_ACCOUNT}", self.username);
                Self { username, groups: self.groups.clone() }.apply(account, &groups)
            }
            None => self.apply(user, &groups),
        }
    }

    /// Refuses names, to which `self` was applied, that look like those of the method with the prefixes `others`: the
    /// longest prefix that fits says whose a name is.
    pub(super) fn do_not_trespass(
        &self,
        others: &Self,
        user: &str,
        groups: &[String],
    ) -> Result<(), NameFault> {
        let trespasses =
            |own: &str, other: &str, name: &str| other.len() > own.len() && name.starts_with(other);
        let by_group = |group: &String| trespasses(&self.groups, &others.groups, group);
        if trespasses(&self.username, &others.username, user) || groups.iter().any(by_group) {
            return Err(NameFault::OthersPrefix);
        }
        Ok(())
    }
}

/// Whether a user could have this whole name.
///
/// # Errors
///
/// [`NameFault`].
pub fn is_name(name: &str) -> Result<(), NameFault> {
    named("", name).map(drop)
}

/// `name` behind `prefix`; neither the one nor both together may be a name of Kubernetes' own.
fn named(prefix: &str, name: &str) -> Result<String, NameFault> {
    if name.is_empty() {
        return Err(NameFault::Empty);
    }
    let whole = format!("{prefix}{name}");
    if whole.len() > NAME_BYTES_MAX {
        return Err(NameFault::TooLong);
    }
    if whole.chars().any(char::is_control) || whole.trim() != whole || name.trim() != name {
        return Err(NameFault::Invisible);
    }
    if name.starts_with(SYSTEM) || whole.starts_with(SYSTEM) {
        return Err(NameFault::System);
    }
    Ok(whole)
}
