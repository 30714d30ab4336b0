//! Requests to the host cluster's API server, and usable answers.

use std::fs;

use serde_json::json;

use super::*;
use crate::identity::test_server::{SeenRequest, TestServer};

const PATH: &str = "/apis/example/v1/reviews";

#[tokio::test]
async fn the_status_of_an_answer_of_the_same_kind_is_returned() {
    let (at, home) =
        (TestServer::answering(|asked| (StatusCode::CREATED, reviewed(asked).to_string())).await, home());
    let api = api(&at, &home);
    fs::write(home.path().join("token"), "first\n").unwrap();
    assert_eq!(api.post(PATH, &object()).await.unwrap(), json!({ "said": 7 }));
    fs::write(home.path().join("token"), "second").unwrap();
    api.post(PATH, &object()).await.unwrap();

    let asked = at.seen();
    let [first, second] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!((&first.method, first.uri.path()), (&Method::POST, PATH));
    assert_eq!(
        (first.header("authorization"), second.header("authorization")),
        ("Bearer first", "Bearer second")
    );
    assert_eq!((first.header("accept"), first.header("content-type")), (JSON, JSON));
    assert_eq!(serde_json::from_slice::<Value>(&first.body).unwrap(), object());
}

#[tokio::test]
async fn an_answer_of_another_kind_or_without_success_is_an_error() {
    let at = TestServer::answering(|asked| {
        let mut answer = reviewed(asked);
        match asked.uri.path() {
            "/kind" => answer["kind"] = json!("Status"),
            "/version" => answer["apiVersion"] = json!("example/v2"),
            "/text" => return (StatusCode::OK, "no JSON".to_owned()),
            "/away" => return (StatusCode::BAD_GATEWAY, "no JSON".to_owned()),
            _ => return (StatusCode::FORBIDDEN, answer.to_string()),
        }
        (StatusCode::OK, answer.to_string())
    })
    .await;
    let home = home();
    fs::write(home.path().join("token"), "t").unwrap();
    let api = api(&at, &home);
    for path in ["/kind", "/version", "/text"] {
        let answer = api.post(path, &object()).await;
        assert!(matches!(answer, Err(HostApiError::Shape)), "{path}: {answer:?}");
    }
    let answer = api.post("/away", &object()).await;
    assert!(matches!(answer, Err(HostApiError::Status(StatusCode::BAD_GATEWAY))), "{answer:?}");
    let answer = api.post("/denied", &object()).await;
    assert!(matches!(answer, Err(HostApiError::Status(StatusCode::FORBIDDEN))), "{answer:?}");
    let answer = api.exchange(Method::GET, "/text", None, 1_024).await;
    assert!(matches!(answer, Err(HostApiError::Shape)), "{answer:?}");
    let (status, body) = api.exchange(Method::GET, "/away", None, 1_024).await.unwrap();
    assert_eq!((status, body), (StatusCode::BAD_GATEWAY, Value::Null));
    assert_eq!(at.seen().last().unwrap().header("content-type"), "");
}

#[tokio::test]
async fn without_a_token_no_request_is_sent() {
    let (at, home) =
        (TestServer::answering(|asked| (StatusCode::OK, reviewed(asked).to_string())).await, home());
    let (api, file) = (api(&at, &home), home.path().join("token"));
    let refused = async || matches!(api.post(PATH, &object()).await, Err(HostApiError::Token(_)));
    assert!(refused().await, "there is no file");
    for token in
        [String::new(), " \n".to_owned(), "a b".to_owned(), "ä".to_owned(), "x".repeat(TOKEN_BYTES_MAX + 1)]
    {
        fs::write(&file, &token).unwrap();
        assert!(refused().await, "{} bytes", token.len());
    }
    assert!(at.seen().is_empty());
    fs::write(&file, "x".repeat(TOKEN_BYTES_MAX)).unwrap();
    api.post(PATH, &object()).await.unwrap();
}

fn object() -> Value {
    json!({ "apiVersion": "example/v1", "kind": "Review", "spec": { "of": "something" } })
}

/// The same object with a status.
fn reviewed(asked: &SeenRequest) -> Value {
    let mut object: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
    object["status"] = json!({ "said": 7 });
    object
}

fn home() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn api(at: &TestServer, home: &tempfile::TempDir) -> HostApi {
    HostApi::new(at.url.parse().unwrap(), home.path().join("token"), at.tls())
}
