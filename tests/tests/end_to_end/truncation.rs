//! A truncated answer is an error to its caller, and never a clean end. A complete one is a clean end, byte
//! for byte.

use std::time::Duration;

use bytes::Bytes;
use h2::{Reason, RecvStream};
use tests::caller::{Http1Caller, Http2Caller, SOON, head, read_to_end, send_all};
use tests::fake_api::{Answer, Behaviour, Cut, Declared, HttpVersion, RecordedRequest, WatchFeed};
use tests::fake_edge::FakeEdge;
use tokio::time::timeout;

const VERSIONS: [HttpVersion; 2] = [HttpVersion::Http1, HttpVersion::Http2];

/// The part of an answer that arrives before it breaks off.
const HALF: &[u8] = b"half of it";

/// 50 MB whose pieces are all different, so that a loss, a repetition or a swap is seen.
const LARGE_BYTES: u64 = 50 * 1000 * 1000;

/// Pieces of an upload behind its refusal: less than the gateway reads of one.
const PIECES: usize = 8;
const PIECE_BYTES: usize = 16 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_dies_in_its_answer_gives_an_error() {
    for version in VERSIONS {
        let edge = FakeEdge::start(version).await;
        let truncated = |declared, cut| Behaviour::Truncate { declared, sent: Bytes::from_static(HALF), cut };
        let mut deaths = vec![
            truncated(Declared::ContentLength(1000), Cut::Close),
            truncated(Declared::ContentLength(1000), Cut::Reset),
            truncated(Declared::Chunked, Cut::Close),
            truncated(Declared::Chunked, Cut::Reset),
        ];
        if version == HttpVersion::Http1 {
            // Its end would be the connection's, and TLS says that the connection was cut.
            let close_delimited = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nhalf of it";
            deaths.push(Behaviour::raw(close_delimited, Cut::Close));
            deaths.push(Behaviour::raw(close_delimited, Cut::Reset));
            let half_a_chunk = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n400\r\nhalf of it";
            deaths.push(Behaviour::raw(half_a_chunk, Cut::Close));
            let not_a_chunk =
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\nhalf of it\r\nno size\r\n";
            deaths.push(Behaviour::raw(not_a_chunk, Cut::Hold));
        }
        for death in deaths {
            let case = format!("{version:?} {death:?}");
            edge.fake.otherwise(death);
            http1_caller_sees_a_cut(&edge, &case).await;
            http2_caller_sees_a_reset(&edge, &case).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_dies_before_its_answer_is_a_status_of_500_or_more() {
    let edge = FakeEdge::start(HttpVersion::Http1).await;
    for death in [
        Behaviour::raw("", Cut::Close),
        Behaviour::raw("", Cut::Reset),
        Behaviour::raw("HTTP/1.1 200 OK\r\nContent-Le", Cut::Close),
        Behaviour::garbage(),
        Behaviour::raw("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", Cut::Hold),
    ] {
        let case = format!("{death:?}");
        edge.fake.otherwise(death);

        let reply = edge.rig.ask_with_token("POST", "/clusters/edge-a/api", &[]).await;

        assert!(reply.status >= 500 && reply.body.contains("\"kind\":\"Status\""), "{case}: {reply:?}");
        // client-go would send the request again, which may have been carried out.
        assert!(!reply.head.to_lowercase().contains("retry-after"), "{case}: {reply:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_was_killed_and_is_back_gives_an_error() {
    for version in VERSIONS {
        let mut edge = FakeEdge::start(version).await;
        let (mut http1, http2) = begun(&edge).await;

        edge.kill_agent().await;

        let (rest, _) = http1.read_to_end().await;
        assert!(!rest.ends_with(b"0\r\n\r\n"), "a last chunk");
        read_to_end(http2.1).await.1.unwrap_err();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_gives_an_error() {
    let mut edge = FakeEdge::start(HttpVersion::Http2).await;
    let (mut http1, http2) = begun(&edge).await;

    edge.rig.kill_server();

    let (rest, end) = http1.read_to_end().await;
    assert!(end.is_err() && !rest.ends_with(b"0\r\n\r\n"));
    read_to_end(http2.1).await.1.unwrap_err();
    // The agent learns it from the next server, which does not know the tunnel.
    edge.rig.start_server().await;
    for request in edge.fake.requests() {
        edge.fake.wait_for_hangup(request.id, SOON).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_complete_answer_ends_cleanly_and_is_the_same_to_the_byte() {
    let large = large();
    for version in VERSIONS {
        let edge = FakeEdge::start(version).await;
        let headers = vec![("Content-Type".to_owned(), "application/octet-stream".to_owned())];
        let answer = Answer { status: 200, headers, body: large.clone() };
        edge.fake.on("/large", Behaviour::Answer(answer.clone()));
        let trickle = Answer { body: large.slice(..300_000), ..answer };
        let pause = Duration::from_millis(1);
        edge.fake.on("/trickle", Behaviour::Slow { answer: trickle.clone(), piece_bytes: 1111, pause });
        for (path, body) in [("/large", &large), ("/trickle", &trickle.body)] {
            let path = format!("/clusters/edge-a{path}");

            let mut http1 = Http1Caller::dial(&edge.rig).await;
            http1.write(head("GET", &path, "Connection: close\r\n")).await;
            let answered = http1.read_head().await.to_lowercase();
            assert!(answered.contains(&format!("content-length: {}\r\n", body.len())), "{answered}");
            let (got, end) = http1.read_to_end().await;
            end.unwrap();
            assert!(got == *body, "{version:?} {path}: {} bytes", got.len());

            let got = Http2Caller::dial(&edge.rig).await.ask("GET", &path, &[]).await.unwrap();
            assert!(got.body() == body, "{version:?} {path}: {} bytes", got.body().len());
        }
    }
}

// Where nobody reads what a caller still sends, RST answers it, and takes along what is on its way: the
// refusal, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_is_refused_is_read_on_until_its_caller_has_the_answer() {
    let edge = FakeEdge::start(HttpVersion::Http1).await;
    let mut caller = Http1Caller::dial(&edge.rig).await;
    let length = format!("Content-Length: {LARGE_BYTES}\r\n");
    caller.write(head("PUT", "/clusters/edge-b/large", &length)).await;
    caller.write([b'u'; PIECE_BYTES]).await;
    let (refusal, end) = caller.read_to_end().await;
    end.unwrap();
    assert!(refusal.starts_with(b"HTTP/1.1 503 "), "{:?}", String::from_utf8_lossy(&refusal));

    for piece in 0..PIECES {
        let sent = caller.try_write([b'u'; PIECE_BYTES]).await;
        sent.unwrap_or_else(|error| panic!("{error} behind {piece} pieces"));
    }
}

/// hyper takes a reset with the code NO_ERROR for the end of a body.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_its_caller_resets_never_arrives_as_complete() {
    for version in VERSIONS {
        let edge = FakeEdge::start(version).await;
        edge.fake.otherwise(Behaviour::json("taken"));
        for (target, reason) in [("/none", Reason::NO_ERROR), ("/cancel", Reason::CANCEL)] {
            let mut caller = Http2Caller::dial(&edge.rig).await;
            let (_answer, mut sending) = caller.send("PUT", &format!("/clusters/edge-a{target}"), &[], false);
            send_all(&mut sending, Bytes::from_static(HALF), false).await.unwrap();
            let has_half = |one: &RecordedRequest| one.target == target && one.body == HALF;
            let request = edge.fake.wait_for_request(SOON, has_half).await.unwrap();

            sending.send_reset(reason);

            edge.fake.wait_for_hangup(request.id, SOON).await.unwrap();
            let ended = edge.fake.requests().into_iter().find(|one| one.target == target).unwrap().body_ended;
            assert_eq!(ended, None, "{version:?} {reason}: it looked complete");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_complete_upload_arrives_the_same_to_the_byte() {
    let large = large();
    for version in VERSIONS {
        let edge = FakeEdge::start(version).await;
        edge.fake.otherwise(Behaviour::json("taken"));

        let mut http1 = Http1Caller::dial(&edge.rig).await;
        let length = format!("Content-Length: {LARGE_BYTES}\r\n");
        http1.write(head("PUT", "/clusters/edge-a/length", &length)).await;
        http1.write(&large).await;
        assert!(http1.read_head().await.starts_with("HTTP/1.1 200 OK"));
        assert_eq!(http1.read_exactly(5).await, b"taken");

        // On the same connection, in small pieces and chunks.
        http1.write(head("PUT", "/clusters/edge-a/chunks", "Transfer-Encoding: chunked\r\n")).await;
        for piece in large[..300_000].chunks(1111) {
            http1.write(format!("{:x}\r\n", piece.len())).await;
            http1.write(piece).await;
            http1.write("\r\n").await;
        }
        http1.write("0\r\n\r\n").await;
        assert!(http1.read_head().await.starts_with("HTTP/1.1 200 OK"));

        let mut http2 = Http2Caller::dial(&edge.rig).await;
        let (answer, mut sending) = http2.send("PUT", "/clusters/edge-a/http2", &[], false);
        send_all(&mut sending, large.clone(), true).await.unwrap();
        assert_eq!(timeout(SOON, answer).await.unwrap().unwrap().status(), 200);

        for (target, body) in
            [("/length", &large[..]), ("/chunks", &large[..300_000]), ("/http2", &large[..])]
        {
            let request = edge.fake.wait_for_request(SOON, |one| one.target == target).await.unwrap();
            assert!(request.body == body, "{version:?} {target}: {} bytes", request.body_bytes);
        }
    }
}

async fn http1_caller_sees_a_cut(edge: &FakeEdge, case: &str) {
    let mut caller = Http1Caller::dial(&edge.rig).await;
    caller.write(head("GET", "/clusters/edge-a/half", "")).await;
    // The end may overtake what was sent before it, the answer's head too: on its way to the gateway, which
    // then says so, or in the gateway, which then cuts the connection.
    let Ok(answered) = caller.try_read_head().await.map(|head| head.to_lowercase()) else {
        return;
    };
    if !answered.starts_with("http/1.1 200 ") {
        assert!(answered.starts_with("http/1.1 50"), "{case}: {answered}");
        return;
    }
    let (body, end) = caller.read_to_end().await;
    assert!(end.is_err(), "{case}: TLS ended cleanly");
    if answered.contains("content-length: 1000\r\n") {
        assert!(body.len() < 1000, "{case}");
    } else {
        assert!(answered.contains("transfer-encoding: chunked\r\n"), "{case}: {answered}");
        assert!(!body.ends_with(b"0\r\n\r\n"), "{case}: a last chunk behind {body:?}");
    }
}

async fn http2_caller_sees_a_reset(edge: &FakeEdge, case: &str) {
    let mut caller = Http2Caller::dial(&edge.rig).await;
    let (answer, _) = caller.send("GET", "/clusters/edge-a/half", &[], true);
    match timeout(SOON, answer).await.unwrap() {
        Ok(answer) if answer.status() == 200 => {
            let (body, end) = read_to_end(answer.into_body()).await;
            assert!(end.unwrap_err().is_reset(), "{case}");
            assert!(body.len() <= HALF.len(), "{case}: {body:?}");
        }
        // As over HTTP/1.1: the end may overtake the head.
        Ok(answer) => assert!(answer.status().is_server_error(), "{case}: {answer:?}"),
        Err(error) => assert!(error.is_reset(), "{case}: {error}"),
    }
    // The stream broke, and not the connection.
    let listed = caller.ask("GET", "/clusters", &[]).await.unwrap();
    assert_eq!(listed.status(), 200, "{case}");
}

/// Callers on both versions in the middle of an answer.
async fn begun(edge: &FakeEdge) -> (Http1Caller, (Http2Caller, RecvStream)) {
    let feed = WatchFeed::new();
    edge.fake.otherwise(Behaviour::Watch(feed.clone()));
    let mut http1 = Http1Caller::dial(&edge.rig).await;
    http1.write(head("GET", "/clusters/edge-a/watch", "")).await;
    assert!(http1.read_head().await.starts_with("HTTP/1.1 200 OK"));
    let mut http2 = Http2Caller::dial(&edge.rig).await;
    let (answer, _) = http2.send("GET", "/clusters/edge-a/watch", &[], true);
    let mut body = timeout(SOON, answer).await.unwrap().unwrap().into_body();
    feed.push("event\n");
    assert_eq!(http1.read_exactly(11).await, b"6\r\nevent\n\r\n");
    assert_eq!(timeout(SOON, body.data()).await.unwrap().unwrap().unwrap(), "event\n");
    (http1, (http2, body))
}

fn large() -> Bytes {
    (0..LARGE_BYTES / 8).flat_map(|number| number.to_be_bytes()).collect()
}
