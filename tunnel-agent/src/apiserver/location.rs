//! Makes a path of a `Location` that names the API server, because callers do not know its name.

use http::header::{Entry, LOCATION};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue};
use proto::location::{Location, is_same_host};

/// Replaces every `Location` that is a URL of the API server at `authority` by its path. An API server makes
/// such a URL of the `Host` that the agent has sent (RFC 9110, section 10.2.2).
pub(super) fn without_host(headers: &mut HeaderMap, authority: &Authority) {
    let path = |value: &HeaderValue| match Location::parse(value) {
        Location::Host { is_https: true, authority: named, path }
            if is_same_host(named, authority.as_str()) =>
        {
            HeaderValue::try_from(path.from_root()).ok()
        }
        Location::Host { .. } | Location::Path(_) | Location::Unclear => None,
    };
    let Entry::Occupied(mut locations) = headers.entry(LOCATION) else {
        return;
    };
    for value in locations.iter_mut() {
        if let Some(path) = path(value) {
            *value = path;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_at_the_api_server_itself_becomes_a_path() {
        for (authority, written, read) in [
            ("10.96.0.1:443", "https://10.96.0.1/apis/x/y?z#w", "/apis/x/y?z#w"),
            ("10.96.0.1:443", "https://10.96.0.1:443", "/"),
            ("api.example:6443", "//API.example:6443/x", "/x"),
            ("api.example:6443", "https://api.example:6443/x/../y", "/y"),
            ("api.example:6443", "https://api.example/x", "https://api.example/x"),
            ("api.example:6443", "http://api.example:6443/x", "http://api.example:6443/x"),
            ("api.example:6443", "https://elsewhere.test/x", "https://elsewhere.test/x"),
            ("api.example:6443", "login?next=x", "login?next=x"),
            ("api.example:6443", "/x/../y", "/x/../y"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(LOCATION, written.parse().unwrap());
            without_host(&mut headers, &authority.parse().unwrap());
            assert_eq!(headers[LOCATION], read, "{written} at {authority}");
        }
    }
}
