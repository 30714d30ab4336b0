//! Users and groups, in the form that a caller's certificate allows.

use std::fmt;
use std::str::FromStr;

use proto::name_text::is_readable;

/// The longest common name and organization name, in characters (X.520, `ub-common-name`, `ub-organization-name`).
const NAME_CHARACTERS_MAX: usize = 64;
/// Most groups of a caller; a larger certificate slows down every handshake.
pub const GROUPS_MAX: usize = 32;

/// A caller's user name: the common name of its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User(String);

/// A caller's group: one organization of its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group(String);

/// The reason why a text is not the name of a user or a group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAName {
    /// The text has no characters.
    #[error("the name is empty")]
    Empty,
    /// The text is longer than X.520 allows.
    #[error("the name is longer than {max} characters, the most that a certificate's subject may carry", max = NAME_CHARACTERS_MAX)]
    TooLong,
    /// The text has characters that nobody can see, so that it looks like another name.
    #[error("the name has a control or invisible character, or white space at an end")]
    Invisible,
    /// The name is reserved for Kubernetes itself.
    #[error(
        "names that begin with system: belong to Kubernetes itself and would carry its powers; choose another name and bind roles to it"
    )]
    System,
}

impl User {
    /// The text of the user name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for User {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Self, NotAName> {
        checked(text).map(Self)
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Group {
    /// The text of the group's name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Group {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Self, NotAName> {
        checked(text).map(Self)
    }
}

fn checked(text: &str) -> Result<String, NotAName> {
    if text.is_empty() {
        return Err(NotAName::Empty);
    }
    if text.chars().count() > NAME_CHARACTERS_MAX {
        return Err(NotAName::TooLong);
    }
    if !is_readable(text) {
        return Err(NotAName::Invisible);
    }
    if text.starts_with("system:") {
        return Err(NotAName::System);
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valid_name_is_kept_unchanged() {
        let longest = "ä".repeat(NAME_CHARACTERS_MAX);
        for text in ["olga", "Olga Ö.", "olga@example.org", "systematic", &longest] {
            let (user, group) = (text.parse::<User>().unwrap(), text.parse::<Group>().unwrap());
            assert_eq!((user.as_str(), group.as_str()), (text, text));
            assert_eq!(user.to_string(), text);
        }
    }

    #[test]
    fn invisible_and_reserved_names_are_refused() {
        for (text, error) in [
            ("", NotAName::Empty),
            (" ", NotAName::Invisible),
            (" olga", NotAName::Invisible),
            ("olga\u{a0}", NotAName::Invisible),
            ("ol\nga", NotAName::Invisible),
            ("ol\0ga", NotAName::Invisible),
            ("ol\u{200b}ga", NotAName::Invisible),
            ("\u{202e}aglo", NotAName::Invisible),
            ("olga\u{2060}", NotAName::Invisible),
            ("ol\u{ad}ga", NotAName::Invisible),
            ("system:masters", NotAName::System),
            ("system:", NotAName::System),
            (&"x".repeat(NAME_CHARACTERS_MAX + 1), NotAName::TooLong),
            (&"x".repeat(NAME_CHARACTERS_MAX + 2), NotAName::TooLong),
        ] {
            assert_eq!(text.parse::<User>(), Err(error.clone()), "{text:?}");
            assert_eq!(text.parse::<Group>(), Err(error), "{text:?}");
        }
    }
}
