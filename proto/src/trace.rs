//! W3C Trace Context: decides which `traceparent` and `tracestate` are passed on, and which are dropped.
//!
//! <https://www.w3.org/TR/trace-context/>. Malformed values are dropped and never repaired. None is added
//! where none came: we start no traces, we pass them on.

use http::HeaderMap;

/// The header that says which trace a request belongs to.
pub const TRACEPARENT: &str = "traceparent";

/// The header in which tracing systems keep data of their own.
pub const TRACESTATE: &str = "tracestate";

/// Most members of a `tracestate`.
pub const TRACESTATE_MEMBERS_MAX: usize = 32;

/// Longest `tracestate` that is passed on, all its lines together, in bytes: the length that the
/// specification asks everybody to propagate at least.
pub const TRACESTATE_BYTES_MAX: usize = 512;

/// Longest `traceparent`, in bytes. Version 0 has 55; later ones may have more.
pub const TRACEPARENT_BYTES_MAX: usize = 256;

/// Length of version 0 of `traceparent`, in bytes. Every later version begins with the same fields.
const VERSION_0_BYTES: usize = 55;

/// Longest key of a member of `tracestate`, and longest value, in bytes.
const KEY_BYTES_MAX: usize = 256;
const VALUE_BYTES_MAX: usize = 256;

/// Removes malformed trace headers: at most one `traceparent` stays, and `tracestate` only together with it.
pub fn clean(headers: &mut HeaderMap) {
    let mut parents = headers.get_all(TRACEPARENT).iter();
    let is_parent = match (parents.next(), parents.next()) {
        (Some(parent), None) => is_traceparent(parent.as_bytes()),
        (Some(_), Some(_)) | (None, _) => false,
    };
    if !is_parent {
        headers.remove(TRACEPARENT);
    }
    // Without its parent it belongs to no trace.
    if !is_parent || !is_tracestate(headers.get_all(TRACESTATE).iter().map(|line| line.as_bytes())) {
        headers.remove(TRACESTATE);
    }
}

/// `00-TRACE-PARENT-FLAGS` in lower-case hexadecimal, neither id all zeros; of a later version, what begins
/// so.
fn is_traceparent(text: &[u8]) -> bool {
    let Some((known, more)) = text.split_at_checked(VERSION_0_BYTES) else {
        return false;
    };
    let fields: Vec<&[u8]> = known.split(|byte| *byte == b'-').collect();
    let [version, trace, parent, flags] = fields.as_slice() else {
        return false;
    };
    let is_hex = |field: &[u8], digits: usize| {
        field.len() == digits && field.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_id = |field: &[u8], digits| is_hex(field, digits) && field.iter().any(|byte| *byte != b'0');
    let may_have_more = match *version {
        b"00" => more.is_empty(),
        b"ff" => false,
        _ => more.first().is_none_or(|byte| *byte == b'-'),
    };
    is_hex(version, 2)
        && is_id(trace, 32)
        && is_id(parent, 16)
        && is_hex(flags, 2)
        && may_have_more
        && text.len() <= TRACEPARENT_BYTES_MAX
}

/// `key=value` members, separated by commas over one or more lines, no key twice. Empty members do not count.
fn is_tracestate<'a>(lines: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut keys: Vec<&[u8]> = Vec::new();
    let mut bytes = 0;
    for line in lines {
        bytes += line.len();
        for member in line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if member.is_empty() {
                continue;
            }
            let Some(equals) = member.iter().position(|byte| *byte == b'=') else {
                return false;
            };
            let (key, value) = (&member[..equals], &member[equals + 1..]);
            if !is_key(key) || !is_value(value) || keys.contains(&key) {
                return false;
            }
            keys.push(key);
        }
        if keys.len() > TRACESTATE_MEMBERS_MAX || bytes > TRACESTATE_BYTES_MAX {
            return false;
        }
    }
    true
}

fn is_key(key: &[u8]) -> bool {
    let fits = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
    let begins = key.first().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let tenants = key.iter().filter(|byte| **byte == b'@').count();
    begins && key.len() <= KEY_BYTES_MAX && key.iter().all(fits) && tenants <= 1 && !key.ends_with(b"@")
}

fn is_value(value: &[u8]) -> bool {
    let fits = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b',' | b'=');
    (1..=VALUE_BYTES_MAX).contains(&value.len()) && value.iter().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_well_formed_traceparent_is_kept_as_it_is() {
        let longest = format!("01{}-{}", &PARENT[2..], "x".repeat(TRACEPARENT_BYTES_MAX - PARENT.len() - 1));
        for parent in [
            PARENT,
            "00-00000000000000000000000000000001-0000000000000001-00",
            "00-ffffffffffffffffffffffffffffffff-ffffffffffffffff-ff",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes-later",
            &longest,
        ] {
            assert_eq!(cleaned(&[parent], &[]), (vec![parent.to_owned()], vec![]), "{parent}");
        }
    }

    #[test]
    fn a_malformed_or_second_traceparent_is_dropped_with_its_tracestate() {
        let beyond = format!("01{}-{}", &PARENT[2..], "x".repeat(TRACEPARENT_BYTES_MAX - PARENT.len()));
        for parent in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.more",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-011",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g",
            "00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01",
            " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            &beyond,
        ] {
            assert_eq!(cleaned(&[parent], &["a=b"]), (vec![], vec![]), "{parent}");
        }
        assert_eq!(cleaned(&[PARENT, PARENT], &["a=b"]), (vec![], vec![]));
        assert_eq!(cleaned(&[], &["a=b"]), (vec![], vec![]));
    }

    #[test]
    fn a_tracestate_is_kept_or_dropped_as_a_whole() {
        let members = |count: usize| (0..count).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join(",");
        let long = |bytes: usize| {
            let rest = bytes - "a=,b=".len();
            format!("a={},b={}", "x".repeat(rest / 2), "x".repeat(rest - rest / 2))
        };
        let (most, longest) = (members(TRACESTATE_MEMBERS_MAX), long(TRACESTATE_BYTES_MAX));
        for state in [
            &["rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"][..],
            &["a=b", "c=d"],
            &["a=b, ,c=d,"],
            &["tenant@system=1 2~"],
            &["0a_-*/=!"],
            &[""],
            &[&most],
            &[&longest],
        ] {
            let kept = state.iter().map(|line| (*line).to_owned()).collect();
            assert_eq!(cleaned(&[PARENT], state), (vec![PARENT.to_owned()], kept), "{state:?}");
        }
        let (too_many, too_long) = (members(TRACESTATE_MEMBERS_MAX + 1), long(TRACESTATE_BYTES_MAX + 1));
        for state in [
            &["a"][..],
            &["=b"],
            &["a="],
            &["A=b"],
            &["a=b=c"],
            &["a@b@c=d"],
            &["a@=d"],
            &["a=b,a=c"],
            &["a=b", "a=c"],
            &["a=\u{e9}"],
            &[&format!("{}=b", "k".repeat(KEY_BYTES_MAX + 1))],
            &[&format!("a={}", "v".repeat(VALUE_BYTES_MAX + 1))],
            &[&too_many],
            &[&too_long],
        ] {
            assert_eq!(cleaned(&[PARENT], state), (vec![PARENT.to_owned()], vec![]), "{state:?}");
        }
    }

    proptest! {
        #[test]
        fn trace_headers_that_are_kept_are_unchanged(parent in "[0-9a-f-]{50,60}", state in "[a-z@=, ]{0,40}") {
            let (kept, states) = cleaned(&[&parent], &[&state]);
            prop_assert!(kept.is_empty() || kept == [parent]);
            prop_assert!(states.is_empty() || (states == [state] && !kept.is_empty()));
        }
    }

    fn cleaned(parents: &[&str], states: &[&str]) -> (Vec<String>, Vec<String>) {
        let mut headers = HeaderMap::new();
        for (name, values) in [(TRACEPARENT, parents), (TRACESTATE, states)] {
            for value in values {
                headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
        }
        clean(&mut headers);
        let values =
            |name| headers.get_all(name).iter().map(|value| value.to_str().unwrap().to_owned()).collect();
        (values(TRACEPARENT), values(TRACESTATE))
    }
}
