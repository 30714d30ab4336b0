//! Reads the query of a request as kube-apiserver does, and writes it in the one form that crosses the tunnel.
//!
//! kube-apiserver reads queries by Go's `url.ParseQuery`, and ignores its errors. So it skips a pair with a raw `;`
//! or a wrong escape, and reads nothing of a query with more than 10,000 pairs. Other readers do otherwise. What could
//! be read in two ways is refused here. Everything else is percent-encoded anew, as `url.Values.Encode` does, in the
//! order in which it came.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::Action;
use super::error::{ActionError, QUERY_PAIRS_MAX};
use super::path::percent_decoded;

/// The parameter that turns a list into a watch.
const WATCH: &str = "watch";

/// The parameter with the longest time for an answer, in seconds.
pub(super) const TIMEOUT_SECONDS: &str = "timeoutSeconds";

/// The parameter with the version from which on a client wants to read.
pub(super) const RESOURCE_VERSION: &str = "resourceVersion";

/// The decoded parameters of a query, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the text behind the `?` of a target.
    pub(super) fn parse(raw: &str) -> Result<Self, ActionError> {
        if raw.is_empty() {
            return Ok(Self::default());
        }
        if raw.bytes().filter(|byte| *byte == b'&').count() >= QUERY_PAIRS_MAX {
            return Err(ActionError::TooManyParameters);
        }
        // Go counts empty parameters and then skips them. Clients send them: kube-rs writes `?&limit=500`.
        let pairs = raw.split('&').filter(|pair| !pair.is_empty());
        let query = Self(pairs.map(pair).collect::<Result<_, _>>()?);
        query.check_watch()?;
        Ok(query)
    }

    /// Takes the value of a parameter out.
    ///
    /// # Errors
    ///
    /// [`ActionError::Twice`]: it is there more than once.
    pub(super) fn take_one(&mut self, name: &'static str) -> Result<Option<String>, ActionError> {
        let mut found = self.0.extract_if(.., |(own, _)| own == name);
        let first = found.next();
        match found.next() {
            None => Ok(first.map(|(_, value)| value)),
            Some(_) => Err(ActionError::Twice(name)),
        }
    }

    /// Takes the number in a parameter out. An empty one counts as absent.
    ///
    /// # Errors
    ///
    /// [`ActionError::Twice`], [`ActionError::NotANumber`]
    pub(super) fn take_number(&mut self, name: &'static str) -> Result<Option<u64>, ActionError> {
        let text = self.take_one(name)?.filter(|text| !text.is_empty());
        text.map(|text| text.parse().map_err(|_| ActionError::NotANumber(name))).transpose()
    }

    /// Returns true if there is a parameter of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(own, _)| own == name)
    }

    /// Adds a parameter behind all others.
    pub(super) fn push(&mut self, name: &str, value: String) {
        self.0.push((name.to_owned(), value));
    }

    /// Returns true if the query turns a list into a watch.
    pub(super) fn asks_to_watch(&self) -> bool {
        self.watches().next().is_some_and(Action::is_parameter_on)
    }

    /// The canonical text: each name and value encoded as Go's `url.QueryEscape` does, with `=` between them.
    pub(super) fn encoded(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.0 {
            if !text.is_empty() {
                text.push('&');
            }
            encode(name, &mut text);
            text.push('=');
            encode(value, &mut text);
        }
        text
    }

    /// Refuses values of `watch` about which API servers can differ. Go compares them with `false` in two ways: by
    /// `strings.EqualFold`, to which `fal\u{17f}e` is false too, or by `strings.ToLower`, to which it is not.
    /// <https://github.com/kubernetes/apiserver/blob/v0.36.3/pkg/endpoints/request/requestinfo.go>
    fn check_watch(&self) -> Result<(), ActionError> {
        let mut watches = self.watches();
        let Some(first) = watches.next() else {
            return Ok(());
        };
        let is_on = Action::is_parameter_on;
        let agree = first.is_ascii() && watches.all(|value| value.is_ascii() && is_on(value) == is_on(first));
        if agree { Ok(()) } else { Err(ActionError::AmbiguousWatch) }
    }

    fn watches(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(name, _)| name == WATCH).map(|(_, value)| value.as_str())
    }
}

impl Action {
    /// Reads the `value` of a boolean parameter as `Convert_Slice_string_To_bool` of apimachinery does: every
    /// value but `false` and `0` is true, also the empty one.
    #[must_use]
    pub fn is_parameter_on(value: &str) -> bool {
        !value.eq_ignore_ascii_case("false") && value != "0"
    }
}

/// One parameter. A name without `=` has the empty value.
fn pair(raw: &str) -> Result<(String, String), ActionError> {
    if raw.contains(';') {
        return Err(ActionError::Semicolon);
    }
    let (name, value) = raw.split_once('=').unwrap_or((raw, ""));
    Ok((decoded(name)?, decoded(value)?))
}

fn decoded(raw: &str) -> Result<String, ActionError> {
    let spaced: Cow<'_, str> = if raw.contains('+') { raw.replace('+', " ").into() } else { raw.into() };
    let text = percent_decoded(&spaced).map_err(|_| ActionError::QueryEncoding)?;
    Ok(text.into_owned())
}

fn encode(text: &str, into: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                into.push(char::from(byte))
            }
            b' ' => into.push('+'),
            // Writing to a string cannot fail.
            _ => drop(write!(into, "%{byte:02X}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_readers_could_read_differently_is_refused() {
        use ActionError::{AmbiguousWatch, QueryEncoding, Semicolon};
        for (raw, error) in [
            ("watch=%ff", QueryEncoding),
            ("watch=%80", QueryEncoding),
            ("watch=%c0%80", QueryEncoding),
            ("%ff=1", QueryEncoding),
            ("watch=%e2%82&fieldSelector=x", QueryEncoding),
            ("a=%zz", QueryEncoding),
            ("a=%", QueryEncoding),
            ("a=%4", QueryEncoding),
            ("watch=1;x", Semicolon),
            ("a;b=1", Semicolon),
            (";", Semicolon),
            ("watch=fal%C5%BFe", AmbiguousWatch),
            ("watch=%D9%A0", AmbiguousWatch),
            ("watch=0&watch=1", AmbiguousWatch),
            ("watch=1&watch=False", AmbiguousWatch),
            ("watch=1&w%61tch=fal%C5%BFe", AmbiguousWatch),
        ] {
            assert_eq!(Query::parse(raw), Err(error), "{raw}");
        }
    }

    #[test]
    fn a_query_has_its_most_pairs_and_not_one_more() {
        let most = vec!["a"; QUERY_PAIRS_MAX].join("&");
        assert_eq!(Query::parse(&most).map(|query| query.0.len()), Ok(QUERY_PAIRS_MAX));
        assert_eq!(Query::parse(&format!("{most}&a")), Err(ActionError::TooManyParameters));
        // Go reads a query of more than 10,000 pairs as empty: what was a watch is a list there.
        let flood = format!("watch=1&allowWatchBookmarks=1{}", "&".repeat(9_999));
        assert_eq!(Query::parse(&flood), Err(ActionError::TooManyParameters));
        const { assert!(QUERY_PAIRS_MAX + 3 <= 10_000) };
    }

    #[test]
    fn a_query_is_encoded_anew_without_a_change_of_its_meaning() {
        for (raw, canonical) in [
            ("", ""),
            ("&", ""),
            ("&limit=500", "limit=500"),
            ("a=1&&b=2&", "a=1&b=2"),
            ("watch", "watch="),
            ("watch=", "watch="),
            ("=", "="),
            ("=x", "=x"),
            ("%77atch=%31", "watch=1"),
            ("a=b=c", "a=b%3Dc"),
            ("a%3Db=c", "a%3Db=c"),
            ("a+b=c%20d%2B", "a+b=c+d%2B"),
            ("b=1&a=2&b=0", "b=1&a=2&b=0"),
            ("labelSelector=a%20in%20(b,c)", "labelSelector=a+in+%28b%2Cc%29"),
            ("continue=x%2f..%00", "continue=x%2F..%00"),
            ("q=%c3%a4%26%3b%23", "q=%C3%A4%26%3B%23"),
            ("-_.~", "-_.~="),
            ("watch=1&watch=true", "watch=1&watch=true"),
        ] {
            let query = Query::parse(raw).unwrap();
            assert_eq!(query.encoded(), canonical, "{raw}");
            assert_eq!(Query::parse(canonical), Ok(query), "{raw}");
        }
    }

    #[test]
    fn a_watch_is_asked_for_by_every_value_but_false_and_zero() {
        for (raw, watches) in [
            ("watch=1", true),
            ("watch", true),
            ("watch=no", true),
            ("watch=00", true),
            ("watch=%20", true),
            ("w%61tch=%74rue", true),
            ("watch=fAlSe", false),
            ("watch=%30", false),
            ("Watch=1", false),
            ("watch+=1", false),
            ("", false),
        ] {
            assert_eq!(Query::parse(raw).unwrap().asks_to_watch(), watches, "{raw}");
        }
    }
}
