//! Removes the values of query parameters from a path, because they may be secrets; the names stay.

/// Longest name of a parameter, in bytes; a longer one may be a secret.
const PARAMETER_BYTES_MAX: usize = 64;

/// Replaces a parameter whose name may be a secret.
const NO_NAME: &str = "~";

/// Returns `target` without the values of its query parameters, because they may be commands, tokens or selectors:
/// `/api/v1/pods?watch=&labelSelector=`.
#[must_use]
pub fn without_values(target: &str) -> String {
    // A fragment is no part of a request, and would not be redacted.
    let target = target.split('#').next().unwrap_or_default();
    let Some((path, query)) = target.split_once('?') else { return target.to_owned() };
    let mut kept = format!("{path}?");
    for (index, parameter) in query.split('&').enumerate() {
        if index > 0 {
            kept.push('&');
        }
        let (name, equals) = parameter.split_once('=').map_or((parameter, ""), |(name, _)| (name, "="));
        kept.push_str(if is_name(name) { name } else { NO_NAME });
        kept.push_str(equals);
    }
    kept
}

fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    name.len() <= PARAMETER_BYTES_MAX && name.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parameters_stay_and_values_are_removed() {
        for (target, kept) in [
            ("/api/v1/pods", "/api/v1/pods"),
            ("/api/v1/pods?", "/api/v1/pods?"),
            ("/api/v1/pods?watch=1&labelSelector=a%3Db", "/api/v1/pods?watch=&labelSelector="),
            ("/exec?command=cat&command=/secret&stdin", "/exec?command=&command=&stdin"),
            ("/x?a=b=c&&=d", "/x?a=&&="),
            ("/x?eyJ%20hbGciOi", "/x?~"),
            ("/x?a=1#token", "/x?a="),
        ] {
            assert_eq!(without_values(target), kept);
        }
    }
}
