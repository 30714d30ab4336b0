//! An answer of an API server that dies in the middle never looks complete.

use http::{Response, StatusCode};
use http_body_util::StreamBody;
use hyper::body::Frame;
use tokio::io::AsyncWriteExt as _;
use tunnel_agent::apiserver::{ApiServerError, Timeouts};

use crate::fake::{get, http2, pair, read_head, soon, whole, write};

#[tokio::test]
async fn an_http_1_answer_that_breaks_off_is_an_error() {
    for (framing, body) in [
        ("Transfer-Encoding: chunked", "5\r\nhello\r\n"),
        ("Content-Length: 100", "hello"),
        ("Connection: close", "hello"),
        ("X-Framing: none", "hello"),
    ] {
        let (_scope, _fake, api_server) =
            pair(&["http/1.1"], Timeouts::default(), move |mut connection, _| async move {
                read_head(&mut connection).await;
                write(&mut connection, format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n{body}")).await;
                // Without TLS's close_notify, as when the process is killed.
                let (mut tcp, _) = connection.into_inner();
                tcp.shutdown().await.unwrap();
            })
            .await;

        let response = soon(api_server.send(get("/"))).await.unwrap();
        let cut = soon(whole(response)).await;

        assert!(matches!(cut, Err(ApiServerError::Lost(_))), "{framing}: {cut:?}");
    }
}

#[tokio::test]
async fn a_close_delimited_answer_with_tls_goodbye_is_whole() {
    let (_scope, _fake, api_server) =
        pair(&["http/1.1"], Timeouts::default(), |mut connection, _| async move {
            read_head(&mut connection).await;
            write(&mut connection, "HTTP/1.1 200 OK\r\n\r\nhello").await;
            connection.shutdown().await.unwrap();
        })
        .await;

    let response = soon(api_server.send(get("/"))).await.unwrap();

    assert_eq!(soon(whole(response)).await.unwrap(), "hello");
}

#[tokio::test]
async fn a_known_length_with_tls_goodbye_too_early_is_an_error() {
    for framing in ["Transfer-Encoding: chunked", "Content-Length: 100"] {
        let (_scope, _fake, api_server) =
            pair(&["http/1.1"], Timeouts::default(), move |mut connection, _| async move {
                read_head(&mut connection).await;
                write(&mut connection, format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n5\r\nhello\r\n")).await;
                connection.shutdown().await.unwrap();
            })
            .await;

        let response = soon(api_server.send(get("/"))).await.unwrap();

        assert!(soon(whole(response)).await.is_err(), "{framing}");
    }
}

/// Without an answer behind the heads, only the agent ends the exchange within the time of a test.
#[tokio::test]
async fn an_api_server_that_sends_heads_without_end_is_given_up() {
    const HINTS: &str = "HTTP/1.1 103 Early Hints\r\n\r\n";
    const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    for (hints, answer) in [(64, ANSWER), (65, "")] {
        let (_scope, _fake, api_server) =
            pair(&["http/1.1"], Timeouts::default(), move |mut connection, _| async move {
                read_head(&mut connection).await;
                write(&mut connection, HINTS.repeat(hints) + answer).await;
                std::future::pending::<()>().await;
            })
            .await;

        let answered = soon(api_server.send(get("/"))).await;

        assert_eq!(answered.is_ok(), !answer.is_empty(), "{hints} heads: {answered:?}");
    }
}

#[tokio::test]
async fn an_http_2_answer_whose_connection_dies_is_an_error() {
    let (_scope, _fake, api_server) = pair(&["h2"], Timeouts::default(), |connection, _| async move {
        let (die, death) = tokio::sync::watch::channel(false);
        let serve = http2(connection, move |_| {
            let die = die.clone();
            async move {
                let endless = futures::stream::unfold(0, move |piece| {
                    let die = die.clone();
                    async move {
                        if piece == 1 {
                            die.send_replace(true);
                            std::future::pending::<()>().await;
                        }
                        Some((Ok::<_, std::io::Error>(Frame::data("hello".into())), piece + 1))
                    }
                });
                Response::new(StreamBody::new(endless))
            }
        });
        let mut death = death;
        tokio::select! {
            () = serve => {}
            _ = death.wait_for(|dead| *dead) => {}
        }
    })
    .await;

    let cut = match soon(api_server.send(get("/"))).await {
        Ok(response) => soon(whole(response)).await.err(),
        Err(error) => Some(error),
    };

    assert!(matches!(cut, Some(ApiServerError::Lost(_))), "{cut:?}");
}

#[tokio::test]
async fn an_http_2_answer_that_is_reset_is_an_error_whatever_the_code() {
    for code in [0_u32, 2, 8] {
        let (_scope, _fake, api_server) =
            pair(&["h2"], Timeouts::default(), move |mut connection, _| async move {
                reset_after_head(&mut connection, code).await;
            })
            .await;

        let response = soon(api_server.send(get("/"))).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let cut = soon(whole(response)).await;

        assert!(matches!(cut, Err(ApiServerError::Lost(_) | ApiServerError::CutShort)), "{code}: {cut:?}");
    }
}

/// HTTP/2 by hand: settings, the head of an answer on stream 1, some data, and RST_STREAM; then the
/// connection stays.
async fn reset_after_head(connection: &mut crate::fake::Connection, code: u32) {
    use tokio::io::AsyncReadExt as _;
    let mut preface = [0; 24];
    connection.read_exact(&mut preface).await.unwrap();
    connection.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    loop {
        let mut head = [0; 9];
        connection.read_exact(&mut head).await.unwrap();
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; length];
        connection.read_exact(&mut payload).await.unwrap();
        if head[3] == 1 {
            break;
        }
    }
    // HEADERS with `:status: 200` (index 8 of the static table), END_HEADERS.
    connection.write_all(&[0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88]).await.unwrap();
    connection.write_all(&[0, 0, 5, 0, 0, 0, 0, 0, 1]).await.unwrap();
    connection.write_all(b"hello").await.unwrap();
    connection.write_all(&[0, 0, 4, 3, 0, 0, 0, 0, 1]).await.unwrap();
    connection.write_all(&code.to_be_bytes()).await.unwrap();
    connection.flush().await.unwrap();
    std::future::pending().await
}
