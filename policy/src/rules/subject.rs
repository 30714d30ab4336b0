//! The subjects that a rule applies to.

use proto::name_text::is_readable;

use super::choice::ANY;
use super::effect::Effect;
use super::request::Principal;
use crate::document;
use crate::error::{DocumentError, FieldPath};
use crate::method;

/// One subject of a rule.
#[derive(Debug, Clone)]
pub(super) enum Subject {
    /// Every caller of every method. An allowing rule does not cover entry points, which must be named; a
    /// denying rule does.
    Everybody,
    /// Every caller of this method.
    Users(String),
    /// The user with this name, of this method.
    User(String, String),
    /// Callers of this method who are in this group.
    Group(String, String),
}

impl Subject {
    /// Returns true if a rule of this effect applies to `principal`.
    pub(super) fn matches(&self, principal: Principal<'_>, effect: Effect) -> bool {
        match self {
            Self::Everybody => effect == Effect::Deny || !method::is_entry_point(principal.method),
            Self::Users(method) => method == principal.method,
            Self::User(method, user) => method == principal.method && user == principal.user,
            Self::Group(method, group) => method == principal.method && principal.groups.contains(group),
        }
    }

    pub(super) fn validate(at: &FieldPath, raw: &document::RawSubject) -> Result<Self, DocumentError> {
        let document::RawSubject { method: raw_method, user, group } = raw;
        let raw_method = raw_method.as_ref().ok_or_else(|| at.required("method", method::ALLOWED))?;
        let at_method = at.child("method", raw_method);
        let method = raw_method.value.clone();
        if method != ANY
            && let Err(error) = method::parse_method(&method)
        {
            return Err(at_method.invalid(format_args!("{method:?}"), error.allowed()));
        }
        match (user, group) {
            (Some(user), None) if user.value == ANY && method == ANY => Ok(Self::Everybody),
            (Some(_), None) | (None, Some(_)) if method == ANY => {
                let allowed = "a method; '*' goes with `user: \"*\"` alone, since a name is its method's";
                Err(at_method.invalid("\"*\"", allowed))
            }
            (Some(user), None) if user.value == ANY => Ok(Self::Users(method)),
            (Some(user), None) => Ok(Self::User(method, name(&at.child("user", user), &user.value)?)),
            (None, Some(group)) => Ok(Self::Group(method, name(&at.child("group", group), &group.value)?)),
            (Some(_), Some(_)) => Err(at.invalid("user and group together", "one of them")),
            (None, None) => Err(at.required("user", "a name, '*' for every user, or `group` with a name")),
        }
    }
}

/// Validates the full name of a user or a group.
fn name(at: &FieldPath, name: &str) -> Result<String, DocumentError> {
    let refused = |allowed: &str| Err(at.invalid(format_args!("{name:?}"), allowed));
    if name.is_empty() || !is_readable(name) {
        return refused("a name without control or invisible characters, and without white space at an end");
    }
    if name.contains('*') {
        return refused("a name in full, or `user: \"*\"` for every user of the method");
    }
    if name.starts_with("system:") {
        return refused("a name that does not begin with system:, since no caller can have such a name");
    }
    Ok(name.to_owned())
}
