//! Which identities may be asserted at a cluster's API server: what server and agent each keep a list of.

use http::HeaderValue;

use crate::glob;
use crate::wire::Assert;

/// Longest name of a user or group, in bytes. Kubernetes knows no limit; a request's head does.
pub const NAME_BYTES_MAX: usize = 512;

/// Most groups that are asserted for one user.
pub const GROUPS_MAX: usize = 64;

/// Most names or patterns in one list.
pub const PATTERNS_MAX: usize = 256;

/// What may be asserted where nothing is said.
const DEFAULT: &str = "tombolo:*";

/// Names above every rule of a cluster: `system:masters` skips authorization, `system:nodes` is a kubelet. Refused even
/// if listed.
const NEVER: [&str; 2] = ["system:masters", "system:nodes"];

/// How names begin that Kubernetes and its installer keep for themselves.
const OF_KUBERNETES: [&str; 2] = ["system:", "kubeadm:"];

/// Names that may be asserted, each list valid. Whoever has one decides by it alone; nobody else can widen it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowList {
    users: Vec<String>,
    groups: Vec<String>,
    system_names: Vec<String>,
}

/// Proof that an identity may be asserted, ready to be rendered. Only [`AllowList::check`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assertable {
    user: HeaderValue,
    groups: Vec<HeaderValue>,
}

/// Whether a name is a user's or a group's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// A user.
    User,
    /// A group.
    Group,
}

/// Why an identity may not be asserted. The text names people: for DEBUG and for the caller only;
/// [`NotAssertable::reason`] does not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAssertable {
    /// A name of no length. An empty `Impersonate-User` would leave the request to the agent itself.
    #[error("an empty {0} name")]
    Empty(Sort),
    /// Longer than [`NAME_BYTES_MAX`].
    #[error("a {0} name of more than {NAME_BYTES_MAX} bytes")]
    TooLong(Sort),
    /// More than [`GROUPS_MAX`].
    #[error("more than {GROUPS_MAX} groups")]
    TooManyGroups,
    /// Control characters, or blanks at an end, which HTTP takes off: the name would arrive as another.
    #[error("the {0} name {1:?} cannot stand in a header unchanged")]
    Unfit(Sort, String),
    /// A name that is never asserted.
    #[error("the {0} {1} is never asserted")]
    Never(Sort, String),
    /// A name of Kubernetes itself that is not listed.
    #[error("the {0} {1} is not in impersonation.systemNames")]
    System(Sort, String),
    /// No pattern matches.
    #[error("the {0} {1:?} matches no pattern of impersonation.{0}s")]
    Unlisted(Sort, String),
}

/// What is wrong in a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{list}: {entry} is not allowed, use {allowed}")]
pub struct AllowListFault {
    /// Which one: `users`, `groups` or `systemNames`.
    pub list: &'static str,
    /// The entry, or what is wrong with all of them.
    pub entry: String,
    /// What may stand there.
    pub allowed: String,
}

impl AllowList {
    /// A list of patterns, in which `*` stands for any text, of names of users and of groups, [`tombolo:*`](Self::default)
    /// where there is none, and of names of Kubernetes' own, each in full, which no pattern matches.
    ///
    /// # Errors
    ///
    /// [`AllowListFault`] for the first entry that is wrong.
    pub fn new(
        users: Option<Vec<String>>,
        groups: Option<Vec<String>>,
        system_names: Option<Vec<String>>,
    ) -> Result<Self, AllowListFault> {
        let default = Self::default();
        let list = Self {
            users: users.unwrap_or(default.users),
            groups: groups.unwrap_or(default.groups),
            system_names: system_names.unwrap_or_default(),
        };
        for (name, patterns) in [("users", &list.users), ("groups", &list.groups)] {
            fits(name, patterns)?;
            if let Some(system) = patterns.iter().find(|pattern| is_of_kubernetes(pattern)) {
                let allowed = "impersonation.systemNames for a name of Kubernetes itself";
                return Err(fault(name, system, allowed));
            }
        }
        let name = "systemNames";
        fits(name, &list.system_names)?;
        for entry in &list.system_names {
            if !is_of_kubernetes(entry) || entry.contains('*') {
                return Err(fault(name, entry, "names that begin with system: or kubeadm:, each in full"));
            }
            if NEVER.contains(&entry.as_str()) {
                return Err(fault(
                    name,
                    entry,
                    "any other name; this one is above every rule of the cluster",
                ));
            }
        }
        Ok(list)
    }

    /// Whether `identity` may be asserted.
    ///
    /// # Errors
    ///
    /// [`NotAssertable`]: the first thing that is wrong. One group that is not allowed refuses the whole identity, since
    /// an identity with a part left out is another identity.
    pub fn check(&self, identity: &Assert) -> Result<Assertable, NotAssertable> {
        let user = self.name(Sort::User, &identity.user)?;
        if identity.groups.len() > GROUPS_MAX {
            return Err(NotAssertable::TooManyGroups);
        }
        let groups =
            identity.groups.iter().map(|group| self.name(Sort::Group, group)).collect::<Result<_, _>>()?;
        Ok(Assertable { user, groups })
    }

    /// Patterns of users' names.
    #[must_use]
    pub fn users(&self) -> &[String] {
        &self.users
    }

    /// Patterns of groups' names.
    #[must_use]
    pub fn groups(&self) -> &[String] {
        &self.groups
    }

    /// Names of Kubernetes' own, each in full, for users and groups alike.
    #[must_use]
    pub fn system_names(&self) -> &[String] {
        &self.system_names
    }

    fn name(&self, sort: Sort, name: &str) -> Result<HeaderValue, NotAssertable> {
        let value = rendered(sort, name)?;
        if NEVER.contains(&name) {
            return Err(NotAssertable::Never(sort, name.to_owned()));
        }
        if is_of_kubernetes(name) {
            let named = self.system_names.iter().any(|allowed| allowed == name);
            return if named { Ok(value) } else { Err(NotAssertable::System(sort, name.to_owned())) };
        }
        let patterns = match sort {
            Sort::User => &self.users,
            Sort::Group => &self.groups,
        };
        if patterns.iter().any(|pattern| glob::matches(pattern, name)) {
            return Ok(value);
        }
        Err(NotAssertable::Unlisted(sort, name.to_owned()))
    }
}

impl Default for AllowList {
    /// Names under `tombolo:`, and no others.
    fn default() -> Self {
        Self { users: vec![DEFAULT.to_owned()], groups: vec![DEFAULT.to_owned()], system_names: Vec::new() }
    }
}

impl Assertable {
    /// The value of `Impersonate-User`.
    #[must_use]
    pub fn user(&self) -> &HeaderValue {
        &self.user
    }

    /// The values of `Impersonate-Group`, one header each.
    #[must_use]
    pub fn groups(&self) -> &[HeaderValue] {
        &self.groups
    }
}

impl NotAssertable {
    /// A label for logs and metrics that names nobody.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Empty(_) => "empty",
            Self::TooLong(_) => "too_long",
            Self::TooManyGroups => "too_many_groups",
            Self::Unfit(..) => "unfit",
            Self::Never(..) => "never",
            Self::System(..) => "system",
            Self::Unlisted(..) => "unlisted",
        }
    }
}

impl std::fmt::Display for Sort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::Group => "group",
        })
    }
}

/// Whether a name is one of those that Kubernetes keeps for itself.
fn is_of_kubernetes(name: &str) -> bool {
    OF_KUBERNETES.iter().any(|prefix| name.starts_with(prefix))
}

/// The name as a header's value. Kubernetes reads the bytes as they are, without decoding, so that UTF-8 passes.
fn rendered(sort: Sort, name: &str) -> Result<HeaderValue, NotAssertable> {
    if name.is_empty() {
        return Err(NotAssertable::Empty(sort));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(NotAssertable::TooLong(sort));
    }
    let unfit = || NotAssertable::Unfit(sort, name.to_owned());
    if name.chars().any(char::is_control) || name.trim() != name {
        return Err(unfit());
    }
    HeaderValue::from_bytes(name.as_bytes()).map_err(|_| unfit())
}

fn fits(list: &'static str, entries: &[String]) -> Result<(), AllowListFault> {
    if entries.iter().any(String::is_empty) {
        return Err(fault(list, "an empty name", "names or patterns such as dev:*"));
    }
    if entries.len() > PATTERNS_MAX {
        let count = format!("a list of {}", entries.len());
        return Err(fault(list, &count, &format!("at most {PATTERNS_MAX} entries")));
    }
    Ok(())
}

fn fault(list: &'static str, entry: &str, allowed: &str) -> AllowListFault {
    AllowListFault { list, entry: entry.to_owned(), allowed: allowed.to_owned() }
}

#[cfg(test)]
mod tests;
