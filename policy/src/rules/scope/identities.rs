//! Identities that callers assume at a cluster: what `kubectl --as` asks for.

use proto::allow_list::Sort;
use proto::glob;

use crate::document::{self, List};
use crate::fault::{At, PolicyFault};
use crate::rules::choice::Choice;
use crate::rules::lists::choice;

/// One entry: these users, and these groups. A part of an identity is one or the other.
#[derive(Debug, Clone)]
pub(in crate::rules) struct Identities {
    /// Names in which `*` stands for any text.
    users: Option<Choice<String>>,
    groups: Option<Choice<String>>,
}

impl Identities {
    pub(super) fn cover(&self, sort: Sort, name: &str) -> bool {
        let names = match sort {
            Sort::User => &self.users,
            Sort::Group => &self.groups,
        };
        names.as_ref().is_some_and(|names| names.has(|pattern| glob::matches(pattern, name)))
    }

    pub(super) fn of(at: &At, written: &document::Identities) -> Result<Self, PolicyFault> {
        let document::Identities { users, groups } = written;
        if users.is_none() && groups.is_none() {
            return Err(at.fault("nothing", "users, groups or both"));
        }
        let names = |key, names: &Option<List>| {
            names.as_ref().map(|names| choice(&at.below(key, names), names, pattern)).transpose()
        };
        Ok(Self { users: names("users", users)?, groups: names("groups", groups)? })
    }
}

fn pattern(text: &str) -> Result<String, &'static str> {
    if !text.is_empty() && text.trim() == text && !text.chars().any(char::is_control) {
        return Ok(text.to_owned());
    }
    Err(
        "names without control characters and without white space at an end, in which '*' stands for any text",
    )
}
