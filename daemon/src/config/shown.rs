//! What a person wrote, as far as an error may quote it: a token, a key or a password may stand in the wrong place.

/// Longest text that is quoted where a number, a switch or one of a few words belongs: longer ones are something else.
const WORD_CHARS_MAX: usize = 16;

/// Longest key that is quoted. Ours have less.
const KEY_CHARS_MAX: usize = 40;

/// So many letters, digits, `-`, `_`, `+` and `=` in a row, with a digit among them, are a token or a key, and no name.
const SECRET_CHARS_MIN: usize = 40;

/// In front of what is as long and may be known: a pin, a digest.
const HASH: &str = "sha256:";

/// How a block of PEM begins.
const PEM: &str = "-----BEGIN";

/// What stands in place of what is not quoted.
const HIDDEN: &str = "…";

/// A value, or the path of a file, without user and password of a URL, and without what is as long as a token.
#[must_use]
pub fn shown(value: &str) -> String {
    if value.contains(PEM) {
        return "a block of PEM".to_owned();
    }
    if value.contains('\n') {
        return "a text of several lines".to_owned();
    }
    let value = without_user(value);
    let (mut text, mut rest) = (String::new(), value.as_str());
    while let Some(begin) = rest.find(is_of_a_token) {
        let (before, run) = rest.split_at(begin);
        let (run, behind) = run.split_at(run.find(|letter| !is_of_a_token(letter)).unwrap_or(run.len()));
        text.push_str(before);
        text.push_str(if is_secret(run) && !text.ends_with(HASH) { HIDDEN } else { run });
        rest = behind;
    }
    text + rest
}

/// A value where a number, a switch or one of a few words belongs.
pub(super) fn word(value: &str) -> String {
    match value.chars().count() {
        count if count > WORD_CHARS_MAX => format!("a text of {count} characters"),
        _ => shown(value),
    }
}

/// A key, if it looks like one.
pub(super) fn key(key: &str) -> Option<&str> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    (!key.is_empty() && key.len() <= KEY_CHARS_MAX && key.chars().all(fits)).then_some(key)
}

/// `http://USER:PASSWORD@HOST`, with a scheme or without; a user alone is quoted unless it may be a token. A password may have a
/// slash or an `@` in it that should have been encoded.
fn without_user(value: &str) -> String {
    let begin = value.find("://").map(|at| at + "://".len());
    let (scheme, rest) = value.split_at(begin.unwrap_or_default());
    match rest.rsplit_once('@') {
        Some((user, host))
            if user.contains(':') || begin.is_some() && user.chars().count() > WORD_CHARS_MAX =>
        {
            format!("{scheme}{HIDDEN}@{host}")
        }
        Some(_) | None => value.to_owned(),
    }
}

fn is_of_a_token(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "-_+=".contains(letter)
}

fn is_secret(run: &str) -> bool {
    run.len() >= SECRET_CHARS_MIN && run.bytes().any(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_not_quoted_and_everything_else_is() {
        let (hex, pin) = ("0123456789abcdef".repeat(4), format!("sha256:{}", "0".repeat(63)));
        for (written, quoted) in [
            ("601", "601"),
            ("/etc/tombolo/pki/server.crt", "/etc/tombolo/pki/server.crt"),
            ("alice@example.com", "alice@example.com"),
            ("https://alice@example.com", "https://alice@example.com"),
            ("https://sesame-sesame-sesame@example.com", "https://…@example.com"),
            ("https://10.0.0.1:6443/path", "https://10.0.0.1:6443/path"),
            (pin.as_str(), pin.as_str()),
            (
                "a-name-that-goes-on-and-on-and-on-and-on-and-on.test",
                "a-name-that-goes-on-and-on-and-on-and-on-and-on.test",
            ),
            ("http://me:sesame@proxy.test:3128", "http://…@proxy.test:3128"),
            ("\"https://me:se/s@me@10.0.0.1\"", "\"https://…@10.0.0.1\""),
            ("me:sesame@proxy.test:3128", "…@proxy.test:3128"),
            (&format!("/etc/tombolo/0123456789abcdef.{hex}"), "/etc/tombolo/0123456789abcdef.…"),
            (&format!("tombolo-user-{}", &hex[..43]), "…"),
            ("-----BEGIN PRIVATE KEY-----\nMC4CAQ", "a block of PEM"),
            ("apiVersion: v1\nusers: []", "a text of several lines"),
            ("ä…", "ä…"),
        ] {
            assert_eq!(shown(written), quoted);
        }
    }

    #[test]
    fn a_long_text_is_no_word_and_what_has_a_colon_is_no_key() {
        assert_eq!(
            (word("soon").as_str(), word("sesame-sesame-sesame").as_str()),
            ("soon", "a text of 20 characters")
        );
        assert_eq!(
            (key("drainGrace"), key("url:http://me:sesame@p"), key("")),
            (Some("drainGrace"), None, None)
        );
    }
}
