//! Adapts the `Location` of an answer to what its caller sees, and refuses redirects out of the cluster.

use http::header::LOCATION;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, StatusCode};
use proto::ClusterId;
use proto::location::{Location, PathReference, is_same_host};

use super::error::ForwardError;

/// The facts of a request from which the places of its cluster follow, as its caller sees them.
pub(crate) struct LocationRules {
    /// The prefix of the cluster's paths as its callers see them.
    pub(crate) prefix: String,
    /// The path and query that the API server is asked for, from which relative references lead on.
    pub(crate) path: PathAndQuery,
    /// The host and port of this server that the caller has asked.
    pub(crate) host: Option<String>,
}

impl LocationRules {
    /// Adapts the `Location` headers of an answer. Only a redirect is followed, so that an answer of another
    /// status may name any host: a write that was done stays done.
    ///
    /// # Errors
    /// A redirect that leads out of the cluster. A caller's credential would follow it (CVE-2022-3172).
    pub(crate) fn adapt(
        &self,
        cluster: &ClusterId,
        status: StatusCode,
        headers: &mut HeaderMap,
    ) -> Result<(), ForwardError> {
        let locations: Vec<HeaderValue> = headers.get_all(LOCATION).iter().cloned().collect();
        headers.remove(LOCATION);
        let is_redirect = status.is_redirection();
        let is_one = locations.len() == 1;
        for location in locations {
            let adapted = match self.within_cluster(&location) {
                // Of several nobody knows which a caller would follow.
                Some(within) if is_one || !is_redirect => within,
                None if !is_redirect => location,
                Some(_) | None => {
                    let host = Location::parse(&location).host().filter(|_| is_one).map(str::to_owned);
                    return Err(ForwardError::Redirect { cluster: cluster.clone(), status, host });
                }
            };
            headers.append(LOCATION, adapted);
        }
        Ok(())
    }

    /// A `Location` as the caller sees it, if it stays in the cluster. The agent has made a path of a URL
    /// that names its API server. A URL that names this server, by the host that the caller has asked, stays
    /// in the cluster if its path does.
    fn within_cluster(&self, location: &HeaderValue) -> Option<HeaderValue> {
        let within = match Location::parse(location) {
            Location::Path(path) if path.keeps_path() => return Some(location.clone()),
            Location::Path(path) => format!("{}{}", self.prefix, path.resolve(self.path.path())),
            Location::Host { is_https: true, authority, path } if self.is_asked_host(authority) => {
                self.own(&path)?
            }
            Location::Host { .. } | Location::Unclear => return None,
        };
        HeaderValue::try_from(within).ok()
    }

    /// The path of a URL that names this server, if it is one of the cluster's own.
    fn own(&self, path: &PathReference<'_>) -> Option<String> {
        let path = path.from_root();
        let rest = path.strip_prefix(&self.prefix)?;
        (rest.is_empty() || rest.starts_with(['/', '?', '#'])).then_some(path)
    }

    fn is_asked_host(&self, authority: &str) -> bool {
        self.host.as_ref().is_some_and(|host| is_same_host(host, authority))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "/api/v1/namespaces/n/services/s/proxy/app/";

    #[test]
    fn a_location_within_the_api_server_is_rewritten_whatever_the_status() {
        let here = format!("/clusters/edge-a{BASE}");
        for (written, seen) in [
            ("/x/proxy/?y=//z#w", "/clusters/edge-a/x/proxy/?y=//z#w".to_owned()),
            ("/", "/clusters/edge-a/".to_owned()),
            ("login?next=x", format!("{here}login?next=x")),
            ("./a", format!("{here}a")),
            ("?page=2", "?page=2".to_owned()),
            ("#part", "#part".to_owned()),
            ("", String::new()),
            // No way leads above the root of the API server.
            ("../../../../../../../../../clusters/edge-b/", "/clusters/edge-a/clusters/edge-b/".to_owned()),
            ("/%2e%2e/edge-b/version", "/clusters/edge-a/edge-b/version".to_owned()),
            ("/x/../../edge-b", "/clusters/edge-a/edge-b".to_owned()),
            // This server itself, as the caller asked it.
            ("https://gateway.example/clusters/edge-a/x?y", "/clusters/edge-a/x?y".to_owned()),
            ("//GATEWAY.example:443/clusters/edge-a", "/clusters/edge-a".to_owned()),
        ] {
            for status in [200, 201, 202, 301, 302, 307, 503] {
                assert_eq!(
                    adapted("/clusters/edge-a", status, &[written]),
                    Ok(vec![seen.clone()]),
                    "{written}"
                );
            }
        }
        assert_eq!(adapted("", 302, &["./a"]), Ok(vec![format!("{BASE}a")]), "by host name");
        assert_eq!(adapted("", 302, &["https://gateway.example/x"]), Ok(vec!["/x".to_owned()]));
    }

    #[test]
    fn a_redirect_to_another_host_is_refused_and_any_other_answer_passes() {
        for (written, host) in [
            ("https://elsewhere.test/latest", Some("elsewhere.test")),
            ("//elsewhere.test/", Some("elsewhere.test")),
            ("http://gateway.example/clusters/edge-a/", Some("gateway.example")),
            ("///elsewhere.test", None),
            ("/\\elsewhere.test/", None),
            ("javascript:alert(1)", None),
            ("https://gateway.example/clusters/edge-b/", Some("gateway.example")),
            ("https://gateway.example/clusters/edge-a/../edge-b/", Some("gateway.example")),
            ("https://gateway.example/clusters/edge-ab/", Some("gateway.example")),
        ] {
            for status in [300, 301, 302, 303, 304, 307, 308] {
                let refused = Err((status, host.map(str::to_owned)));
                assert_eq!(adapted("/clusters/edge-a", status, &[written]), refused, "{written}");
            }
            for status in [200, 201, 202, 404] {
                let passed = Ok(vec![written.to_owned()]);
                assert_eq!(adapted("/clusters/edge-a", status, &[written]), passed, "{written}");
            }
        }
        for twice in [["/x", "/y"], ["/x", "https://elsewhere.test/"]] {
            assert_eq!(adapted("", 302, &twice), Err((302, None)), "{twice:?}");
            assert_eq!(adapted("", 201, &twice), Ok(twice.map(str::to_owned).to_vec()));
        }
    }

    #[test]
    fn the_refusal_of_a_redirect_says_where_it_led_and_what_was_done() {
        let host = Some("elsewhere.test".to_owned());
        let cluster: ClusterId = "edge-a".parse().unwrap();
        let refusal = ForwardError::Redirect { cluster, status: StatusCode::FOUND, host };
        let text = refusal.to_string();
        for part in ["edge-a", "has carried this request out", "302 Found", "another host, elsewhere.test"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    /// The `Location` headers for the caller, or status and host of the refusal.
    #[expect(clippy::unwrap_in_result, reason = "only the refusal is the result of a test")]
    fn adapted(prefix: &str, status: u16, written: &[&str]) -> Result<Vec<String>, (u16, Option<String>)> {
        let rules = LocationRules {
            prefix: prefix.to_owned(),
            path: PathAndQuery::from_static("/api/v1/namespaces/n/services/s/proxy/app/index?q"),
            host: Some("gateway.example".to_owned()),
        };
        let mut headers = HeaderMap::new();
        for location in written {
            headers.append(LOCATION, HeaderValue::from_bytes(location.as_bytes()).unwrap());
        }
        let status = StatusCode::from_u16(status).unwrap();
        match rules.adapt(&"edge-a".parse().unwrap(), status, &mut headers) {
            Ok(()) => {
                let text = |value: &HeaderValue| String::from_utf8(value.as_bytes().to_vec()).unwrap();
                Ok(headers.get_all(LOCATION).iter().map(text).collect())
            }
            Err(ForwardError::Redirect { status, host, .. }) => Err((status.as_u16(), host)),
            Err(other) => panic!("{other}"),
        }
    }
}
