//! Which identities this agent asserts at its API server, whatever the server asks for.

use http::HeaderValue;
use proto::wire::Assert;

use crate::config::Impersonation;

/// Longest name of a user or group, in bytes. Kubernetes knows no limit; a request's head does.
pub const NAME_BYTES_MAX: usize = 512;

/// Most groups that are asserted for one user.
pub const GROUPS_MAX: usize = 64;

/// Names above every rule of a cluster: `system:masters` skips authorization, `system:nodes` is a kubelet. Refused even
/// if configured.
const NEVER: [&str; 2] = ["system:masters", "system:nodes"];

/// What Kubernetes keeps for itself.
const SYSTEM_PREFIX: &str = "system:";

/// The agent's own allow-list, from its own file; the server cannot widen it.
#[derive(Debug, Clone)]
pub struct Guard {
    users: Vec<Pattern>,
    groups: Vec<Pattern>,
    system_names: Vec<String>,
}

/// Proof that an identity may be asserted, ready to be rendered. Only [`Guard::check`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assertable {
    user: HeaderValue,
    groups: Vec<HeaderValue>,
}

/// Whether a name is a user's or a group's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A user.
    User,
    /// A group.
    Group,
}

/// Why an identity may not be asserted. The text names people: for DEBUG only; [`GuardRefusal::reason`] does not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GuardRefusal {
    /// A name of no length. An empty `Impersonate-User` would leave the request to the agent itself.
    #[error("an empty {0} name")]
    Empty(Role),
    /// Longer than [`NAME_BYTES_MAX`].
    #[error("a {0} name of more than {NAME_BYTES_MAX} bytes")]
    TooLong(Role),
    /// More than [`GROUPS_MAX`].
    #[error("more than {GROUPS_MAX} groups")]
    TooManyGroups,
    /// Control characters, or blanks at an end, which HTTP takes off: the name would arrive as another.
    #[error("the {0} name {1:?} cannot stand in a header unchanged")]
    Unfit(Role, String),
    /// A name that is never asserted.
    #[error("the {0} {1} is never asserted")]
    Never(Role, String),
    /// A name of Kubernetes itself that is not configured.
    #[error("the {0} {1} is not in impersonation.systemNames")]
    System(Role, String),
    /// No pattern of the configuration matches.
    #[error("the {0} {1:?} matches no pattern of impersonation.{0}s")]
    Unlisted(Role, String),
}

impl Guard {
    /// A guard over a valid configuration.
    #[must_use]
    pub fn new(rules: &Impersonation) -> Self {
        let patterns = |texts: &[String]| texts.iter().map(|text| Pattern::new(text)).collect();
        Self {
            users: patterns(&rules.users),
            groups: patterns(&rules.groups),
            system_names: rules.system_names.clone(),
        }
    }

    /// Whether `identity` may be asserted.
    ///
    /// # Errors
    ///
    /// [`GuardRefusal`]: the first thing that is wrong. One group that is not allowed refuses the whole identity, since
    /// an identity with a part left out is another identity.
    pub fn check(&self, identity: &Assert) -> Result<Assertable, GuardRefusal> {
        let user = self.name(Role::User, &identity.user)?;
        if identity.groups.len() > GROUPS_MAX {
            return Err(GuardRefusal::TooManyGroups);
        }
        let groups =
            identity.groups.iter().map(|group| self.name(Role::Group, group)).collect::<Result<_, _>>()?;
        Ok(Assertable { user, groups })
    }

    fn name(&self, role: Role, name: &str) -> Result<HeaderValue, GuardRefusal> {
        let value = rendered(role, name)?;
        if NEVER.contains(&name) {
            return Err(GuardRefusal::Never(role, name.to_owned()));
        }
        if name.starts_with(SYSTEM_PREFIX) {
            let named = self.system_names.iter().any(|allowed| allowed == name);
            return if named { Ok(value) } else { Err(GuardRefusal::System(role, name.to_owned())) };
        }
        let patterns = match role {
            Role::User => &self.users,
            Role::Group => &self.groups,
        };
        if patterns.iter().any(|pattern| pattern.matches(name)) {
            return Ok(value);
        }
        Err(GuardRefusal::Unlisted(role, name.to_owned()))
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

impl GuardRefusal {
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

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::Group => "group",
        })
    }
}

/// The name as a header's value. Kubernetes reads the bytes as they are, without decoding, so that UTF-8 passes.
fn rendered(role: Role, name: &str) -> Result<HeaderValue, GuardRefusal> {
    if name.is_empty() {
        return Err(GuardRefusal::Empty(role));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(GuardRefusal::TooLong(role));
    }
    let unfit = || GuardRefusal::Unfit(role, name.to_owned());
    if name.chars().any(char::is_control) || name.trim() != name {
        return Err(unfit());
    }
    HeaderValue::from_bytes(name.as_bytes()).map_err(|_| unfit())
}

/// A text in which `*` stands for any text, the empty one too.
#[derive(Debug, Clone)]
struct Pattern {
    /// The pieces between the stars: n stars make n + 1 pieces.
    pieces: Vec<String>,
}

impl Pattern {
    fn new(text: &str) -> Self {
        Self { pieces: text.split('*').map(str::to_owned).collect() }
    }

    fn matches(&self, name: &str) -> bool {
        let [first, middle @ .., last] = self.pieces.as_slice() else {
            return self.pieces.first().is_some_and(|whole| whole == name);
        };
        let Some(mut rest) = name.strip_prefix(first.as_str()) else {
            return false;
        };
        for piece in middle {
            // The earliest place leaves the most to match for what follows.
            let Some(at) = rest.find(piece.as_str()) else {
                return false;
            };
            rest = &rest[at + piece.len()..];
        }
        rest.ends_with(last.as_str())
    }
}

#[cfg(test)]
mod tests;
