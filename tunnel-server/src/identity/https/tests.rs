//! The servers that the client trusts, and the answers that it accepts.

use http::{Method, StatusCode};

use super::*;
use crate::identity::test_server::TestServer;

const BYTES_MAX: usize = 16;

#[tokio::test]
async fn a_complete_answer_is_returned_and_a_too_long_one_refused() {
    let at = TestServer::answering(|asked| {
        let length = asked.uri.path().trim_start_matches('/').parse().unwrap_or_default();
        (StatusCode::IM_A_TEAPOT, "x".repeat(length))
    })
    .await;
    let fetch = HttpsClient::new(at.tls(), None);

    let full = fetch.send(request(&format!("{}/{BYTES_MAX}?a=b", at.url)), BYTES_MAX).await.unwrap();
    let beyond = fetch.send(request(&format!("{}/{}", at.url, BYTES_MAX + 1)), BYTES_MAX).await;
    let empty = fetch.send(request(&at.url), BYTES_MAX).await.unwrap();

    assert_eq!((full.status(), full.body().len()), (StatusCode::IM_A_TEAPOT, BYTES_MAX));
    assert!(matches!(beyond, Err(HttpsError::Body { max: BYTES_MAX, .. })), "{beyond:?}");
    assert!(empty.body().is_empty());
    let asked = at.seen();
    assert_eq!((asked[0].method.clone(), asked[0].uri.to_string()), (Method::PUT, "/16?a=b".to_owned()));
    assert_eq!(format!("https://{}", asked[0].header("host")), at.url);
    assert_eq!((&asked[0].body[..], asked[2].uri.path()), (&b"asked"[..], "/"));
}

#[tokio::test]
async fn only_https_servers_with_a_trusted_name_are_called() {
    let at = TestServer::answering(|_| (StatusCode::OK, String::new())).await;
    let other = TestServer::answering(|_| (StatusCode::OK, String::new())).await;
    let port = at.url.rsplit(':').next().unwrap();
    let own = HttpsClient::new(at.tls(), None);
    for url in [format!("http://localhost:{port}/"), format!("https://a@localhost:{port}/"), "/".to_owned()] {
        let refused = own.send(request(&url), BYTES_MAX).await;
        assert!(matches!(refused, Err(HttpsError::Url(_))), "{url}: {refused:?}");
    }
    let elsewhere = own.send(request(&format!("https://127.0.0.1:{port}/")), BYTES_MAX).await;
    assert!(matches!(elsewhere, Err(HttpsError::Connect(..))), "{elsewhere:?}");
    let strange = HttpsClient::new(other.tls(), None).send(request(&at.url), BYTES_MAX).await;
    assert!(matches!(strange, Err(HttpsError::Connect(..))), "{strange:?}");
    assert!(at.seen().is_empty(), "nothing was said to anybody");
    // The certificate has another name than the URL.
    let named = HttpsClient::new(at.tls(), Some("localhost".try_into().unwrap()));
    named.send(request(&format!("https://127.0.0.1:{port}/")), BYTES_MAX).await.unwrap();
    assert_eq!(at.seen().len(), 1);
}

/// As after a change of the file of its CA.
#[tokio::test]
async fn other_roots_count_from_the_next_connection_on() {
    let at = TestServer::answering(|_| (StatusCode::OK, String::new())).await;
    let other = TestServer::answering(|_| (StatusCode::OK, String::new())).await;
    let config = |server: &TestServer| Arc::clone(&server.tls().borrow());
    let (roots, tls) = watch::channel(config(&at));
    let client = HttpsClient::new(tls, None);
    assert!(client.send(request(&at.url), BYTES_MAX).await.is_ok());

    roots.send_replace(config(&other));

    let refused = client.send(request(&at.url), BYTES_MAX).await;
    assert!(matches!(refused, Err(HttpsError::Connect(..))), "{refused:?}");
    assert!(client.send(request(&other.url), BYTES_MAX).await.is_ok());
}

#[test]
fn a_request_goes_to_the_host_and_the_port_of_its_url() {
    for (url, host, port) in [
        ("https://issuer.example/x", "issuer.example", 443),
        ("https://issuer.example:8443/x", "issuer.example", 8443),
        ("https://[2001:db8::1]/x", "2001:db8::1", 443),
    ] {
        let (request, to, at) = addressed(request(url)).unwrap();
        assert_eq!((to.as_str(), at, request.uri().path()), (host, port, "/x"), "{url}");
    }
}

fn request(url: &str) -> Request<Bytes> {
    Request::put(url).body(Bytes::from_static(b"asked")).unwrap()
}
