//! Lists that are reduced by a question: what the API server is asked, and what comes back.

use std::future::{Ready, ready};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use serde_json::{Value, json};
use summary::EDGE_ANSWER_TYPE;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tunnel_agent::apiserver::Timeouts;
use tunnel_agent::config;
use tunnel_agent::forward::{FairQueue, Forwarder};

use crate::fake::{Log, http2, pair, soon};
use crate::forwarding::stream_with;

const QUESTION: &str = r#"{"groupBy":[".phase"],"values":[{"sum":".n"}]}"#;

/// The head and the body of an answer, and the codes of errors.
struct Reduced {
    head: String,
    body: String,
    codes: Vec<String>,
    asked: Vec<String>,
}

/// Lists pods with a question, at an API server that answers each path so.
async fn reduced(
    question: &'static str,
    answer: impl Fn(&str) -> (StatusCode, String) + Clone + Send + Sync + 'static,
) -> Reduced {
    let (asked, errors) = (Log::default(), Log::default());
    let seen = asked.clone();
    let (scope, _fake, api_server) = pair(&["h2"], Timeouts::default(), move |connection, _| {
        let (seen, answer) = (seen.clone(), answer.clone());
        http2(connection, move |request: Request<Incoming>| answered(&request, &seen, &answer))
    })
    .await;
    let queue = FairQueue::new(config::Limits::default());
    let forwarder = Forwarder::new(api_server, None, queue, scope.clone());
    let mut stream = stream_with(&scope, forwarder, ("alice", false, question), errors.clone());
    let head = "GET /api/v1/pods?labelSelector=a HTTP/1.1\r\nHost: g\r\nAccept: application/json;as=Table\r\n\
                Connection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    Reduced { head: head.to_owned(), body: body.to_owned(), codes: errors.lines(), asked: asked.lines() }
}

fn answered(
    request: &Request<Incoming>,
    seen: &Log,
    answer: &impl Fn(&str) -> (StatusCode, String),
) -> Ready<Response<Full<Bytes>>> {
    let header = |name: &str| request.headers().get(name).map_or("", |value| value.to_str().unwrap());
    let target = request.uri().path_and_query().unwrap().as_str();
    seen.add(format!("{target} {} {}", header("impersonate-user"), header("accept")));
    let (status, body) = answer(target);
    ready(Response::builder().status(status).body(Full::from(body)).unwrap())
}

fn page(objects: &[Value], next: &str) -> (StatusCode, String) {
    let list = json!({ "kind": "PodList", "metadata": { "continue": next }, "items": objects });
    (StatusCode::OK, list.to_string())
}

#[tokio::test]
async fn a_list_is_reduced_page_by_page_under_the_callers_identity() {
    let reduced = reduced(QUESTION, |target| {
        let pod = |phase: &str, n: u32| json!({ "phase": phase, "n": n });
        if target.contains("continue") {
            page(&[pod("Running", 2)], "")
        } else {
            page(&[pod("Running", 1), pod("Pending", 7)], "a/b")
        }
    })
    .await;
    assert!(reduced.head.starts_with("HTTP/1.1 200 OK"), "{}", reduced.head);
    assert!(reduced.head.contains(EDGE_ANSWER_TYPE), "{}", reduced.head);
    let answer: Value = serde_json::from_str(&reduced.body).unwrap();
    assert_eq!(
        answer["summary"]["groups"],
        json!([
            { "key": ["Pending"], "count": 1, "figures": [{ "count": 1, "sum": "7" }] },
            { "key": ["Running"], "count": 2, "figures": [{ "count": 2, "sum": "3" }] },
        ])
    );
    assert_eq!(
        reduced.asked,
        [
            "/api/v1/pods?labelSelector=a&limit=500 alice application/json",
            "/api/v1/pods?labelSelector=a&limit=500&continue=a%2Fb alice application/json",
        ]
    );
}

#[tokio::test]
async fn a_refusal_of_the_api_server_is_passed_on_as_it_is() {
    let status = r#"{"kind":"Status","reason":"Forbidden","message":"alice cannot list pods"}"#;
    let reduced = reduced(QUESTION, move |_| (StatusCode::FORBIDDEN, status.to_owned())).await;
    assert!(reduced.head.starts_with("HTTP/1.1 403 Forbidden"), "{}", reduced.head);
    assert_eq!(reduced.body, status);
    // So is one in the middle: a token that has expired.
    let gone = self::reduced(QUESTION, |target| {
        if target.contains("continue") { (StatusCode::GONE, "expired".to_owned()) } else { page(&[], "x") }
    })
    .await;
    assert!(gone.head.starts_with("HTTP/1.1 410 Gone"), "{}", gone.head);
}

#[tokio::test]
async fn garbage_and_questions_that_cannot_be_answered_are_failures_in_words() {
    for (question, body, reason) in [
        (QUESTION, "<html>", "NotAList"),
        (QUESTION, r#"{"kind":"Pod","metadata":{}}"#, "NotAList"),
        (QUESTION, r#"{"kind":"PodList","items":[{}"#, "NotAList"),
        (r#"{"later":1}"#, r#"{"kind":"PodList","items":[]}"#, "NotAQuestion"),
    ] {
        let reduced = reduced(question, move |_| (StatusCode::OK, body.to_owned())).await;
        let answer: Value = serde_json::from_str(&reduced.body).unwrap();
        assert_eq!(answer["failed"]["reason"], reason, "{body}: {answer}");
        assert!(!answer["failed"]["message"].as_str().unwrap().is_empty());
    }
    let large = |number: usize| json!({ "phase": format!("{number:0>250}"), "n": "x".repeat(100) });
    let many: Vec<Value> = (0..100).map(large).collect();
    let wide = r#"{"groupBy":[".phase",".phase",".phase"]}"#;
    let reduced = reduced(wide, move |_| page(&many, "")).await;
    assert!(reduced.body.contains(r#""reason":"TooLarge""#), "{}", reduced.body);
    assert!(reduced.codes.is_empty(), "{:?}", reduced.codes);
}
