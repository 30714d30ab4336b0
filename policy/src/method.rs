//! The words by which rules name how somebody proved who it is.

use proto::cluster::is_dns_label;

/// The method of tokens that are good for being connected to targets, and for nothing else.
pub const DIAL_TOKEN: &str = "dial-token";

/// How each token of that method begins, so that every door knows it for one, and only its own takes it.
pub const DIAL_TOKEN_PREFIX: &str = "tombolo-dial-";

/// Methods of which a server has at most one.
const METHODS: [&str; 3] = ["client-certificate", "token", DIAL_TOKEN];

/// Methods that a server's configuration names, as `oidc:NAME`.
const NAMED_METHODS: [&str; 3] = ["oidc", "token-review", WAY_IN];

/// The kind of those who are a way in: whoever comes by it is one principal.
const WAY_IN: &str = "way-in";

/// All of them, for people.
pub(crate) const ALLOWED: &str = "client-certificate, token, dial-token, oidc:NAME, token-review:NAME or way-in:NAME, with the name \
                                  that server.yaml gives it";

/// No method of authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it must be {ALLOWED}")]
pub struct NotAMethod;

/// Takes the word for a method: `client-certificate`, `token`, `dial-token`, `oidc:NAME`, `token-review:NAME` or `way-in:NAME`, where
/// the name is a DNS label.
///
/// # Errors
///
/// It is none. Whether a server has a method of that name is not asked.
pub fn method(word: &str) -> Result<String, NotAMethod> {
    let is_named = |(kind, name): (&str, &str)| NAMED_METHODS.contains(&kind) && is_dns_label(name);
    if METHODS.contains(&word) || word.split_once(':').is_some_and(is_named) {
        return Ok(word.to_owned());
    }
    Err(NotAMethod)
}

/// Whether a method is a way in, which says nothing of who comes by it.
pub(crate) fn is_way_in(method: &str) -> bool {
    method.split_once(':').is_some_and(|(kind, _)| kind == WAY_IN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_one_of_three_words_or_one_of_three_kinds_with_a_name() {
        for word in
            ["client-certificate", "token", "dial-token", "oidc:corp", "token-review:host-1", "way-in:host-1"]
        {
            assert_eq!(method(word).as_deref(), Ok(word));
        }
        for word in [
            "",
            "*",
            "oidc",
            "oidc:",
            "oidc:Corp",
            "oidc:a:b",
            "token:a",
            "way-in",
            "way-in:*",
            "dial-token:a",
            "Token",
            "tokenreview:a",
            "certificate",
        ] {
            assert_eq!(method(word), Err(NotAMethod), "{word}");
        }
    }

    #[test]
    fn a_way_in_is_one_by_its_kind_and_whatever_its_name() {
        assert!(is_way_in("way-in:host-1") && is_way_in("way-in:oidc"));
        for other in ["client-certificate", "token", "dial-token", "oidc:way-in", "token-review:way-in"] {
            assert!(!is_way_in(other), "{other}");
        }
    }
}
