//! A request that can be parsed in two ways is refused, or forwarded as the one that was authorized.

use std::collections::BTreeSet;
use std::io;

use tests::caller::{GATEWAY, Http2Caller, SOON, send_all};
use tests::fake_api::{Behaviour, HttpVersion};
use tests::fake_edge::FakeEdge;
use tests::raw_http2::{RawHttp2, RequestOutcome};
use tests::rig::{Reply, TOKEN, ask_raw};

const PATH: &str = "/clusters/edge-a/api/v1/namespaces";

/// Host and credential of a request that is allowed.
const PLAIN: &str = "Host: {GATEWAY}\r\n{auth}";

/// A request that is hidden after another one.
const SMUGGLED: &str = "GET /clusters/edge-a/smuggled HTTP/1.1\r\nHost: x\r\n\r\n";

/// Each in the words of [`written`].
const ROWS: [(&str, &str); 32] = [
    (
        "CL and TE",
        "POST {PATH} HTTP/1.1\r\n{plain}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}",
    ),
    (
        "TE and CL",
        "POST {PATH} HTTP/1.1\r\n{plain}Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n{smuggled}",
    ),
    (
        "TE twice",
        "POST {PATH} HTTP/1.1\r\n{plain}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n{smuggled}",
    ),
    ("TE x", "POST {PATH} HTTP/1.1\r\n{plain}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{smuggled}"),
    ("TE tab", "POST {PATH} HTTP/1.1\r\n{plain}Transfer-Encoding: chunked\t\r\n\r\n0\r\n\r\n"),
    (
        "TE then other",
        "POST {PATH} HTTP/1.1\r\n{plain}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{smuggled}",
    ),
    (
        "CL differs",
        "POST {PATH} HTTP/1.1\r\n{plain}Content-Length: 2\r\nContent-Length: 3\r\n\r\nab{smuggled}",
    ),
    ("CL list", "POST {PATH} HTTP/1.1\r\n{plain}Content-Length: 2, 3\r\n\r\nab{smuggled}"),
    ("CL same", "POST {PATH} HTTP/1.1\r\n{plain}Content-Length: 2\r\nContent-Length: 2\r\n\r\nab"),
    ("CL plus", "POST {PATH} HTTP/1.1\r\n{plain}Content-Length: +2\r\n\r\nab{smuggled}"),
    ("CL minus", "POST {PATH} HTTP/1.1\r\n{plain}Content-Length: -2\r\n\r\nab{smuggled}"),
    ("CL huge", "POST {PATH} HTTP/1.1\r\n{plain}Content-Length: 99999999999999999999999\r\n\r\nab{smuggled}"),
    ("fold", "GET {PATH} HTTP/1.1\r\n{plain}X-Fold: a\r\n b\r\n\r\n"),
    ("fold of CL", "POST {PATH} HTTP/1.1\r\n{plain}Content-Length:\r\n 2\r\n\r\nab{smuggled}"),
    ("space before colon", "POST {PATH} HTTP/1.1\r\n{plain}Content-Length : 2\r\n\r\nab{smuggled}"),
    (
        "space before colon of TE",
        "POST {PATH} HTTP/1.1\r\n{plain}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{smuggled}",
    ),
    ("bare LF", "GET {PATH} HTTP/1.1\nHost: {GATEWAY}\n{auth_lf}\n"),
    ("bare CR", "GET {PATH} HTTP/1.1\r\n{plain}X-A: b\rX-B: c\r\n\r\n"),
    ("NUL", "GET {PATH} HTTP/1.1\r\n{plain}X-A: b\0c\r\n\r\n"),
    ("two hosts", "GET {PATH} HTTP/1.1\r\n{plain}Host: edge-b.clusters.test\r\n\r\n"),
    ("two equal hosts", "GET {PATH} HTTP/1.1\r\n{plain}Host: {GATEWAY}\r\n\r\n"),
    ("no host", "GET {PATH} HTTP/1.1\r\n{auth}\r\n"),
    ("HTTP/1.0", "GET {PATH} HTTP/1.0\r\n{plain}\r\n"),
    (
        "HTTP/1.0 chunked",
        "POST {PATH} HTTP/1.0\r\n{plain}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}",
    ),
    ("HTTP/1.0 without length", "POST {PATH} HTTP/1.0\r\n{plain}\r\nab{smuggled}"),
    ("HTTP/1.2", "GET {PATH} HTTP/1.2\r\n{plain}\r\n"),
    (
        "chunk extension",
        "POST {PATH} HTTP/1.1\r\n{plain}Transfer-Encoding: chunked\r\n\r\n2;a=\"b\"\r\nab\r\n0\r\n\r\n",
    ),
    ("chunk LF", "POST {PATH} HTTP/1.1\r\n{plain}Transfer-Encoding: chunked\r\n\r\n2\nab\n0\n\n{smuggled}"),
    (
        "chunk overflow",
        "POST {PATH} HTTP/1.1\r\n{plain}Transfer-Encoding: chunked\r\n\r\n10000000000000002\r\nab\r\n0\r\n\r\n{smuggled}",
    ),
    ("GET with a body", "GET {PATH} HTTP/1.1\r\n{plain}Content-Length: 2\r\n\r\nab"),
    ("expect", "POST {PATH} HTTP/1.1\r\n{plain}Expect: 100-continue\r\nContent-Length: 2\r\n\r\nab"),
    ("connect", "CONNECT edge-a:443 HTTP/1.1\r\n{plain}\r\n{smuggled}"),
];

/// As many requests arrive as were answered, and they are the ones that were sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_the_answered_requests_arrive() {
    let edge = setup().await;
    let mut results = Vec::new();
    for (name, row) in ROWS {
        let before = edge.fake.requests().len();
        // A connection that is closed without an answer is a refusal, too.
        let reply = ask_raw(edge.rig.gateway(), &edge.rig.server_ca(), None, &written(row)).await;
        let arrived = &edge.fake.requests()[before..];
        let statuses = reply.as_ref().map(final_statuses).map_err(io::Error::kind);
        results.push(format!("{name}: {statuses:?}"));
        assert!(
            statuses.as_ref().is_ok_and(|statuses| statuses.len() == 1) || statuses.is_err(),
            "{results:?}"
        );
        assert_eq!(arrived.len(), usize::from(statuses == Ok(vec![200])), "{results:?}");
        for request in arrived {
            assert_eq!(request.target, "/api/v1/namespaces", "{name}");
            assert!(!String::from_utf8_lossy(&request.body).contains("smuggled"), "{name}");
            let framings = request.header("content-length").len() + request.header("transfer-encoding").len();
            assert!(framings <= 1, "{name}: {:?}", request.headers);
        }
    }
    eprintln!("{results:#?}");
    let seen: BTreeSet<String> = edge.fake.requests().into_iter().map(|request| request.target).collect();
    assert_eq!(seen.len(), 1, "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_http2_lengths_and_hosts_that_lie_are_refused() {
    let edge = setup().await;
    for headers in [
        &[("content-length", "5")][..],
        &[("content-length", "1")],
        &[("content-length", "2"), ("content-length", "3")],
        &[("host", "edge-b.clusters.test")],
        &[("host", GATEWAY), ("host", GATEWAY)],
    ] {
        let before = edge.fake.requests().len();
        let mut caller = Http2Caller::dial(&edge.rig).await;
        let (answer, mut sending) = caller.send("POST", PATH, headers, false);
        let _ = send_all(&mut sending, "ab".into(), true).await; // It may be refused before.

        let answer = tokio::time::timeout(SOON, answer).await.unwrap();

        let status = answer.as_ref().ok().map(|answer| answer.status().as_u16());
        assert!(status.is_none_or(|status| status >= 400), "{headers:?}: {status:?}");
        let complete =
            edge.fake.requests()[before..].iter().filter(|request| request.body_ended.is_some()).count();
        assert_eq!(complete, 0, "{headers:?}: a whole request arrived");
    }
}

/// An HTTP/1.1 request made of such a head could differ from the one that was checked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_http2_heads_that_no_library_sends_reach_nobody() {
    let edge = setup().await;
    let authorization = format!("Bearer {TOKEN}");
    let plain: [(&str, &str); 5] = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", GATEWAY),
        (":path", PATH),
        ("authorization", &authorization),
    ];
    let with = |name: &'static str, value: &'static str| {
        let mut head = plain.to_vec();
        head.push((name, value));
        head
    };
    let instead = |name: &str, value: &'static str| {
        let mut head = plain.to_vec();
        head.iter_mut().filter(|(known, _)| *known == name).for_each(|(_, output)| *output = value);
        head
    };
    let without = |name: &str| plain.iter().filter(|(known, _)| *known != name).copied().collect::<Vec<_>>();
    for head in [
        with("X-Upper", "1"),
        with("x y", "1"),
        with("x:y", "1"),
        with("", "1"),
        with("x", "a\r\nimpersonate-user: root"),
        with("x", "a\nb"),
        with("x", "a\0b"),
        with("connection", "x"),
        with("proxy-connection", "x"),
        with("keep-alive", "x"),
        with("transfer-encoding", "chunked"),
        with("upgrade", "websocket"),
        with("te", "gzip"),
        with("content-length", "5"),
        with(":path", "/clusters/edge-b/version"),
        with(":unknown", "x"),
        with(":status", "200"),
        with(":protocol", "websocket"),
        [vec![plain[4]], plain[..4].to_vec()].concat(),
        instead(":method", "G ET"),
        instead(":method", "GET\r\n"),
        instead(":path", ""),
        instead(":path", "/a b"),
        instead(":path", "/a\r\nHost: x"),
        instead(":path", "/a\0"),
        instead(":scheme", "ht tp"),
        instead(":authority", "gateway.test\r\nx: y"),
        instead(":authority", "user@edge-a.clusters.test"),
        without(":method"),
        without(":path"),
        without(":authority"),
        [instead(":method", "CONNECT"), vec![(":protocol", "websocket")]].concat(),
        vec![(":method", "CONNECT"), (":authority", "edge-a:443"), ("authorization", &authorization)],
    ] {
        let raw = head.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect();
        let outcome = RawHttp2::dial(&edge.rig, GATEWAY, None).await.ask(&[raw]).await;
        // A connection that is closed is a refusal, too.
        assert!(
            outcome.is_err() || outcome.is_ok_and(|outcome| outcome[0] != RequestOutcome::Ok),
            "{head:?}"
        );
        assert!(edge.fake.requests().is_empty(), "{head:?}: {:?}", edge.fake.requests());
    }
    let raw = plain.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect();
    let asked = RawHttp2::dial(&edge.rig, GATEWAY, None).await.ask(&[raw]).await.unwrap();
    assert_eq!(asked, [RequestOutcome::Ok], "without any of it all is well");
}

async fn setup() -> FakeEdge {
    let edge = FakeEdge::start(HttpVersion::Http1).await;
    edge.fake.otherwise(Behaviour::json("{}"));
    edge
}

/// A row's bytes, with `Connection: close` in the first head, so that the answer has an end.
fn written(row: &str) -> Vec<u8> {
    let auth = format!("Authorization: Bearer {TOKEN}\r\n");
    let text = row.replace("{plain}", PLAIN).replace("{smuggled}", SMUGGLED).replace("{PATH}", PATH);
    let text = text.replace("{auth_lf}", &auth.replace("\r\n", "\n")).replace("{auth}", &auth);
    let text = text.replace("{GATEWAY}", GATEWAY);
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    text.replacen(end, &format!("{end}Connection: close{end}"), 1).into_bytes()
}

/// The statuses of all answers on a connection, without the interim ones.
fn final_statuses(reply: &Reply) -> Vec<u16> {
    let all = format!("{}\r\n\r\n{}", reply.head, reply.body);
    let statuses = all.split("HTTP/1.").skip(1).filter_map(|answer| answer.get(2..5)?.parse().ok());
    statuses.filter(|status| *status >= 200).collect()
}
