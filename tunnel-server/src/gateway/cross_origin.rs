//! The layer that refuses cross-origin requests of browsers, and keeps browsers from running what a cluster
//! answers.

pub(super) mod check;

use std::sync::Arc;

use http::header::{CONTENT_SECURITY_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Request};
use tower::{ServiceExt, service_fn};

use super::body::{AnswerBody, refused};
use super::guarded_body::CallerBody;
use super::layer::HttpService;
use check::{check, requested_host};

/// Refuses a request that a page of another origin than `origins` made a browser send, before the caller is
/// authenticated. Hardens every answer, so that a browser treats it as data only.
pub(super) fn check_origin<Out: From<AnswerBody> + 'static>(
    origins: Arc<[String]>,
    inner: impl HttpService<CallerBody, Out>,
) -> impl HttpService<CallerBody, Out> {
    service_fn(move |request: Request<CallerBody>| {
        let checked = check(request.headers(), requested_host(&request), &origins);
        let answer = checked.map(|()| inner.clone().oneshot(request));
        async move {
            let mut answer = match answer {
                Ok(answer) => answer.await?,
                Err(error) => refused(&error.into()).map(Out::from),
            };
            harden_response(answer.headers_mut());
            Ok(answer)
        }
    })
}

/// Keeps browsers from guessing an answer's type. A page in it has an origin of its own, runs no script and
/// sends no form. A content security policy of the cluster holds too, because browsers enforce each of
/// several policies.
fn harden_response(headers: &mut HeaderMap) {
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.append(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clusters_own_policy_stays_and_ours_is_added() {
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
