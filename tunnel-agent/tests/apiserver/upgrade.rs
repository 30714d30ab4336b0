//! Upgrades: bytes flow only after the right 101, and a connection that was asked for one is never used
//! again.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Notify, mpsc};
use tunnel_agent::apiserver::Timeouts;

use crate::fake::{Log, get, pair, read_head, soon, whole, write};
use crate::forwarding::stream;

const ASK: &str = "GET /api/v1/namespaces/default/pods/p/exec?command=sh HTTP/1.1\r\nHost: gateway\r\n\
                   Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a2V5\r\n\
                   Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.c3RvbGVu, v5.channel.k8s.io\r\n\r\n";

const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                        Sec-WebSocket-Accept: x\r\nSet-Cookie: a=b\r\n\r\n";

#[tokio::test]
async fn bytes_flow_both_ways_after_the_101_and_each_direction_ends_on_its_own() {
    let (head_seen, mut heads) = mpsc::channel(1);
    let (scope, _fake, api_server) =
        pair(&["h2", "http/1.1"], Timeouts::default(), move |mut connection, _| {
            let head_seen = head_seen.clone();
            async move {
                head_seen.send(read_head(&mut connection).await).await.unwrap();
                write(&mut connection, format!("{SWITCHED}early")).await;
                let mut all = String::new();
                connection.read_to_string(&mut all).await.unwrap();
                // The other direction is still open.
                write(&mut connection, format!("<{all}>")).await;
                connection.shutdown().await.unwrap();
            }
        })
        .await;

    let mut stream = stream(&scope, api_server, Log::default());
    stream.write_all(ASK.as_bytes()).await.unwrap();
    let head = soon(heads.recv()).await.unwrap().to_lowercase();
    stream.write_all(b"late").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();

    assert!(head.contains("connection: upgrade\r\n") && head.contains("upgrade: websocket\r\n"), "{head}");
    assert!(head.contains("sec-websocket-protocol: v5.channel.k8s.io\r\n"), "{head}");
    assert!(head.contains("impersonate-group: dev\r\n") && !head.contains("c3rvbgvu"), "{head}");
    assert!(answer.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{answer}");
    assert!(answer.contains("upgrade: websocket\r\n") && !answer.contains("set-cookie"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nearly<late>"), "{answer}");
}

#[tokio::test]
async fn no_byte_follows_an_upgrade_request_before_its_answer() {
    let answer_now = Arc::new(Notify::new());
    let (extra, mut extras) = mpsc::channel(1);
    let released = answer_now.clone();
    let (scope, _fake, api_server) = pair(&["http/1.1"], Timeouts::default(), move |mut connection, _| {
        let (answer_now, extra) = (released.clone(), extra.clone());
        async move {
            read_head(&mut connection).await;
            extra.send(Vec::new()).await.unwrap();
            answer_now.notified().await;
            write(&mut connection, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno").await;
            let mut rest = Vec::new();
            // Closed, cleanly or not.
            let _ = connection.read_to_end(&mut rest).await;
            extra.send(rest).await.unwrap();
        }
    })
    .await;

    let mut stream = stream(&scope, api_server, Log::default());
    let pipelined = "GET /api/v1/secrets HTTP/1.1\r\nHost: gateway\r\nImpersonate-User: root\r\n\r\n";
    stream.write_all(format!("{ASK}{pipelined}").as_bytes()).await.unwrap();
    soon(extras.recv()).await.unwrap();
    answer_now.notify_one();
    let mut answer = Vec::new();
    // The bytes after the request make the close unclean.
    let _ = soon(stream.read_to_end(&mut answer)).await;

    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n") && answer.ends_with("\r\n\r\nno"), "{answer}");
    assert_eq!(soon(extras.recv()).await.unwrap(), b"", "bytes reached the API server");
}

#[tokio::test]
async fn every_wrong_101_is_an_error_and_its_connection_closed() {
    for wrong in [
        "Connection: Upgrade\r\nUpgrade: SPDY/3.1",
        "Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: SPDY/3.1",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "X: y",
    ] {
        let (closed, mut closings) = mpsc::channel(1);
        let (scope, _fake, api_server) =
            pair(&["http/1.1"], Timeouts::default(), move |mut connection, _| {
                let closed = closed.clone();
                async move {
                    read_head(&mut connection).await;
                    write(&mut connection, format!("HTTP/1.1 101 Switching Protocols\r\n{wrong}\r\n\r\n"))
                        .await;
                    let mut rest = Vec::new();
                    let _ = connection.read_to_end(&mut rest).await;
                    closed.send(rest).await.unwrap();
                }
            })
            .await;
        let errors = Log::default();

        let mut stream = stream(&scope, api_server, errors.clone());
        stream.write_all(format!("{ASK}attack").as_bytes()).await.unwrap();
        let mut answer = String::new();
        let _ = soon(stream.read_to_string(&mut answer)).await;

        assert_eq!(soon(closings.recv()).await.unwrap(), b"", "{wrong}");
        assert_eq!(errors.lines(), ["ApiServerProtocolError"], "{wrong}");
        assert_eq!(answer, "", "{wrong}");
    }
}

#[tokio::test]
async fn a_101_without_a_request_is_an_error_and_its_connection_not_reused() {
    let (scope, fake, api_server) =
        pair(&["http/1.1"], Timeouts::default(), |mut connection, number| async move {
            let head = read_head(&mut connection).await;
            if number == 1 {
                write(&mut connection, SWITCHED).await;
                std::future::pending::<()>().await;
            }
            write(
                &mut connection,
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}", head.len()),
            )
            .await;
        })
        .await;
    let errors = Log::default();

    let mut stream = stream(&scope, api_server.clone(), errors.clone());
    stream.write_all(b"GET / HTTP/1.1\r\nHost: gateway\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    let _ = soon(stream.read_to_string(&mut answer)).await;
    let next = whole(soon(api_server.send(get("/next"))).await.unwrap()).await.unwrap();

    assert_eq!(errors.lines(), ["ApiServerProtocolError"]);
    assert!(next.starts_with("GET /next "), "{next}");
    assert_eq!(fake.connections(), 2);
}

#[tokio::test]
async fn a_declined_upgrade_is_answered_and_its_connection_never_pooled() {
    for status in ["200 OK", "204 No Content", "302 Found", "403 Forbidden", "500 Internal Server Error"] {
        let (closed, mut closings) = mpsc::channel(1);
        let (scope, fake, api_server) = pair(&["http/1.1"], Timeouts::default(), move |mut connection, _| {
            let closed = closed.clone();
            async move {
                let head = read_head(&mut connection).await;
                let declined = head.contains("/exec");
                let length = if declined && !status.starts_with("204") {
                    "Content-Length: 2\r\n\r\nno"
                } else {
                    "\r\n"
                };
                let status = if declined { status } else { "204 No Content" };
                write(&mut connection, format!("HTTP/1.1 {status}\r\n{length}")).await;
                let mut rest = Vec::new();
                let _ = connection.read_to_end(&mut rest).await;
                let _ = closed.send(rest).await;
            }
        })
        .await;

        let mut stream = stream(&scope, api_server.clone(), Log::default());
        stream.write_all(ASK.as_bytes()).await.unwrap();
        let mut answer = String::new();
        soon(stream.read_to_string(&mut answer)).await.unwrap();
        let rest = soon(closings.recv()).await.unwrap();
        whole(soon(api_server.send(get("/next"))).await.unwrap()).await.unwrap();

        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
        assert_eq!(rest, b"", "{status}");
        assert_eq!(fake.connections(), 2, "{status}");
    }
}

#[tokio::test]
async fn either_sides_death_ends_the_other() {
    for server_dies in [true, false] {
        let (closed, mut closings) = mpsc::channel(1);
        let (scope, _fake, api_server) =
            pair(&["http/1.1"], Timeouts::default(), move |mut connection, _| {
                let closed = closed.clone();
                async move {
                    read_head(&mut connection).await;
                    write(&mut connection, SWITCHED).await;
                    if !server_dies {
                        let mut rest = Vec::new();
                        let _ = connection.read_to_end(&mut rest).await;
                    }
                    closed.send(()).await.unwrap();
                }
            })
            .await;

        let mut stream = stream(&scope, api_server, Log::default());
        stream.write_all(ASK.as_bytes()).await.unwrap();
        if server_dies {
            let mut answer = Vec::new();
            soon(stream.read_to_end(&mut answer)).await.unwrap();
        } else {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(soon(stream.read_u8()).await.unwrap());
            }
            drop(stream);
        }

        soon(closings.recv()).await.unwrap();
        soon(scope.close(crate::fake::TIMEOUT)).await.unwrap();
    }
}
