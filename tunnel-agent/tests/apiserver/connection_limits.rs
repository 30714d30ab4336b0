//! The limits of one connection: granted streams, callers that hang up, and small frames that nobody reads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use tokio::sync::{Barrier, mpsc, watch};
use tunnel_agent::apiserver::{STREAMS_MAX, Timeouts};

use crate::fake::{GRANTED, all_at_once, get, http2, http2_granting, pair, soon};

type Pieces = std::pin::Pin<Box<dyn futures::Stream<Item = std::io::Result<Frame<Bytes>>> + Send>>;

#[tokio::test]
async fn a_server_that_grants_ten_streams_gets_no_more_at_a_time() {
    const GRANT: u32 = 10;
    const REQUESTS: usize = 95;
    let all_in = Arc::new(Barrier::new(REQUESTS));
    let open: Arc<Mutex<HashMap<usize, usize>>> = Arc::default();
    let counted = open.clone();
    let (scope, fake, api_server) = pair(&["h2"], Timeouts::default(), move |connection, number| {
        let (all_in, open) = (all_in.clone(), counted.clone());
        http2_granting(GRANT, connection, move |_| {
            let (all_in, open) = (all_in.clone(), open.clone());
            async move {
                *open.lock().unwrap().entry(number).or_default() += 1;
                // No answer before all requests have arrived.
                all_in.wait().await;
                Response::new(Full::from("x"))
            }
        })
    })
    .await;

    let answers = all_at_once(REQUESTS, &scope, &api_server).await;

    assert_eq!(answers, vec!["x"; REQUESTS]);
    let peaks = open.lock().unwrap().clone();
    assert!(peaks.values().all(|peak| *peak <= GRANT as usize), "{peaks:?}");
    assert_eq!(fake.connections(), REQUESTS.div_ceil(GRANT as usize));
}

#[tokio::test]
async fn callers_that_hang_up_on_large_answers_do_not_end_the_connection() {
    let (event, events) = watch::channel(0_usize);
    let (_scope, fake, api_server) = pair(&["h2"], Timeouts::default(), move |connection, _| {
        let events = events.clone();
        http2(connection, move |request: Request<Incoming>| {
            let pieces =
                if request.uri().path() == "/watch" { watched(events.clone()) } else { endless(16 * 1024) };
            async { Response::new(StreamBody::new(pieces)) }
        })
    })
    .await;
    let mut watch = soon(api_server.send(get("/watch"))).await.unwrap().into_body();

    for round in 1..=20 {
        let mut answers = Vec::new();
        for _ in 1..STREAMS_MAX {
            let mut answer = soon(api_server.send(get("/endless"))).await.unwrap().into_body();
            // From here on more data is always under way.
            soon(answer.frame()).await.unwrap().unwrap();
            answers.push(answer);
        }
        drop(answers);
        event.send_replace(round);
        let event = soon(watch.frame()).await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(event, round.to_string());
    }

    assert_eq!(fake.connections(), 1);
}

#[tokio::test]
async fn logs_of_short_lines_that_nobody_reads_do_not_end_their_connection() {
    const SLOW_READERS: usize = 26;
    const LINE_BYTES: usize = 30;
    let (event, events) = watch::channel(0_usize);
    let (full, mut fulls) = mpsc::channel(SLOW_READERS);
    let (_scope, fake, api_server) = pair(&["h2"], Timeouts::default(), move |connection, _| {
        let (events, full) = (events.clone(), full.clone());
        http2(connection, move |request: Request<Incoming>| {
            let pieces = if request.uri().path() == "/watch" {
                watched(events.clone())
            } else {
                // As much as one caller may leave unread, a line in each frame, and then silence.
                let full = full.clone();
                let lines = endless(LINE_BYTES).take(256 * 1024 / LINE_BYTES);
                Box::pin(lines.chain(futures::stream::once(async move {
                    full.send(()).await.unwrap();
                    std::future::pending().await
                })))
            };
            async { Response::new(StreamBody::new(pieces)) }
        })
    })
    .await;
    let mut watch = soon(api_server.send(get("/watch"))).await.unwrap().into_body();

    let mut unread = Vec::new();
    for _ in 0..SLOW_READERS {
        unread.push(soon(api_server.send(get("/log"))).await.unwrap());
        soon(fulls.recv()).await.unwrap();
    }
    event.send_replace(1);

    assert_eq!(soon(watch.frame()).await.unwrap().unwrap().into_data().unwrap(), "1");
    assert_eq!(fake.connections(), 1);
    const { assert!(SLOW_READERS < GRANTED as usize) };
}

fn endless(bytes: usize) -> Pieces {
    let piece = Bytes::from(vec![b'x'; bytes]);
    Box::pin(futures::stream::repeat_with(move || Ok(Frame::data(piece.clone()))))
}

/// A stream of each number that is sent from now on.
fn watched(events: watch::Receiver<usize>) -> Pieces {
    Box::pin(futures::stream::unfold(events, |mut events| async {
        events.changed().await.ok()?;
        let event = events.borrow_and_update().to_string();
        Some((Ok(Frame::data(Bytes::from(event))), events))
    }))
}
