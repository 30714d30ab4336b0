//! Browsers: what a page of somebody else's makes a browser ask is refused, and what an edge answers runs nowhere.
//!
//! A browser shows a client certificate to whichever page asks, and opens a WebSocket for any page, so that being known says
//! nothing of who wanted the request. Programs send none of the headers that are looked at here, but for an `Origin` that is
//! the gateway itself, as Python's websocket-client does.
//! <https://www.w3.org/TR/fetch-metadata/>, <https://www.w3.org/TR/service-workers/#service-worker-script-request>

use std::sync::Arc;

use http::header::{CONTENT_SECURITY_POLICY, HOST, ORIGIN, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use tower::{ServiceExt, service_fn};

use super::body::AnswerBody;
use super::refused;
use super::stack::{CallerBody, HttpService};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SERVICE_WORKER: HeaderName = HeaderName::from_static("service-worker");

/// The sites from which a browser may ask where no page of another origin stands behind it: nobody's, because a person typed
/// the address, and our own.
const SITES: [&str; 2] = ["none", "same-origin"];

/// Why what a browser asks is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CrossOriginError {
    /// Asked by a page whose origin is not configured, or by one that has none.
    #[error(
        "a page of this origin may not ask this gateway: list the origin as gateway.browserOrigins in its configuration"
    )]
    Origin,
    /// Asked by a page of another site, which does not say its origin.
    #[error("a page of another site may not ask this gateway: use kubectl, or a page that sends its Origin")]
    CrossSite,
    /// What an edge answers would go on running in the browser, in front of all clusters.
    #[error("a service worker may not come from here")]
    ServiceWorker,
}

/// Refuses what a page that is not of one of these `origins` makes a browser ask, before anybody asks who it is; and lets no
/// answer be more to a browser than data.
pub(super) fn check_origin(
    origins: Arc<[String]>,
    inner: impl HttpService<CallerBody, AnswerBody>,
) -> impl HttpService<CallerBody, AnswerBody> {
    service_fn(move |request: Request<CallerBody>| {
        let fault = check(request.headers(), asked(&request), &origins);
        let answer = fault.map(|()| inner.clone().oneshot(request));
        async move {
            let mut answer = match answer {
                Ok(answer) => answer.await?,
                Err(fault) => refused(&fault.into()),
            };
            harden_response(answer.headers_mut());
            Ok(answer)
        }
    })
}

/// The host and port that a request asks; none where it is not clear which.
fn asked<B>(request: &Request<B>) -> Option<&[u8]> {
    if let Some(authority) = request.uri().authority() {
        return Some(authority.as_str().as_bytes());
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    hosts.next().filter(|_| hosts.next().is_none()).map(HeaderValue::as_bytes)
}

/// A configured origin may ask from whichever site; the others may not, whatever they say of their site.
///
/// Where the origin is what is asked, no foreign page stands behind it: a browser says both truly, and a name is ours that TLS
/// has proved. Nor does a page of our own: none of our answers has our origin in a browser, because [`harden_response`] takes it away.
fn check(headers: &HeaderMap, asked: Option<&[u8]>, origins: &[String]) -> Result<(), CrossOriginError> {
    if headers.contains_key(SERVICE_WORKER) {
        return Err(CrossOriginError::ServiceWorker);
    }
    let is_listed =
        |origin: &HeaderValue| origins.iter().any(|listed| listed.as_bytes() == origin.as_bytes());
    let is_itself = |origin: &HeaderValue| {
        origin
            .as_bytes()
            .strip_prefix(b"https://")
            .is_some_and(|origin| !origin.is_empty() && Some(origin) == asked)
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

/// No browser guesses what an answer is, and a page in it has an origin of its own, runs no script and sends no form. What an
/// edge says to the same end still holds: of several policies each does.
fn harden_response(headers: &mut HeaderMap) {
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.append(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_configured_origin_may_ask_and_programs_send_none_or_what_they_ask() {
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
            for asked in [None, Some(b"other.example:8443".as_slice()), Some(b"")] {
                assert_eq!(check(&map, asked, &listed), otherwise, "{headers:?} {asked:?}");
            }
        }
    }

    #[test]
    fn what_is_asked_is_the_targets_authority_or_the_one_host() {
        let request = |target: &str, hosts: &[&'static str]| {
            let mut request = Request::get(target).body(()).unwrap();
            for host in hosts {
                request.headers_mut().append(HOST, HeaderValue::from_static(host));
            }
            asked(&request).map(<[u8]>::to_vec)
        };
        assert_eq!(request("/version", &["a.example:1"]).as_deref(), Some(b"a.example:1".as_slice()));
        assert_eq!(
            request("https://b.example:2/", &["a.example:1"]).as_deref(),
            Some(b"b.example:2".as_slice())
        );
        assert_eq!(request("/version", &["a.example:1", "a.example:1"]), None);
        assert_eq!(request("/version", &[]), None);
    }

    #[test]
    fn an_edges_own_words_stay_beside_ours_but_none_takes_their_place() {
        let mut headers = HeaderMap::new();
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("sniff"));
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'"));
        harden_response(&mut headers);
        assert_eq!(headers.get_all(X_CONTENT_TYPE_OPTIONS).iter().collect::<Vec<_>>(), ["nosniff"]);
        assert_eq!(
            headers.get_all(CONTENT_SECURITY_POLICY).iter().collect::<Vec<_>>(),
            ["default-src 'none'", "sandbox"]
        );
    }
}
