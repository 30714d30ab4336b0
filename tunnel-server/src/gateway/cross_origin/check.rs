//! The check whether a page of another origin has made a browser send a request. Pure.
//!
//! A browser shows a client certificate to any page and opens a WebSocket for any page, so that
//! authentication alone does not say who wanted the request. Programs send none of the headers checked here,
//! except an `Origin` that is the gateway itself, as Python's websocket-client does.
//! <https://www.w3.org/TR/fetch-metadata/>, <https://www.w3.org/TR/service-workers/#service-worker-script-request>

use http::header::{HOST, ORIGIN};
use http::{HeaderMap, HeaderName, HeaderValue, Request};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SERVICE_WORKER: HeaderName = HeaderName::from_static("service-worker");

/// The values of `Sec-Fetch-Site` without a page of another origin: `none` where a person typed the address,
/// and our own.
const SITES: [&str; 2] = ["none", "same-origin"];

/// The reason why a browser's request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CrossOriginError {
    /// Sent by a page whose origin is not configured, or that has none.
    #[error(
        "a page of this origin may not ask this gateway: list the origin as gateway.browserOrigins in its configuration"
    )]
    Origin,
    /// Sent by a page of another site that does not send its origin.
    #[error("a page of another site may not ask this gateway: use kubectl, or a page that sends its Origin")]
    CrossSite,
    /// A script from one cluster would keep running in the browser, in front of all clusters.
    #[error("a service worker may not come from here")]
    ServiceWorker,
}

/// The host and port that a request is sent to. `None` if it is ambiguous.
pub(super) fn requested_host<B>(request: &Request<B>) -> Option<&[u8]> {
    if let Some(authority) = request.uri().authority() {
        return Some(authority.as_str().as_bytes());
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    hosts.next().filter(|_| hosts.next().is_none()).map(HeaderValue::as_bytes)
}

/// Accepts a configured origin from any site, and refuses every other origin, whatever its site.
///
/// An origin that is the requested host itself belongs to no foreign page: a browser sends both truthfully,
/// and TLS has proved that the name is ours. It belongs to no page of ours either, because
/// [`harden_response`](super::harden_response) takes our origin away from every answer.
///
/// # Errors
/// The reason why the request is refused.
pub(super) fn check(
    headers: &HeaderMap,
    host: Option<&[u8]>,
    origins: &[String],
) -> Result<(), CrossOriginError> {
    if headers.contains_key(SERVICE_WORKER) {
        return Err(CrossOriginError::ServiceWorker);
    }
    let is_listed =
        |origin: &HeaderValue| origins.iter().any(|listed| listed.as_bytes() == origin.as_bytes());
    let is_itself = |origin: &HeaderValue| {
        origin
            .as_bytes()
            .strip_prefix(b"https://")
            .is_some_and(|origin| !origin.is_empty() && Some(origin) == host)
    };
    let mut sent = headers.get_all(ORIGIN).iter();
    match (sent.next(), sent.next()) {
        (None, _) => {}
        (Some(origin), None) if is_listed(origin) => return Ok(()),
        (Some(origin), None) if is_itself(origin) => {}
        (Some(_), _) => return Err(CrossOriginError::Origin),
    }
    let is_ours = |site: &HeaderValue| SITES.iter().any(|ours| ours.as_bytes() == site.as_bytes());
    if headers.get_all(SEC_FETCH_SITE).iter().all(is_ours) {
        Ok(())
    } else {
        Err(CrossOriginError::CrossSite)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs send no origin, or the host that they ask.
    #[test]
    fn a_request_needs_a_configured_origin_or_none_or_its_own_host() {
        use CrossOriginError::{CrossSite, Origin, ServiceWorker};

        let ours = [("origin", "https://console.example")];
        let itself = [("origin", "https://gateway.example:8443")];
        for (headers, verdict) in [
            (&[][..], Ok(())),
            (&[("sec-fetch-site", "none")], Ok(())),
            (&[("sec-fetch-site", "same-origin")], Ok(())),
            (&[("sec-fetch-site", "same-site")], Err(CrossSite)),
            (&[("sec-fetch-site", "cross-site")], Err(CrossSite)),
            (&[("sec-fetch-site", "Cross-Site")], Err(CrossSite)),
            (&[("sec-fetch-site", "")], Err(CrossSite)),
            (&[("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")], Err(CrossSite)),
            (&ours, Ok(())),
            (&itself, Ok(())),
            (&[itself[0], ("sec-fetch-site", "same-origin")], Ok(())),
            (&[itself[0], ("sec-fetch-site", "same-site")], Err(CrossSite)),
            (&[itself[0], ("sec-fetch-site", "cross-site")], Err(CrossSite)),
            (&[itself[0], itself[0]], Err(Origin)),
            (&[itself[0], ours[0]], Err(Origin)),
            (&[itself[0], ("service-worker", "script")], Err(ServiceWorker)),
            (&[("origin", "http://gateway.example:8443")], Err(Origin)),
            (&[("origin", "https://gateway.example")], Err(Origin)),
            (&[("origin", "https://gateway.example:8443/")], Err(Origin)),
            (&[("origin", "https://")], Err(Origin)),
            (&[ours[0], ("sec-fetch-site", "cross-site")], Ok(())),
            (&[ours[0], ours[0]], Err(Origin)),
            (&[ours[0], ("origin", "https://evil.example")], Err(Origin)),
            (&[("origin", "https://evil.example"), ("sec-fetch-site", "same-origin")], Err(Origin)),
            (&[("origin", "https://Console.example")], Err(Origin)),
            (&[("origin", "https://console.example:443")], Err(Origin)),
            (&[("origin", "http://console.example")], Err(Origin)),
            (&[("origin", "https://console.example.evil.example")], Err(Origin)),
            (&[("origin", "null")], Err(Origin)),
            (&[("origin", "")], Err(Origin)),
            (&[("service-worker", "script")], Err(ServiceWorker)),
            (&[ours[0], ("service-worker", "script")], Err(ServiceWorker)),
        ] {
            let map: HeaderMap = headers
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
                .collect();
            let listed = ["https://console.example".to_owned()];
            assert_eq!(check(&map, Some(b"gateway.example:8443"), &listed), verdict, "{headers:?}");
            let is_itself = headers.contains(&itself[0]) && verdict != Err(ServiceWorker);
            let otherwise = if is_itself { Err(Origin) } else { verdict };
            for host in [None, Some(b"other.example:8443".as_slice()), Some(b"")] {
                assert_eq!(check(&map, host, &listed), otherwise, "{headers:?} {host:?}");
            }
        }
    }

    #[test]
    fn the_requested_host_is_the_targets_authority_or_the_only_host() {
        let request = |target: &str, hosts: &[&'static str]| {
            let mut request = Request::get(target).body(()).unwrap();
            for host in hosts {
                request.headers_mut().append(HOST, HeaderValue::from_static(host));
            }
            requested_host(&request).map(<[u8]>::to_vec)
        };
        assert_eq!(request("/version", &["a.example:1"]).as_deref(), Some(b"a.example:1".as_slice()));
        assert_eq!(
            request("https://b.example:2/", &["a.example:1"]).as_deref(),
            Some(b"b.example:2".as_slice())
        );
        assert_eq!(request("/version", &["a.example:1", "a.example:1"]), None);
        assert_eq!(request("/version", &[]), None);
    }
}
