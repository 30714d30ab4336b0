//! Tests of the query that goes to the cluster.

use super::*;

/// By path, by host name and without either, for every verb and for upgrades.
#[test]
fn the_canonical_query_is_what_goes_to_the_cluster() {
    for (sent, forwarded) in [
        ("/api/v1/pods?", "/api/v1/pods"),
        (
            "/api/v1/pods?w%61tch=1&labelSelector=a%20in%20(b,c)",
            "/api/v1/pods?watch=1&labelSelector=a+in+%28b%2Cc%29",
        ),
        (
            "/api/v1/namespaces/a/pods/x/exec?command=a%2bb&command&tty",
            "/api/v1/namespaces/a/pods/x/exec?command=a%2Bb&command=&tty=",
        ),
        ("/version?a=/../&b=//", "/version?a=%2F..%2F&b=%2F%2F"),
        ("/api/v1/namespaces/a%3Ab/pods/x%20y?q=%c3%a4", "/api/v1/namespaces/a%3Ab/pods/x%20y?q=%C3%A4"),
    ] {
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS]
        {
            for (host, target) in
                [(PATH_HOST, format!("/clusters/edge-a{sent}")), (CLUSTER_HOST, sent.to_owned())]
            {
                let parsed = parse(None, Some(host), &method, target.as_bytes(), None);
                let Ok(ParsedRequest::Cluster(action)) = parsed else {
                    panic!("{method} {target}: {parsed:?}")
                };
                assert_eq!(action.path().as_str(), forwarded, "{method} {target}");
            }
        }
        assert_eq!(canonical_target(sent).unwrap(), forwarded);
        assert_eq!(canonical_target(forwarded).unwrap(), forwarded);
    }
    let exec = "/api/v1/namespaces/a/pods/x/exec?command=a%2bb";
    let upgraded =
        Action::of_cluster("edge-a".parse().unwrap(), &Method::GET, exec, Some(UpgradeProtocol::WebSocket));
    assert_eq!(upgraded.unwrap().path(), "/api/v1/namespaces/a/pods/x/exec?command=a%2Bb");
}

#[test]
fn a_query_with_two_readings_is_refused_for_every_verb() {
    use ActionError::{AmbiguousWatch, QueryEncoding, Semicolon, TooManyParameters};
    let flood = format!("watch=1{}", "&a".repeat(QUERY_PAIRS_MAX));
    for path in
        ["/api/v1/pods", "/api/v1/namespaces/a/pods/x", "/api/v1/namespaces/a/pods/x/exec", "/version", "/"]
    {
        for (query, error) in [
            ("watch=%ff", QueryEncoding),
            ("watch=%c0%80&fieldSelector=x", QueryEncoding),
            ("watch=%80&timeoutSeconds=x", QueryEncoding),
            ("a=%zz", QueryEncoding),
            ("watch=1;x", Semicolon),
            ("watch=fal%c5%bfe", AmbiguousWatch),
            (&flood, TooManyParameters),
        ] {
            for method in [Method::GET, Method::HEAD, Method::POST, Method::DELETE] {
                let target = format!("/clusters/edge-a{path}?{query}");
                let parsed = parse(None, Some(PATH_HOST), &method, target.as_bytes(), None);
                assert_eq!(parsed, Err(error.clone()), "{method} {path} {query:.40}");
            }
        }
    }
}

#[test]
fn a_query_that_grows_beyond_the_limit_by_encoding_is_refused() {
    let fits = (TARGET_BYTES_MAX - "/x?a=".len()) / 3;
    assert!(canonical_target(&format!("/x?a={}", ",".repeat(fits))).is_ok());
    assert_eq!(canonical_target(&format!("/x?a={}", ",".repeat(fits + 1))), Err(TooLong));
}
