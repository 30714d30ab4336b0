//! Identities that callers may impersonate at a cluster, as with `kubectl --as`.

use proto::allow_list::NameKind;
use proto::glob;
use proto::name_text::is_readable;

use crate::document::{self, List};
use crate::error::{DocumentError, FieldPath};
use crate::rules::choice::Choice;
use crate::rules::lists::choice;

/// One entry: these users, and these groups.
#[derive(Debug, Clone)]
pub(in crate::rules) struct Identities {
    /// Names in which `*` stands for any text.
    users: Option<Choice<String>>,
    groups: Option<Choice<String>>,
}

impl Identities {
    pub(super) fn contain(&self, sort: NameKind, name: &str) -> bool {
        let names = match sort {
            NameKind::User => &self.users,
            NameKind::Group => &self.groups,
        };
        names.as_ref().is_some_and(|names| names.has(|pattern| glob::matches(pattern, name)))
    }

    pub(super) fn validate(at: &FieldPath, raw: &document::RawIdentities) -> Result<Self, DocumentError> {
        let document::RawIdentities { users, groups } = raw;
        if users.is_none() && groups.is_none() {
            return Err(at.invalid("nothing", "users, groups or both"));
        }
        let names = |key, names: &Option<List>| {
            names.as_ref().map(|names| choice(&at.child(key, names), names, pattern)).transpose()
        };
        Ok(Self { users: names("users", users)?, groups: names("groups", groups)? })
    }
}

fn pattern(text: &str) -> Result<String, &'static str> {
    if !text.is_empty() && is_readable(text) {
        return Ok(text.to_owned());
    }
    Err(
        "names without control or invisible characters and without white space at an end, in which '*' stands for any text",
    )
}
