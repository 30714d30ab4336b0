//! The allow-list of identities that may be asserted at a cluster's API server. Server and agent each keep
//! one.

use http::HeaderValue;

use crate::glob;
use crate::name_text::is_readable;
use crate::wire::Assert;

/// Longest name of a user or group, in bytes. Kubernetes knows no limit; a request's head does.
pub const NAME_BYTES_MAX: usize = 512;

/// Most groups that are asserted for one user.
pub const GROUPS_MAX: usize = 64;

/// Most names or patterns in one list.
pub const PATTERNS_MAX: usize = 256;

/// The pattern that applies where the configuration lists none.
const DEFAULT: &str = "tombolo:*";

/// Names that no rule of a cluster restrains: `system:masters` skips authorization, `system:nodes` is a
/// kubelet. Refused even if listed.
const NEVER: [&str; 2] = ["system:masters", "system:nodes"];

/// Prefixes of the names that Kubernetes and its installer reserve for themselves.
const KUBERNETES_PREFIXES: [&str; 2] = ["system:", "kubeadm:"];

/// Names that may be asserted, each list valid. The side that holds a list decides by it alone; no other side
/// can widen it.
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

/// Says whether a name is a user's or a group's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    /// The name of a user.
    User,
    /// The name of a group.
    Group,
}

/// The reason why an identity may not be asserted. The text names people: for DEBUG and for the caller only;
/// [`NotAssertable::reason`] does not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAssertable {
    /// An empty name. An empty `Impersonate-User` would run the request as the agent itself.
    #[error("an empty {0} name")]
    Empty(NameKind),
    /// A name longer than [`NAME_BYTES_MAX`].
    #[error("a {0} name of more than {NAME_BYTES_MAX} bytes")]
    TooLong(NameKind),
    /// An identity with more than [`GROUPS_MAX`] groups.
    #[error("more than {GROUPS_MAX} groups")]
    TooManyGroups,
    /// Control characters or blanks at an end, with which the name would arrive as another, or characters that nobody
    /// sees, with which it looks like another.
    #[error("the {0} name {1:?} has a control or invisible character, or white space at an end")]
    Unfit(NameKind, String),
    /// A name that is never asserted.
    #[error("the {0} {1} is never impersonated")]
    Never(NameKind, String),
    /// A name of Kubernetes itself that is not listed.
    #[error("the {0} {1} is not in impersonation.systemNames")]
    System(NameKind, String),
    /// A name that matches no pattern.
    #[error("the {0} {1:?} matches no pattern of impersonation.{0}s")]
    Unlisted(NameKind, String),
}

/// An entry of a configured list that is not allowed there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{list}: {entry} is not allowed, use {allowed}")]
pub struct AllowListError {
    /// The list that has it: `users`, `groups` or `systemNames`.
    pub list: &'static str,
    /// The entry, or what is wrong with all of them.
    pub entry: String,
    /// The values that are allowed instead.
    pub allowed: String,
}

impl AllowList {
    /// A list of patterns, in which `*` stands for any text, of names of users and of groups,
    /// [`tombolo:*`](Self::default) where there is none, and of names of Kubernetes' own, each in full, which
    /// no pattern matches.
    ///
    /// # Errors
    ///
    /// [`AllowListError`] for the first entry that is wrong.
    pub fn new(
        users: Option<Vec<String>>,
        groups: Option<Vec<String>>,
        system_names: Option<Vec<String>>,
    ) -> Result<Self, AllowListError> {
        let default = Self::default();
        let list = Self {
            users: users.unwrap_or(default.users),
            groups: groups.unwrap_or(default.groups),
            system_names: system_names.unwrap_or_default(),
        };
        for (name, patterns) in [("users", &list.users), ("groups", &list.groups)] {
            check_entries(name, patterns)?;
            if let Some(system) = patterns.iter().find(|pattern| is_kubernetes_name(pattern)) {
                let allowed = "impersonation.systemNames for a name of Kubernetes itself";
                return Err(invalid_entry(name, system, allowed));
            }
        }
        let name = "systemNames";
        check_entries(name, &list.system_names)?;
        for entry in &list.system_names {
            if !is_kubernetes_name(entry) || entry.contains('*') {
                return Err(invalid_entry(
                    name,
                    entry,
                    "names that begin with system: or kubeadm:, each in full",
                ));
            }
            if NEVER.contains(&entry.as_str()) {
                return Err(invalid_entry(
                    name,
                    entry,
                    "any other name; this one is above every rule of the cluster",
                ));
            }
        }
        Ok(list)
    }

    /// Checks whether `identity` may be asserted.
    ///
    /// # Errors
    ///
    /// [`NotAssertable`] for the first name that is not allowed. One group that is not allowed refuses the whole
    /// identity, since an identity with a part left out is another identity.
    pub fn check(&self, identity: &Assert) -> Result<Assertable, NotAssertable> {
        let user = self.check_name(NameKind::User, &identity.user)?;
        if identity.groups.len() > GROUPS_MAX {
            return Err(NotAssertable::TooManyGroups);
        }
        let groups = identity
            .groups
            .iter()
            .map(|group| self.check_name(NameKind::Group, group))
            .collect::<Result<_, _>>()?;
        Ok(Assertable { user, groups })
    }

    /// The configured patterns of users' names.
    #[must_use]
    pub fn users(&self) -> &[String] {
        &self.users
    }

    /// The configured patterns of groups' names.
    #[must_use]
    pub fn groups(&self) -> &[String] {
        &self.groups
    }

    /// Names of Kubernetes' own, each in full, for users and groups alike.
    #[must_use]
    pub fn system_names(&self) -> &[String] {
        &self.system_names
    }

    fn check_name(&self, kind: NameKind, name: &str) -> Result<HeaderValue, NotAssertable> {
        let value = header_value(kind, name)?;
        if NEVER.contains(&name) {
            return Err(NotAssertable::Never(kind, name.to_owned()));
        }
        if is_kubernetes_name(name) {
            let named = self.system_names.iter().any(|allowed| allowed == name);
            return if named { Ok(value) } else { Err(NotAssertable::System(kind, name.to_owned())) };
        }
        let patterns = match kind {
            NameKind::User => &self.users,
            NameKind::Group => &self.groups,
        };
        if patterns.iter().any(|pattern| glob::matches(pattern, name)) {
            return Ok(value);
        }
        Err(NotAssertable::Unlisted(kind, name.to_owned()))
    }
}

impl Default for AllowList {
    /// Names under `tombolo:`, and no others.
    fn default() -> Self {
        Self { users: vec![DEFAULT.to_owned()], groups: vec![DEFAULT.to_owned()], system_names: Vec::new() }
    }
}

impl Assertable {
    /// The value of the header `Impersonate-User`.
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

impl std::fmt::Display for NameKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::Group => "group",
        })
    }
}

/// Returns true if a name is one of those that Kubernetes keeps for itself.
fn is_kubernetes_name(name: &str) -> bool {
    KUBERNETES_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The name as a header's value. Kubernetes reads the bytes as they are, without decoding, so that UTF-8
/// passes.
fn header_value(kind: NameKind, name: &str) -> Result<HeaderValue, NotAssertable> {
    if name.is_empty() {
        return Err(NotAssertable::Empty(kind));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(NotAssertable::TooLong(kind));
    }
    let unfit = || NotAssertable::Unfit(kind, name.to_owned());
    if !is_readable(name) {
        return Err(unfit());
    }
    HeaderValue::from_bytes(name.as_bytes()).map_err(|_| unfit())
}

fn check_entries(list: &'static str, entries: &[String]) -> Result<(), AllowListError> {
    if entries.iter().any(String::is_empty) {
        return Err(invalid_entry(list, "an empty name", "names or patterns such as dev:*"));
    }
    if let Some(unreadable) = entries.iter().find(|entry| !is_readable(entry)) {
        let allowed = "names without control or invisible characters, and without white space at an end";
        return Err(invalid_entry(list, &format!("{unreadable:?}"), allowed));
    }
    if entries.len() > PATTERNS_MAX {
        let count = format!("a list of {}", entries.len());
        return Err(invalid_entry(list, &count, &format!("at most {PATTERNS_MAX} entries")));
    }
    Ok(())
}

fn invalid_entry(list: &'static str, entry: &str, allowed: &str) -> AllowListError {
    AllowListError { list, entry: entry.to_owned(), allowed: allowed.to_owned() }
}

#[cfg(test)]
mod tests;
