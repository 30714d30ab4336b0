//! The target of a request, as the agent sends it to its API server.
//!
//! The server has read it already and sends its canonical form. The agent reads it again by the same rules, so that a
//! mistake in the server, or an older server, sends nothing here that an API server could read in two ways.

use http::uri::PathAndQuery;
use http::{Method, Uri};
use policy::action::{ActionError, canonical_target};

/// A target that the agent does not send.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestTargetError {
    /// The target is no path, or the method is CONNECT.
    #[error("the request's target is not a path, or its method is CONNECT")]
    NotAPath,
    /// The path or its query could be read in two ways.
    #[error("the request's target could be read in two ways")]
    Ambiguous(#[source] ActionError),
}

/// The canonical path and query of a request, which names no other server. The bytes of the path stay as they are.
///
/// # Errors
///
/// [`RequestTargetError`]; nothing is sent.
pub fn canonical(method: &Method, uri: &Uri) -> Result<PathAndQuery, RequestTargetError> {
    let names_a_server = uri.scheme().is_some() || uri.authority().is_some();
    let target = uri.path_and_query().filter(|_| !names_a_server && method != Method::CONNECT);
    let target =
        target.filter(|target| target.as_str().starts_with('/')).ok_or(RequestTargetError::NotAPath)?;
    canonical_target(target.as_str()).map_err(RequestTargetError::Ambiguous)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_path_is_a_target() {
        for (method, target) in
            [(Method::GET, "https://other/api"), (Method::CONNECT, "other:443"), (Method::OPTIONS, "*")]
        {
            assert_eq!(canonical(&method, &uri(target)), Err(RequestTargetError::NotAPath), "{target}");
        }
    }

    #[test]
    fn the_agent_sends_no_target_that_could_be_read_in_two_ways() {
        for (target, error) in [
            ("/api/v1/pods?watch=%ff", ActionError::QueryEncoding),
            ("/api/v1/pods?watch=1;x", ActionError::Semicolon),
            ("/api/v1/pods?watch=fal%c5%bfe", ActionError::AmbiguousWatch),
            ("/clusters/b/api/v1/secrets", ActionError::NestedCluster),
            ("/api/v1/pods/..%2fx", ActionError::HiddenCharacter),
            ("/api//v1/pods", ActionError::EmptySegment),
        ] {
            assert_eq!(
                canonical(&Method::GET, &uri(target)),
                Err(RequestTargetError::Ambiguous(error)),
                "{target}"
            );
        }
        let flood = format!("/api/v1/pods?watch=1{}", "&".repeat(10_000));
        let refused = canonical(&Method::GET, &uri(&flood));
        assert_eq!(refused, Err(RequestTargetError::Ambiguous(ActionError::TooManyParameters)));
    }

    /// A server of an older release sends queries as it received them.
    #[test]
    fn an_older_servers_query_is_made_canonical_at_the_agent() {
        for (received, sent) in [
            ("/api/v1/pods?w%61tch=1&a=b%20c", "/api/v1/pods?watch=1&a=b+c"),
            ("/api/v1/pods?", "/api/v1/pods"),
            (
                "/api/v1/namespaces/a/services/s/proxy/x%2Fy//z?q=%ff;",
                "/api/v1/namespaces/a/services/s/proxy/x%2Fy//z?q=%ff;",
            ),
            ("/version", "/version"),
        ] {
            assert_eq!(canonical(&Method::GET, &uri(received)).unwrap(), sent, "{received}");
        }
    }

    fn uri(text: &str) -> Uri {
        text.parse().unwrap()
    }
}
