//! Requests that an API server has not processed are sent again, writes too, and no others.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::future::join_all;
use http::{Method, Request};
use http_body_util::{Full, StreamBody};
use hyper::body::Frame;
use tokio::sync::mpsc;
use tunnel_agent::apiserver::{
    ApiServer, ApiServerError, KEPT_BYTES_MAX, LOST_READS_RESENT_MAX, SENDINGS_MAX, Timeouts,
};

use crate::fake::{Connection, GRANTED, Log, get, pair, read_head, soon, whole, write};
use crate::raw_http2::{INTERNAL_ERROR, REFUSED_STREAM, RawConnection};

/// An end of the second of two streams of a connection, of which the first is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SecondStream {
    /// GOAWAY names the first stream.
    AboveGoAway,
    /// Its stream is reset with REFUSED_STREAM.
    Refused,
    /// GOAWAY names it, and the connection ends without its answer.
    LostBelowGoAway,
    /// Its stream is reset for another reason.
    Reset,
    /// The connection ends without a GOAWAY.
    Lost,
}

/// The rows are RFC 9113, sections 6.8 and 8.7: what was not processed may be sent again, a write too.
#[tokio::test]
async fn a_write_is_sent_again_only_if_the_api_server_has_not_processed_it() {
    for (end, is_sent_again) in [
        (SecondStream::AboveGoAway, true),
        (SecondStream::Refused, true),
        (SecondStream::LostBelowGoAway, false),
        (SecondStream::Reset, false),
        (SecondStream::Lost, false),
    ] {
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let (processed, answers) = two_requests(end, &method, "x").await;

            let failed: Vec<_> = answers.iter().filter(|answer| answer.is_err()).collect();
            let names: Vec<&String> = processed.keys().collect();
            if is_sent_again {
                assert!(failed.is_empty(), "{end:?} {method}: {failed:?}");
                assert_eq!(names, ["0x", "1x"], "{end:?} {method}");
            } else {
                assert!(matches!(failed.as_slice(), [Err(ApiServerError::Lost(_))]), "{end:?}: {failed:?}");
            }
            assert!(processed.values().all(|times| *times == 1), "{end:?} {method}: {processed:?}");
        }
    }
}

#[tokio::test]
async fn a_read_is_sent_again_also_if_its_connection_is_lost() {
    for (end, is_sent_again) in [
        (SecondStream::AboveGoAway, true),
        (SecondStream::Refused, true),
        (SecondStream::LostBelowGoAway, true),
        (SecondStream::Lost, true),
        (SecondStream::Reset, false),
    ] {
        for method in [Method::GET, Method::HEAD] {
            let (_, answers) = two_requests(end, &method, "").await;

            let failed: Vec<_> = answers.iter().filter(|answer| answer.is_err()).collect();
            assert_eq!(failed.is_empty(), is_sent_again, "{end:?} {method}: {failed:?}");
        }
    }
}

#[tokio::test]
async fn a_body_is_sent_again_from_its_first_byte_while_all_of_it_is_kept() {
    for (bytes, is_sent_again) in [(KEPT_BYTES_MAX, true), (KEPT_BYTES_MAX + 1, false)] {
        let log = Log::default();
        let seen = log.clone();
        let (_scope, _fake, api_server) = pair(&["h2"], Timeouts::default(), move |connection, number| {
            let log = seen.clone();
            async move {
                let Some(mut raw) = RawConnection::accept(connection, GRANTED).await else { return };
                while let Some(arrived) = raw.request().await {
                    if number == 1 {
                        raw.go_away(0).await;
                    } else {
                        log.add(arrived.body);
                        raw.answer(arrived.stream, "done").await;
                    }
                }
            }
        })
        .await;
        let body = "y".repeat(bytes);

        let post = Request::post("/").body(Full::new(Bytes::from(body.clone()))).unwrap();
        let answered = soon(api_server.send(post)).await;

        if is_sent_again {
            assert_eq!(answered.unwrap().status(), 200);
            assert!(log.lines() == [body], "it arrived as it was");
        } else {
            assert!(matches!(answered, Err(ApiServerError::NotProcessed)), "{answered:?}");
            assert!(log.lines().is_empty());
        }
    }
}

/// The rest of an upload that has begun goes to the second connection alone, and behind its beginning.
#[tokio::test]
async fn an_upload_goes_on_behind_its_beginning_on_the_next_connection() {
    let log = Log::default();
    let (refused, mut refusals) = mpsc::channel(1);
    let seen = log.clone();
    let (_scope, fake, api_server) = pair(&["h2"], Timeouts::default(), move |connection, number| {
        let (log, refused) = (seen.clone(), refused.clone());
        async move {
            let Some(mut raw) = RawConnection::accept(connection, GRANTED).await else { return };
            if number == 1 {
                raw.head().await.unwrap();
                raw.read_body(5).await.unwrap();
                raw.go_away(0).await.unwrap();
                refused.send(()).await.unwrap();
                raw.closed().await;
            } else {
                let arrived = raw.request().await.unwrap();
                log.add(arrived.body);
                raw.answer(arrived.stream, "done").await.unwrap();
                raw.closed().await;
            }
        }
    })
    .await;
    let (pieces, taken) = mpsc::channel::<&'static str>(1);
    let frames = futures::stream::unfold(taken, |mut taken| async {
        let piece = taken.recv().await?;
        Some((Ok::<_, std::io::Error>(Frame::data(Bytes::from(piece))), taken))
    });
    let post = Request::post("/").body(StreamBody::new(frames)).unwrap();

    let caller = async {
        pieces.send("begun").await.unwrap();
        soon(refusals.recv()).await.unwrap();
        pieces.send(" and ended").await.unwrap();
        drop(pieces);
    };
    let (answered, ()) = tokio::join!(soon(api_server.send(post)), caller);

    assert_eq!(answered.unwrap().status(), 200);
    assert_eq!(log.lines(), ["begun and ended"]);
    assert_eq!(fake.connections(), 2);
}

#[tokio::test]
async fn a_request_that_is_always_refused_is_sent_up_to_the_limit() {
    for goes_away in [true, false] {
        let streams = Arc::new(AtomicUsize::new(0));
        let counted = streams.clone();
        let (_scope, _fake, api_server) = pair(&["h2"], Timeouts::default(), move |connection, _| {
            let streams = counted.clone();
            async move {
                let Some(mut raw) = RawConnection::accept(connection, GRANTED).await else { return };
                while let Some(arrived) = raw.request().await {
                    streams.fetch_add(1, Ordering::SeqCst);
                    if goes_away {
                        raw.go_away(0).await;
                    } else {
                        raw.reset(arrived.stream, REFUSED_STREAM).await;
                    }
                }
            }
        })
        .await;

        let refused = soon(api_server.send(post("x"))).await;

        assert!(matches!(refused, Err(ApiServerError::NotProcessed)), "{goes_away}: {refused:?}");
        assert_eq!(streams.load(Ordering::SeqCst), SENDINGS_MAX, "{goes_away}");
    }
}

#[tokio::test]
async fn a_read_that_ends_every_connection_is_sent_up_to_its_limit() {
    for protocol in ["h2", "http/1.1"] {
        let (_scope, fake, api_server) =
            pair(&[protocol], Timeouts::default(), move |mut connection, _| async move {
                if protocol == "h2" {
                    let Some(mut raw) = RawConnection::accept(connection, GRANTED).await else { return };
                    raw.head().await;
                } else {
                    read_head(&mut connection).await;
                }
            })
            .await;

        let lost = soon(api_server.send(get("/"))).await;

        assert!(matches!(lost, Err(ApiServerError::Lost(_))), "{protocol}: {lost:?}");
        assert_eq!(fake.connections(), 1 + LOST_READS_RESENT_MAX, "{protocol}");
    }
}

/// A GET through a `proxy` may have effects in a workload.
#[tokio::test]
async fn a_lost_read_through_a_proxy_is_not_sent_again() {
    let log = Log::default();
    let seen = log.clone();
    let (_scope, _fake, api_server) = pair(&["http/1.1"], Timeouts::default(), move |mut connection, _| {
        let log = seen.clone();
        async move {
            log.add(read_head(&mut connection).await.lines().next().unwrap_or_default());
        }
    })
    .await;

    let lost = soon(api_server.send(get("/api/v1/namespaces/n/pods/p/proxy/charge"))).await;

    assert!(matches!(lost, Err(ApiServerError::Lost(_))), "{lost:?}");
    assert_eq!(log.lines().len(), 1);
}

#[tokio::test]
async fn a_lost_read_over_http_1_is_sent_again_on_another_connection() {
    let (_scope, fake, api_server) =
        pair(&["http/1.1"], Timeouts::default(), |mut connection, number| async move {
            read_head(&mut connection).await;
            if number > 1 {
                write(&mut connection, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").await;
            }
        })
        .await;

    let answered = whole(soon(api_server.send(get("/"))).await.unwrap()).await.unwrap();

    assert_eq!((answered.as_str(), fake.connections()), ("x", 2));
}

/// 40 callers write 2,000 times at an API server that refuses 5 % of all streams, and goes away at 2 %.
#[tokio::test]
async fn under_refusals_and_goaways_no_write_fails_and_none_is_done_twice() {
    const CALLERS: usize = 40;
    const WRITES: usize = 50;
    let (counter, processed) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(BTreeMap::new())));
    let (counted, written) = (counter.clone(), processed.clone());
    let (_scope, _fake, api_server) = pair(&["h2"], Timeouts::default(), move |connection, _| {
        refusing(connection, counted.clone(), written.clone())
    })
    .await;

    let callers = (0..CALLERS).map(|caller| {
        let api_server = &api_server;
        async move {
            let mut failed = Vec::new();
            for number in 0..WRITES {
                if let Err(error) = soon(send(api_server, post(&format!("{caller}-{number}")))).await {
                    failed.push(error);
                }
            }
            failed
        }
    });
    let failed: Vec<ApiServerError> = join_all(callers).await.into_iter().flatten().collect();

    assert!(failed.is_empty(), "{} of {}: {:?}", failed.len(), CALLERS * WRITES, failed[0]);
    let processed = processed.lock().unwrap();
    assert_eq!(processed.len(), CALLERS * WRITES);
    assert!(processed.values().all(|times: &usize| *times == 1));
    assert!(counter.load(Ordering::SeqCst) > CALLERS * WRITES, "some were refused");
}

/// Answers requests, refuses every 20th stream, and goes away at every 50th: it processes that one, and none
/// behind it.
async fn refusing(
    connection: Connection,
    counter: Arc<AtomicUsize>,
    processed: Arc<Mutex<BTreeMap<String, usize>>>,
) {
    let Some(mut raw) = RawConnection::accept(connection, GRANTED).await else { return };
    while let Some(arrived) = raw.request().await {
        let number = counter.fetch_add(1, Ordering::SeqCst) + 1;
        if number.is_multiple_of(20) && !number.is_multiple_of(50) {
            raw.reset(arrived.stream, REFUSED_STREAM).await;
            continue;
        }
        *processed.lock().unwrap().entry(arrived.body).or_default() += 1;
        if number.is_multiple_of(50) {
            raw.go_away(arrived.stream).await;
            raw.answer(arrived.stream, "done").await;
            return raw.closed().await;
        }
        raw.answer(arrived.stream, "done").await;
    }
}

/// Sends two requests at a time. On the first connection, which takes both, the first is answered and the
/// second ends like this. Returns how often each was processed, and the answers.
async fn two_requests(
    end: SecondStream,
    method: &Method,
    body: &'static str,
) -> (BTreeMap<String, usize>, Vec<Result<String, ApiServerError>>) {
    let processed: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let written = processed.clone();
    let (_scope, _fake, api_server) = pair(&["h2"], Timeouts::default(), move |connection, number| {
        let processed = written.clone();
        async move {
            let process = |body: &String| *processed.lock().unwrap().entry(body.clone()).or_default() += 1;
            let Some(mut raw) = RawConnection::accept(connection, GRANTED).await else { return };
            let mut is_first_connection = number == 1;
            loop {
                let Some(first) = raw.request().await else { return };
                process(&first.body);
                if !is_first_connection {
                    raw.answer(first.stream, "").await;
                    continue;
                }
                is_first_connection = false;
                let Some(second) = raw.request().await else { return };
                match end {
                    SecondStream::AboveGoAway => raw.go_away(first.stream).await,
                    SecondStream::Refused => raw.reset(second.stream, REFUSED_STREAM).await,
                    SecondStream::LostBelowGoAway => raw.go_away(second.stream).await,
                    SecondStream::Reset => raw.reset(second.stream, INTERNAL_ERROR).await,
                    SecondStream::Lost => Some(()),
                };
                let is_processed =
                    matches!(end, SecondStream::LostBelowGoAway | SecondStream::Reset | SecondStream::Lost);
                if is_processed {
                    process(&second.body);
                }
                raw.answer(first.stream, "").await;
                if matches!(end, SecondStream::LostBelowGoAway | SecondStream::Lost) {
                    return raw.end().await;
                }
            }
        }
    })
    .await;
    // Both wait for the first connection.
    let requests = (0..2).map(|number| {
        let text = if body.is_empty() { String::new() } else { format!("{number}{body}") };
        let request = Request::builder().method(method).uri("/api").body(Full::new(text.into())).unwrap();
        soon(send(&api_server, request))
    });

    let answers = join_all(requests).await;

    let processed = processed.lock().unwrap().clone();
    (processed, answers)
}

fn post(body: &str) -> Request<Full<Bytes>> {
    Request::post("/api").body(Full::new(Bytes::from(body.to_owned()))).unwrap()
}

async fn send(api_server: &ApiServer, request: Request<Full<Bytes>>) -> Result<String, ApiServerError> {
    whole(api_server.send(request).await?).await
}
