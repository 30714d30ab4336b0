//! The number of connections, and the exchanges on them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use http::{Request, Response, Version};
use http_body_util::{BodyExt as _, Full};
use proto::upgrade_protocol::UpgradeProtocol;
use tokio::sync::{Barrier, mpsc, watch};
use tunnel_agent::apiserver::{
    AnswerDeadline, ApiServerError, CONNECTIONS_MAX, STREAMS_MAX, Timeouts, WAITING_MAX,
};

use crate::fake::{self, Log, all_at_once, get, http1, http2, pair, read_head, soon, whole, write};

const REQUESTS: usize = 200;

/// Timeouts that no test reaches.
const SLOW: Timeouts = Timeouts {
    connect: Duration::from_secs(600),
    head: Duration::from_secs(600),
    idle: Duration::from_secs(600),
    recheck: Duration::from_secs(600),
};

#[tokio::test]
async fn two_hundred_requests_share_three_connections_and_none_is_full() {
    let all_in = Arc::new(Barrier::new(REQUESTS));
    let most: Arc<Mutex<HashMap<usize, (usize, usize)>>> = Arc::default();
    let counted = most.clone();
    let (scope, fake, api_server) =
        pair(&["h2", "http/1.1"], Timeouts::default(), move |connection, number| {
            let (all_in, most) = (all_in.clone(), counted.clone());
            http2(connection, move |_| {
                let (all_in, most) = (all_in.clone(), most.clone());
                async move {
                    {
                        let mut most = most.lock().unwrap();
                        let (now, peak) = most.entry(number).or_default();
                        *now += 1;
                        *peak = (*peak).max(*now);
                    }
                    // No answer before all requests have arrived, so all run at the same time.
                    all_in.wait().await;
                    most.lock().unwrap().entry(number).or_default().0 -= 1;
                    Response::new(Full::from("x"))
                }
            })
        })
        .await;

    let answers = all_at_once(REQUESTS, &scope, &api_server).await;

    assert_eq!(answers, vec!["x"; REQUESTS]);
    assert_eq!(fake.connections(), 3);
    let peaks: Vec<usize> = most.lock().unwrap().values().map(|(_, peak)| *peak).collect();
    assert!(peaks.iter().all(|peak| *peak <= STREAMS_MAX), "{peaks:?}");
    assert_eq!(peaks.iter().sum::<usize>(), REQUESTS, "{peaks:?}");
}

#[tokio::test]
async fn slow_readers_take_nothing_from_others_on_their_connection() {
    const SLOW_READERS: usize = 20;
    let (full, mut fulls) = mpsc::channel(SLOW_READERS);
    let (_scope, fake, api_server) = pair(&["h2"], Timeouts::default(), move |connection, _| {
        let full = full.clone();
        http2(connection, move |request: Request<hyper::body::Incoming>| {
            let (full, endless) = (full.clone(), request.uri().path() == "/endless");
            let pieces = futures::stream::unfold(0, move |taken: usize| {
                let full = full.clone();
                async move {
                    // 256 KiB are under way: as much as one caller may leave unread.
                    if endless && taken == 16 {
                        full.send(()).await.unwrap();
                    }
                    let piece = hyper::body::Frame::data(vec![b'x'; 16 * 1024].into());
                    (endless || taken < 256).then(|| (Ok::<_, std::io::Error>(piece), taken + 1))
                }
            });
            async { Response::new(http_body_util::StreamBody::new(pieces)) }
        })
    })
    .await;

    let mut unread = Vec::new();
    for _ in 0..SLOW_READERS {
        unread.push(soon(api_server.send(get("/endless"))).await.unwrap());
    }
    for _ in 0..SLOW_READERS {
        soon(fulls.recv()).await.unwrap();
    }
    let read = soon(whole(soon(api_server.send(get("/four-mebibytes"))).await.unwrap())).await.unwrap();

    assert_eq!(read.len(), 4 * 1024 * 1024);
    assert_eq!(fake.connections(), 1);
}

#[tokio::test]
async fn one_after_the_other_takes_one_connection_over_either_version() {
    for (protocol, version) in [("h2", Version::HTTP_2), ("http/1.1", Version::HTTP_11)] {
        let (_scope, fake, api_server) =
            pair(&[protocol], Timeouts::default(), move |connection, _| async move {
                let answer = |request: Request<_>| async move {
                    let version = format!("{:?} {}", request.version(), request.uri());
                    Response::new(Full::from(version))
                };
                if protocol == "h2" {
                    http2(connection, answer).await
                } else {
                    http1(connection, answer).await
                }
            })
            .await;

        for _ in 0..20 {
            let response = soon(api_server.send(get("/a//b%2Fc/../d?x=%20&y"))).await.unwrap();
            let answered = whole(response).await.unwrap();
            assert!(
                answered.starts_with(&format!("{version:?} "))
                    && answered.ends_with("/a//b%2Fc/../d?x=%20&y"),
                "{answered}"
            );
        }

        assert_eq!(fake.connections(), 1, "{protocol}");
    }
}

#[tokio::test]
async fn http_1_serves_one_exchange_per_connection_at_a_time() {
    let all_in = Arc::new(Barrier::new(5));
    let (scope, fake, api_server) = pair(&["http/1.1"], Timeouts::default(), move |connection, _| {
        let all_in = all_in.clone();
        http1(connection, move |_| {
            let all_in = all_in.clone();
            async move {
                all_in.wait().await;
                Response::new(Full::from("x"))
            }
        })
    })
    .await;

    let answers = all_at_once(5, &scope, &api_server).await;

    assert_eq!(answers, ["x"; 5]);
    assert_eq!(fake.connections(), 5);
}

#[tokio::test]
async fn a_connection_that_nobody_uses_is_closed() {
    let timeouts = Timeouts { idle: Duration::from_millis(40), ..Timeouts::default() };
    for protocol in ["h2", "http/1.1"] {
        let (closed, mut closings) = mpsc::channel(1);
        let (_scope, _fake, api_server) = pair(&[protocol], timeouts, move |connection, _| {
            let closed = closed.clone();
            async move {
                serve(protocol, connection).await;
                closed.send(()).await.unwrap();
            }
        })
        .await;

        whole(soon(api_server.send(get("/"))).await.unwrap()).await.unwrap();

        soon(closings.recv()).await.unwrap();
    }
}

#[tokio::test]
async fn a_post_that_was_written_is_not_sent_again() {
    let log = Log::default();
    let seen = log.clone();
    let (_scope, _fake, api_server) = pair(&["http/1.1"], Timeouts::default(), move |mut connection, _| {
        let log = seen.clone();
        async move {
            let first = read_head(&mut connection).await;
            log.add(first.lines().next().unwrap_or_default());
            write(&mut connection, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
            // The pooled connection takes the second request, and closes.
            let second = read_head(&mut connection).await;
            log.add(second.lines().next().unwrap_or_default());
        }
    })
    .await;

    whole(soon(api_server.send(get("/first"))).await.unwrap()).await.unwrap();
    let post = Request::post("/second").body(Full::new("body".into())).unwrap();
    let lost = soon(api_server.send(post)).await;

    assert!(matches!(lost, Err(ApiServerError::Lost(_))), "{lost:?}");
    assert_eq!(log.lines(), ["GET /first HTTP/1.1", "POST /second HTTP/1.1"]);
}

#[tokio::test]
async fn a_dead_connection_fails_only_the_write_that_was_written_on_it() {
    for protocol in ["h2", "http/1.1"] {
        let (close, closing) = watch::channel(0);
        let (_scope, fake, api_server) = pair(&[protocol], Timeouts::default(), move |connection, number| {
            let mut closing = closing.clone();
            async move {
                // The connection is to close when it is dropped.
                tokio::select! {
                    () = serve(protocol, connection) => {}
                    _ = closing.wait_for(|closed| *closed >= number) => {}
                }
            }
        })
        .await;

        for round in 1..=20 {
            whole(soon(api_server.send(get("/"))).await.unwrap()).await.unwrap();
            close.send_replace(fake.connections());
            // Either written before the close was noticed, or sent on a new connection.
            let write = Request::post("/").body(Full::<bytes::Bytes>::default()).unwrap();
            if let Err(error) = soon(api_server.send(write)).await {
                assert!(matches!(error, ApiServerError::Lost(_)), "{protocol}, {round}: {error:?}");
            }
        }

        assert!(fake.connections() >= 20, "{protocol}: {}", fake.connections());
    }
}

#[tokio::test]
async fn a_server_that_announces_the_end_of_its_connection_loses_no_request() {
    let (_scope, fake, api_server) =
        pair(&["http/1.1"], Timeouts::default(), |mut connection, _| async move {
            read_head(&mut connection).await;
            write(&mut connection, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").await;
        })
        .await;

    for _ in 0..10 {
        whole(soon(api_server.send(get("/"))).await.unwrap()).await.unwrap();
    }

    assert_eq!(fake.connections(), 10);
}

#[tokio::test]
async fn silence_and_absence_are_two_errors() {
    let timeouts = Timeouts { head: Duration::from_millis(50), ..Timeouts::default() };
    let (_scope, _fake, api_server) = pair(&["http/1.1"], timeouts, |mut connection, _| async move {
        read_head(&mut connection).await;
        std::future::pending().await
    })
    .await;
    let silent = soon(api_server.send(get("/"))).await;
    let longer = AnswerDeadline::new(false, 1);
    let still_silent = soon(api_server.send_by(get("/"), longer)).await;

    let scope = daemon::Scope::here();
    let authority = fake::Authority::new();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let absent = fake::Mounted::new("t", &authority.pem()).api_server(nobody, Timeouts::default(), &scope);
    let unreachable = soon(absent.send(get("/"))).await;

    assert!(matches!(silent, Err(ApiServerError::Silent(_))), "{silent:?}");
    let second = Duration::from_secs(1);
    assert!(
        matches!(still_silent, Err(ApiServerError::Silent(limit)) if limit == second),
        "{still_silent:?}"
    );
    assert!(matches!(unreachable, Err(ApiServerError::Unreachable { .. })), "{unreachable:?}");
}

#[tokio::test]
async fn connections_are_opened_up_to_their_limit() {
    let (arrived, mut arrivals) = mpsc::channel(CONNECTIONS_MAX);
    let (_scope, fake, api_server) = pair(&["http/1.1"], SLOW, move |mut connection, _| {
        let arrived = arrived.clone();
        async move {
            read_head(&mut connection).await;
            arrived.send(()).await.unwrap();
            std::future::pending().await
        }
    })
    .await;
    let mut requests: FuturesUnordered<_> =
        (0..CONNECTIONS_MAX).map(|_| api_server.send_long_running(get("/"))).collect();
    for _ in 0..CONNECTIONS_MAX {
        // Cancel-safe: the requests are polled by reference.
        tokio::select! {
            early = requests.next() => panic!("{early:?}"),
            arrived = soon(arrivals.recv()) => arrived.unwrap(),
        }
    }

    let beyond = soon(api_server.send(get("/"))).await;
    let upgrading =
        api_server.upgrade_by(get("/").map(drop), UpgradeProtocol::WebSocket, AnswerDeadline::Default);
    let upgrade = soon(upgrading).await;

    assert!(matches!(beyond, Err(ApiServerError::Full)), "{beyond:?}");
    assert!(matches!(upgrade, Err(ApiServerError::Full)), "{upgrade:?}");
    assert_eq!(fake.connections(), CONNECTIONS_MAX);
}

#[tokio::test]
async fn requests_wait_up_to_their_limit() {
    let scope = daemon::Scope::here();
    // The kernel accepts, and no TLS handshake follows: every request waits for the first connection.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mounted = fake::Mounted::new("t", &fake::Authority::new().pem());
    let api_server = mounted.api_server(silent.local_addr().unwrap(), SLOW, &scope);
    let mut waiting: FuturesUnordered<_> = (0..WAITING_MAX).map(|_| api_server.send(get("/"))).collect();
    assert!(futures::poll!(waiting.next()).is_pending(), "every one of them waits");

    let beyond = soon(api_server.send(get("/"))).await;

    assert!(matches!(beyond, Err(ApiServerError::Full)), "{beyond:?}");
    assert!(futures::poll!(waiting.next()).is_pending(), "and they still do");
}

#[tokio::test]
async fn a_long_running_request_is_waited_for_beyond_the_limit() {
    let timeouts = Timeouts { head: Duration::from_millis(50), ..Timeouts::default() };
    let ((log_arrived, mut arrived), (go_on, released)) = (mpsc::channel(1), watch::channel(false));
    let (_scope, _fake, api_server) = pair(&["http/1.1"], timeouts, move |mut connection, _| {
        let (log_arrived, mut released) = (log_arrived.clone(), released.clone());
        async move {
            if !read_head(&mut connection).await.starts_with("GET /log") {
                std::future::pending().await
            }
            log_arrived.send(()).await.unwrap();
            released.wait_for(|released| *released).await.unwrap();
            write(&mut connection, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        }
    })
    .await;

    let mut log = std::pin::pin!(api_server.send_long_running(get("/log")));
    // Each is cancel-safe: the log is polled by reference, and the others are not polled again.
    tokio::select! {
        early = &mut log => panic!("{early:?}"),
        arrived = soon(arrived.recv()) => arrived.unwrap(),
    }
    // A later request with a limit ends first.
    tokio::select! {
        early = &mut log => panic!("{early:?}"),
        silent = soon(api_server.send(get("/"))) => assert!(matches!(silent, Err(ApiServerError::Silent(_))), "{silent:?}"),
    }
    go_on.send(true).unwrap();

    assert_eq!(soon(log).await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_slow_upload_is_no_silence() {
    let timeouts = Timeouts { head: Duration::from_secs(2), ..Timeouts::default() };
    let (_scope, _fake, api_server) = pair(&["h2"], timeouts, |connection, _| {
        http2(connection, |request: Request<hyper::body::Incoming>| async move {
            let length = request.into_body().collect().await.unwrap().to_bytes().len();
            Response::new(Full::from(length.to_string()))
        })
    })
    .await;
    // Together they last longer than the limit, but each far below it, also on a busy machine.
    let pieces = futures::stream::unfold(0, |piece| async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        (piece < 8).then(|| (Ok::<_, std::io::Error>(hyper::body::Frame::data("x".into())), piece + 1))
    });

    let post = Request::post("/").body(http_body_util::StreamBody::new(pieces)).unwrap();
    let answered = whole(soon(api_server.send(post)).await.unwrap()).await.unwrap();

    assert_eq!(answered, "8");
}

async fn serve(protocol: &str, connection: fake::Connection) {
    let answer = |_| async { Response::new(Full::from("x")) };
    if protocol == "h2" { http2(connection, answer).await } else { http1(connection, answer).await }
}
