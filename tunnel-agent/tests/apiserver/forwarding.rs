//! The part of a caller's request that reaches the API server, and the part of the answer that comes back.

use std::sync::Arc;

use bytes::Bytes;
use daemon::Scope;
use daemon::metrics::requests::RequestMetrics;
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use proto::AllowList;
use proto::wire::Assert;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tunnel_agent::apiserver::{AnswerDeadline, ApiServer, Timeouts};
use tunnel_agent::config;
use tunnel_agent::forward::{FairQueue, ForwardError, Forwarder};
use tunnel_agent::guard::{Cleared, Guard};

use crate::fake::{Log, http1, http2, pair, soon};

#[tokio::test]
async fn the_api_server_sees_our_identity_once_and_nothing_of_the_callers() {
    for protocol in ["h2", "http/1.1"] {
        let seen = asked(
            protocol,
            "GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer stolen\r\nCookie: a=b\r\n\
             X-Remote-User: root\r\nX-Remote-Group: system:masters\r\nX-Forwarded-For: 1.2.3.4\r\nVia: x\r\n\
             Connection: x-remote-extra, close\r\n\r\n",
        )
        .await;
        let refused_or_clean = seen.unwrap_err();
        assert_eq!(refused_or_clean, "BadRequest", "Connection may not name X-Remote-*");

        let seen = asked(
            protocol,
            "GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer stolen\r\nCookie: a=b\r\n\
             X-Remote-User: root\r\nX-Remote-Group: system:masters\r\nX-Forwarded-For: 1.2.3.4\r\nVia: x\r\n\
             Audit-ID: forged\r\nAccept: application/json\r\nConnection: close\r\n\r\n",
        )
        .await
        .unwrap();

        assert_eq!(lines(&seen, "authorization"), ["Bearer token-1"], "{seen}");
        assert_eq!(lines(&seen, "impersonate-user"), ["Łukasz"], "{seen}");
        assert_eq!(lines(&seen, "impersonate-group"), ["dev", "ops"], "{seen}");
        assert_eq!(lines(&seen, "audit-id"), ["id-1"], "{seen}");
        assert_eq!(lines(&seen, "accept"), ["application/json"], "{seen}");
        for name in ["cookie", "x-remote-user", "x-remote-group", "x-forwarded-for", "via", "connection"] {
            assert_eq!(lines(&seen, name), Vec::<&str>::new(), "{name}: {seen}");
        }
        assert!(seen.starts_with("GET /api/v1/pods?watch=1\n"), "{seen}");
        assert!(!seen.contains("gateway"), "{seen}");
    }
}

#[tokio::test]
async fn no_trick_removes_or_adds_an_identity() {
    for trick in [
        "Impersonate-User: root",
        "impersonate-group: system:masters",
        "Impersonate-Extra-scopes: x",
        "Impersonate-Uid: 0",
        "Impersonate_User: root",
        "Connection: Impersonate-User",
        "Connection: close, impersonate-group",
        "Connection: \"Impersonate-User\"",
        "Connection: Authorization",
        "Proxy-Connection: Impersonate-User",
        "Connection: Audit-ID",
        "Connection: Host",
        "X_Remote_User: root",
    ] {
        let seen = asked("h2", &format!("GET / HTTP/1.1\r\nHost: gateway\r\n{trick}\r\n\r\n")).await;
        assert_eq!(seen, Err("BadRequest".to_owned()), "{trick}");
    }
}

#[tokio::test]
async fn only_paths_are_passed_on() {
    for head in ["GET https://other/api HTTP/1.1", "OPTIONS * HTTP/1.1", "CONNECT other:443 HTTP/1.1"] {
        let seen = asked("h2", &format!("{head}\r\nHost: gateway\r\n\r\n")).await;
        assert_eq!(seen, Err("BadRequest".to_owned()), "{head}");
    }
}

#[tokio::test]
async fn hop_by_hop_and_forbidden_headers_are_removed_from_the_answer() {
    let (scope, _fake, api_server) = pair(&["http/1.1"], Timeouts::default(), |connection, _| {
        http1(connection, |_| async {
            let mut response = Response::new(Full::from("body"));
            let headers = response.headers_mut();
            for (name, value) in [
                ("set-cookie", "a=b"),
                ("alt-svc", "h3"),
                ("connection", "x-hop"),
                ("x-hop", "1"),
                ("warning", "299 - \"old\""),
                ("audit-id", "id-1"),
            ] {
                headers.append(name, value.parse().unwrap());
            }
            response
        })
    })
    .await;

    let mut stream = stream(&scope, api_server, Log::default());
    stream.write_all(b"GET / HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();

    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nbody"), "{answer}");
    assert!(answer.contains("warning: 299") && answer.contains("audit-id: id-1"), "{answer}");
    for name in ["set-cookie", "alt-svc", "x-hop"] {
        assert!(!answer.contains(name), "{answer}");
    }
}

#[tokio::test]
async fn a_body_travels_whole_both_ways() {
    let (scope, _fake, api_server) = pair(&["h2"], Timeouts::default(), |connection, _| {
        http2(connection, |request: Request<Incoming>| async { Response::new(request.into_body()) })
    })
    .await;
    let body = "x".repeat(3 * 1024 * 1024);

    let (mut read, mut write) = tokio::io::split(stream(&scope, api_server, Log::default()));
    let head =
        format!("POST / HTTP/1.1\r\nHost: g\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    let sent = body.clone();
    scope.spawn(async move {
        write.write_all(head.as_bytes()).await.unwrap();
        write.write_all(sent.as_bytes()).await.unwrap();
    });
    let mut answer = String::new();
    soon(read.read_to_string(&mut answer)).await.unwrap();

    let (head, echoed) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(echoed == body, "{} bytes came back", echoed.len());
}

/// The tunnel's stream, with the agent's side served as `streams` does: one exchange, and an error ends it.
pub(crate) fn stream(scope: &Scope, api_server: ApiServer, errors: Log) -> DuplexStream {
    let forwarder =
        Forwarder::new(api_server, None, FairQueue::new(config::Limits::default()), scope.clone());
    stream_of(scope, forwarder, ("Łukasz", false), errors)
}

/// The same for this user, and for a request that is long-running or not.
pub(crate) fn stream_of(
    scope: &Scope,
    forwarder: Forwarder,
    (user, long_running): (&'static str, bool),
    errors: Log,
) -> DuplexStream {
    stream_with(scope, forwarder, (user, long_running, ""), errors)
}

/// The same for a request whose list is reduced by a question.
pub(crate) fn stream_with(
    scope: &Scope,
    forwarder: Forwarder,
    (user, long_running, question): (&'static str, bool, &'static str),
    errors: Log,
) -> DuplexStream {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let service = service_fn(move |request| {
        let (forwarder, errors) = (forwarder.clone(), errors.clone());
        async move {
            let active = Arc::new(RequestMetrics::new("test", "kind", &[]).begin());
            let deadline = AnswerDeadline::new(long_running, 0);
            let served = forwarder.serve(&identity(user), "id-1", deadline, question, request, &active).await;
            if let Err(error) = &served {
                errors.add(format!("{:?}", ForwardError::code(error)));
            }
            served
        }
    });
    scope.spawn(async move {
        // The other end sees how it ended.
        let _ = hyper::server::conn::http1::Builder::new()
            .keep_alive(false)
            .serve_connection(TokioIo::new(far), service)
            .with_upgrades()
            .await;
    });
    near
}

/// The request that the API server received: its first line, then its headers. Or the code that refused it.
async fn asked(protocol: &'static str, head: &str) -> Result<String, String> {
    let (log, errors) = (Log::default(), Log::default());
    let seen = log.clone();
    let (scope, _fake, api_server) = pair(&[protocol], Timeouts::default(), move |connection, _| {
        let log = seen.clone();
        async move {
            let answer = move |request: Request<Incoming>| {
                log.add(shown(&request));
                async { Response::new(Full::<Bytes>::default()) }
            };
            if protocol == "h2" { http2(connection, answer).await } else { http1(connection, answer).await }
        }
    })
    .await;
    let mut stream = stream(&scope, api_server, errors.clone());
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    match (log.lines().as_slice(), errors.lines().as_slice()) {
        ([seen], []) => Ok(seen.clone()),
        ([], [code]) => Err(code.clone()),
        (seen, codes) => panic!("{seen:?} {codes:?} {answer}"),
    }
}

fn shown(request: &Request<Incoming>) -> String {
    let path = request.uri().path_and_query().map_or("", |path| path.as_str());
    let headers: &HeaderMap = request.headers();
    let lines = headers
        .iter()
        .map(|(name, value)| format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())));
    format!("{} {path}\n{}", request.method(), lines.collect::<String>())
}

fn lines<'a>(seen: &'a str, name: &str) -> Vec<&'a str> {
    seen.lines().filter_map(|line| line.strip_prefix(&format!("{name}: "))).collect()
}

fn identity(user: &str) -> Cleared {
    let everybody = || Some(vec!["*".to_owned()]);
    let identity = Assert { user: user.to_owned(), groups: vec!["dev".to_owned(), "ops".to_owned()] };
    let list = AllowList::new(everybody(), everybody(), None).unwrap();
    Guard::new(list, false).check(&identity.into()).unwrap()
}
