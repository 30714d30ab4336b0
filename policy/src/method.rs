//! The authentication methods, as rules name them.

use proto::cluster::is_dns_label;

/// The method of dial tokens, which are valid for connections to targets and for nothing else.
pub const DIAL_TOKEN: &str = "dial-token";

/// The prefix of every dial token. By it each listener recognizes one, and only the dialing listeners accept it.
pub const DIAL_TOKEN_PREFIX: &str = "tombolo-dial-";

/// Methods of which a server has at most one.
const METHODS: [&str; 3] = ["client-certificate", "token", DIAL_TOKEN];

/// Kinds of methods that a server's configuration names, as in `oidc:NAME`.
const NAMED_METHODS: [&str; 3] = ["oidc", "token-review", ENTRY_POINT];

/// The kind of methods that identify an entry point: all callers of one entry point are one principal.
const ENTRY_POINT: &str = "entry-point";

/// The kind that [`ENTRY_POINT`] had before.
const OLD_ENTRY_POINT: &str = "way-in";

/// All methods, for error messages.
pub(crate) const ALLOWED: &str = "client-certificate, token, dial-token, oidc:NAME, token-review:NAME or entry-point:NAME, with the \
                                  name that server.yaml gives it";

/// The text is no authentication method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it must be {}", self.allowed())]
pub enum NotAMethod {
    /// No method has this form.
    Unknown,
    /// The text is the old form of an entry point, `way-in:NAME`.
    OldEntryPoint,
}

impl NotAMethod {
    /// The text that would be allowed, for an error message.
    pub(crate) fn allowed(self) -> &'static str {
        match self {
            Self::Unknown => ALLOWED,
            Self::OldEntryPoint => "entry-point:NAME, which way-in:NAME is called now",
        }
    }
}

/// Accepts the text of a method: `client-certificate`, `token`, `dial-token`, `oidc:NAME`, `token-review:NAME` or
/// `entry-point:NAME`, where the name is a DNS label.
///
/// # Errors
///
/// [`NotAMethod`]: the text has another form. Whether a server has a method of that name is not checked.
pub fn parse_method(text: &str) -> Result<String, NotAMethod> {
    let named = text.split_once(':');
    let is_named = |(kind, name): (&str, &str)| NAMED_METHODS.contains(&kind) && is_dns_label(name);
    if METHODS.contains(&text) || named.is_some_and(is_named) {
        return Ok(text.to_owned());
    }
    let is_old = named.is_some_and(|(kind, name)| kind == OLD_ENTRY_POINT && is_dns_label(name));
    Err(if is_old { NotAMethod::OldEntryPoint } else { NotAMethod::Unknown })
}

/// Returns true if a method identifies an entry point, and not the individual caller.
pub(crate) fn is_entry_point(method: &str) -> bool {
    method.split_once(':').is_some_and(|(kind, _)| kind == ENTRY_POINT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_one_of_three_texts_or_one_of_three_kinds_with_a_name() {
        for text in [
            "client-certificate",
            "token",
            "dial-token",
            "oidc:corp",
            "token-review:host-1",
            "entry-point:host-1",
        ] {
            assert_eq!(parse_method(text).as_deref(), Ok(text));
        }
        for text in [
            "",
            "*",
            "oidc",
            "oidc:",
            "oidc:Corp",
            "oidc:a:b",
            "token:a",
            "entry-point",
            "entry-point:*",
            "way-in",
            "way-in:*",
            "dial-token:a",
            "Token",
            "tokenreview:a",
            "certificate",
        ] {
            assert_eq!(parse_method(text), Err(NotAMethod::Unknown), "{text}");
        }
    }

    #[test]
    fn the_old_form_of_an_entry_point_is_refused_with_the_new_one() {
        let refused = parse_method("way-in:host-1").unwrap_err();
        assert_eq!(refused, NotAMethod::OldEntryPoint);
        assert!(refused.to_string().contains("entry-point:NAME"), "{refused}");
    }

    #[test]
    fn an_error_lists_every_method() {
        for method in METHODS {
            assert!(ALLOWED.contains(method), "{method}");
        }
        for kind in NAMED_METHODS {
            assert!(ALLOWED.contains(&format!("{kind}:NAME")), "{kind}");
        }
    }

    #[test]
    fn an_entry_point_is_one_by_its_kind_whatever_its_name() {
        assert!(is_entry_point("entry-point:host-1") && is_entry_point("entry-point:oidc"));
        for other in
            ["client-certificate", "token", "dial-token", "oidc:entry-point", "token-review:entry-point"]
        {
            assert!(!is_entry_point(other), "{other}");
        }
    }
}
