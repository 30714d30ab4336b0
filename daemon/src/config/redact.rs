//! Redacts values that error messages quote: a token, a key or a password may be in the wrong place.

/// Longest text that is quoted in place of a number, a switch or a choice; a longer one may be a secret.
const WORD_CHARS_MAX: usize = 16;

/// Longest part of a file's line that is quoted.
const LINE_CHARS_MAX: usize = 120;

/// Longest key that is quoted. Our own keys are shorter.
const KEY_CHARS_MAX: usize = 40;

/// A run of this many letters, digits, `-`, `_`, `+` and `=`, with a digit among them, counts as a token or a
/// key.
const SECRET_CHARS_MIN: usize = 40;

/// The prefix of long values that may be shown: a pin, a digest.
const HASH: &str = "sha256:";

/// The beginning of a PEM block.
const PEM: &str = "-----BEGIN";

/// Replaces a redacted part of a value.
const HIDDEN: &str = "…";

/// Returns a value or a path without the user and password of a URL, and without runs as long as a token.
#[must_use]
pub fn redact(value: &str) -> String {
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

/// Returns a value in place of a number, a switch or a choice; a long one only by its length.
pub(super) fn redact_word(value: &str) -> String {
    match value.chars().count() {
        count if count > WORD_CHARS_MAX => format!("a text of {count} characters"),
        _ => redact(value),
    }
}

/// Returns a line of a configuration file without the blanks around it. Of a word that is longer than a number, a switch or
/// a choice, only a key is quoted, because any other may be a secret in the wrong place. The user and password of a URL are
/// hidden before the line is split, because a password may contain the characters between words.
pub(super) fn redact_line(line: &str) -> String {
    let is_of_a_word = |letter: char| !letter.is_whitespace() && !"{}[],#\"'".contains(letter);
    let line = without_login(line.trim());
    let (mut text, mut rest) = (String::new(), line.as_str());
    while let Some(begin) = rest.find(is_of_a_word) {
        let (before, word) = rest.split_at(begin);
        let (word, behind) = word.split_at(word.find(|letter| !is_of_a_word(letter)).unwrap_or(word.len()));
        text.push_str(before);
        let is_key = word.strip_suffix(':').is_some_and(|key| {
            key.len() <= KEY_CHARS_MAX && key.bytes().all(|letter| letter.is_ascii_alphabetic())
        });
        if is_key || word.chars().count() <= WORD_CHARS_MAX {
            text.push_str(&redact(word));
        } else {
            text.push_str(HIDDEN);
        }
        rest = behind;
    }
    text.push_str(rest);
    match text.char_indices().nth(LINE_CHARS_MAX) {
        Some((end, _)) => format!("{}{HIDDEN}", &text[..end]),
        None => text,
    }
}

/// Returns `key` if it has the form of a key.
pub(super) fn plain_key(key: &str) -> Option<&str> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    (!key.is_empty() && key.len() <= KEY_CHARS_MAX && key.chars().all(fits)).then_some(key)
}

/// Redacts the credentials of `http://USER:PASSWORD@HOST`, with or without a scheme. A user alone stays
/// unless it may be a token. A password may contain a slash or an `@` that should have been encoded.
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

/// Hides all of a line between the first `://` and the last `@` behind it.
pub(super) fn without_login(line: &str) -> String {
    match line.split_once("://").map(|(scheme, rest)| (scheme, rest.rsplit_once('@'))) {
        Some((scheme, Some((_, host)))) => format!("{scheme}://{HIDDEN}@{host}"),
        Some((_, None)) | None => line.to_owned(),
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
    fn values_like_secrets_are_redacted_and_others_are_quoted() {
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
            assert_eq!(redact(written), quoted);
        }
    }

    #[test]
    fn a_line_is_quoted_with_its_keys_and_short_words_only() {
        let long = "a: b, ".repeat(40);
        for (line, quoted) in [
            ("  listen: [", "listen: ["),
            ("- { name: a, requestTimeoutSeconds: x }", "- { name: a, requestTimeoutSeconds: x }"),
            ("\tlisten: a # why", "listen: a # why"),
            ("keyFile: /etc/tombolo/pki/server.key", "keyFile: …"),
            ("proxy: { url: 'http://me:sesame@proxy.test:3128' }", "proxy: { url: '…' }"),
            ("proxy: { url: http://a:b@c }", "proxy: { url: http://…@c }"),
            ("ur: http://me:Pa55,w0rd@proxy:3128", "ur: …"),
            ("ur: http://me:Pa55,w0@d@p", "ur: http://…@p"),
            ("ur: 'http://me:P#5\"[w 0]@p' # why", "ur: 'http://…@p' # why"),
            ("password: \"sesame-sesame-sesame", "password: \"…"),
            ("sesame-sesame-sesame: x", "… x"),
        ] {
            assert_eq!(redact_line(line), quoted);
        }
        assert_eq!(redact_line(&long).chars().count(), LINE_CHARS_MAX + 1);
    }

    #[test]
    fn long_texts_and_texts_with_a_colon_are_not_quoted() {
        assert_eq!(
            (redact_word("soon").as_str(), redact_word("sesame-sesame-sesame").as_str()),
            ("soon", "a text of 20 characters")
        );
        assert_eq!(
            (plain_key("drainGrace"), plain_key("url:http://me:sesame@p"), plain_key("")),
            (Some("drainGrace"), None, None)
        );
    }
}
