//! Makes a path of a `Location` that names the API server, because callers do not know its name.

use http::HeaderValue;
use http::uri::Authority;
use proto::location::{Location, is_same_host};

/// The path of a `Location` that is a URL of the API server at `authority`; `None` for every other one. An
/// API server makes such a URL of the `Host` that the agent has sent (RFC 9110, section 10.2.2).
pub(super) fn path_at(location: &HeaderValue, authority: &Authority) -> Option<String> {
    match Location::parse(location) {
        Location::Host { is_https: true, authority: named, path }
            if is_same_host(named, authority.as_str()) =>
        {
            Some(path.from_root())
        }
        Location::Host { .. } | Location::Path(_) | Location::Unclear => None,
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
            let path = path_at(&written.parse().unwrap(), &authority.parse().unwrap());
            assert_eq!(path.as_deref().unwrap_or(written), read, "{written} at {authority}");
        }
    }
}
