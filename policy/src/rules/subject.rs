//! Whom a rule is about.

use super::choice::ANY;
use super::{Effect, Who};
use crate::document;
use crate::fault::{At, PolicyFault};
use crate::method;

/// One subject of a rule.
#[derive(Debug, Clone)]
pub(super) enum Subject {
    /// Whoever comes in, by whatever method. Nothing is allowed so to a way in, which has to be named; it is denied to it as to all.
    Everybody,
    /// Whoever comes in by this method.
    Users(String),
    /// This user of this method.
    User(String, String),
    /// Whoever comes in by this method and is in this group.
    Group(String, String),
}

impl Subject {
    /// Whether `who` is meant by a rule of this effect.
    pub(super) fn is(&self, who: Who<'_>, effect: Effect) -> bool {
        match self {
            Self::Everybody => effect == Effect::Deny || !method::is_way_in(who.method),
            Self::Users(method) => method == who.method,
            Self::User(method, user) => method == who.method && user == who.user,
            Self::Group(method, group) => method == who.method && who.groups.contains(group),
        }
    }

    pub(super) fn of(at: &At, written: &document::Subject) -> Result<Self, PolicyFault> {
        let document::Subject { method: written_method, user, group } = written;
        let written_method = written_method.as_ref().ok_or_else(|| at.missing("method", method::ALLOWED))?;
        let at_method = at.below("method", written_method);
        let method = written_method.value.clone();
        if method != ANY && method::method(&method).is_err() {
            return Err(at_method.fault(format_args!("{method:?}"), method::ALLOWED));
        }
        match (user, group) {
            (Some(user), None) if user.value == ANY && method == ANY => Ok(Self::Everybody),
            (Some(_), None) | (None, Some(_)) if method == ANY => {
                let allowed = "a method; '*' goes with `user: \"*\"` alone, since a name is its method's";
                Err(at_method.fault("\"*\"", allowed))
            }
            (Some(user), None) if user.value == ANY => Ok(Self::Users(method)),
            (Some(user), None) => Ok(Self::User(method, name(&at.below("user", user), &user.value)?)),
            (None, Some(group)) => Ok(Self::Group(method, name(&at.below("group", group), &group.value)?)),
            (Some(_), Some(_)) => Err(at.fault("user and group together", "one of them")),
            (None, None) => Err(at.missing("user", "a name, '*' for every user, or `group` with a name")),
        }
    }
}

/// A user's or a group's name in full.
fn name(at: &At, name: &str) -> Result<String, PolicyFault> {
    let refused = |allowed: &str| Err(at.fault(format_args!("{name:?}"), allowed));
    if name.is_empty() || name.trim() != name || name.chars().any(char::is_control) {
        return refused("a name without control characters and without white space at an end");
    }
    if name.contains('*') {
        return refused("a name in full, or `user: \"*\"` for every user of the method");
    }
    if name.starts_with("system:") {
        return refused("a name that does not begin with system:, since no caller can bear one of those");
    }
    Ok(name.to_owned())
}
