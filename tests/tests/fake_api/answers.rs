//! Answers that are late, endless, cut short, or a feed.

use std::time::Duration;

use bytes::Bytes;
use tests::fake_api::{Answer, Behaviour, Cut, Declared, FakeApi, WatchFeed};
use tokio::time::timeout;

use super::*;

#[tokio::test]
async fn an_unanswered_request_is_read_and_its_disconnect_noticed() {
    let fake = FakeApi::start().await.unwrap();
    fake.otherwise(Behaviour::NeverAnswer);

    let mut http1 = Peer::http1(&fake).await;
    http1.write("POST /1 HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi").await;
    let one = fake.wait_for_request(SOON, |request| request.body_ended.is_some()).await.unwrap();
    assert!(timeout(A_WHILE, http1.read()).await.is_err());
    http1.write("pipelined").await;
    drop(http1);
    fake.wait_for_hangup(one.id, SOON).await.unwrap();
    assert!(fake.connections()[0].bytes.ends_with(b"pipelined"));

    let mut http2 = Http2Peer::dial(&fake).await;
    let pending = http2.send("/2");
    let two = fake.wait_for_request(SOON, |request| request.target == "/2").await.unwrap();
    drop(pending); // h2 resets the stream of an answer that nobody waits for.
    let hangup = fake.wait_for_hangup(two.id, SOON).await.unwrap();
    assert!(hangup.how.contains("the stream was reset"), "{}", hangup.how);

    let pending = http2.send("/3");
    let three = fake.wait_for_request(SOON, |request| request.target == "/3").await.unwrap();
    http2.driver.abort();
    fake.wait_for_hangup(three.id, SOON).await.unwrap();
    drop(pending);
}

#[tokio::test]
async fn a_truncated_answer_ends_early_by_fin_or_rst_and_without_a_farewell() {
    let fake = FakeApi::start_http1().await.unwrap();
    for (declared, cut) in [
        (Declared::ContentLength(10), Cut::Close),
        (Declared::ContentLength(10), Cut::Reset),
        (Declared::Chunked, Cut::Close),
        (Declared::Chunked, Cut::Reset),
    ] {
        fake.otherwise(Behaviour::Truncate { declared, sent: Bytes::from_static(b"half"), cut });
        let mut peer = Peer::http1(&fake).await;
        peer.write("GET / HTTP/1.1\r\n\r\n").await;

        let (text, end) = peer.read_to_end().await;

        // rustls says UnexpectedEof where a connection ends without close_notify.
        let expected =
            if cut == Cut::Reset { io::ErrorKind::ConnectionReset } else { io::ErrorKind::UnexpectedEof };
        assert_eq!(end.unwrap_err().kind(), expected, "{declared:?} {cut:?}");
        // A reset may overtake what was sent before it.
        if cut == Cut::Close {
            let (head, tail) = text.split_once("\r\n\r\n").unwrap();
            match declared {
                Declared::ContentLength(_) => assert!(head.contains("Content-Length: 10") && tail == "half"),
                Declared::Chunked => assert!(head.contains("chunked") && tail == "4\r\nhalf\r\n"),
            }
        }
    }
}

#[tokio::test]
async fn a_truncated_http2_answer_arrives_in_part_and_then_breaks() {
    let fake = FakeApi::start().await.unwrap();
    let sent = Bytes::from_static(b"half");
    fake.otherwise(Behaviour::Truncate { declared: Declared::Chunked, sent, cut: Cut::Close });
    let mut peer = Http2Peer::dial(&fake).await;

    let mut body = peer.get("/").await.unwrap().into_body();

    assert_eq!(body.data().await.unwrap().unwrap(), "half");
    body.data().await.unwrap().unwrap_err();
}

#[tokio::test]
async fn an_endless_body_has_no_end_until_the_reader_goes() {
    let fake = FakeApi::start().await.unwrap();
    fake.otherwise(Behaviour::Endless(Bytes::from(vec![b'x'; 64 * 1024])));

    let mut http1 = Peer::http1(&fake).await;
    http1.write("GET / HTTP/1.1\r\n\r\n").await;
    http1.read_bytes(2 * 1024 * 1024).await;
    drop(http1);
    fake.wait_for_hangup(0, SOON).await.unwrap();

    let mut http2 = Http2Peer::dial(&fake).await;
    let mut body = http2.get("/").await.unwrap().into_body();
    let mut read = 0;
    while read < 2 * 1024 * 1024 {
        let data = body.data().await.unwrap().unwrap();
        read += data.len();
        body.flow_control().release_capacity(data.len()).unwrap();
    }
    drop(body);
    fake.wait_for_hangup(1, SOON).await.unwrap();
}

#[tokio::test]
async fn a_redirect_says_where_to() {
    let fake = FakeApi::start_http1().await.unwrap();
    fake.otherwise(Behaviour::redirect(302, "https://elsewhere.example/x"));
    let mut peer = Peer::http1(&fake).await;

    peer.write("GET / HTTP/1.1\r\n\r\n").await;

    let head = peer.read_past("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 302 Found\r\nLocation: https://elsewhere.example/x\r\n"), "{head}");
}

#[tokio::test]
async fn a_slow_body_comes_in_pieces() {
    let fake = FakeApi::start().await.unwrap();
    let answer = Answer::json(200, "abcdef");
    fake.otherwise(Behaviour::Slow { answer, piece_bytes: 2, pause: Duration::from_millis(20) });
    let mut peer = Http2Peer::dial(&fake).await;

    let mut body = peer.get("/").await.unwrap().into_body();

    let mut pieces = Vec::new();
    while let Some(data) = body.data().await {
        pieces.extend(Some(data.unwrap()).filter(|piece| !piece.is_empty()));
    }
    assert_eq!(pieces, ["ab", "cd", "ef"]);
}

#[tokio::test]
async fn a_watch_sends_its_feed_and_ends_cleanly() {
    let fake = FakeApi::start().await.unwrap();
    let feed = WatchFeed::new();
    fake.on("/watch", Behaviour::Watch(feed.clone()));
    let mut http1 = Peer::http1(&fake).await;
    http1.write("GET /watch HTTP/1.1\r\n\r\n").await;
    let mut http2 = Http2Peer::dial(&fake).await;
    let mut body = http2.get("/watch").await.unwrap().into_body();
    fake.wait_for_request(SOON, |request| request.version == HttpVersion::Http1).await.unwrap();

    assert_eq!(feed.push("event\n"), 2);
    http1.read_past("6\r\nevent\n\r\n").await;
    assert_eq!(body.data().await.unwrap().unwrap(), "event\n");

    assert_eq!(feed.end(), 2);
    http1.read_past("0\r\n\r\n").await;
    assert_eq!(complete(body).await.unwrap(), "");
    for request in fake.requests() {
        fake.wait_for_answered(request.id, SOON).await.unwrap();
    }
}

#[tokio::test]
async fn an_idle_watch_notices_that_its_reader_went_also_behind_pipelined_bytes() {
    let fake = FakeApi::start_http1().await.unwrap();
    fake.otherwise(Behaviour::Watch(WatchFeed::new()));
    for (id, ends_with_goodbye) in [(0, false), (1, true)] {
        let mut peer = Peer::http1(&fake).await;
        peer.write("GET /w HTTP/1.1\r\n\r\nGET /next HTTP/1.1\r\n\r\n").await;
        peer.read_past("\r\n\r\n").await;

        if ends_with_goodbye {
            peer.stream.shutdown().await.unwrap();
        } else {
            drop(peer);
        }

        fake.wait_for_hangup(id, SOON).await.unwrap();
    }
    assert_eq!(fake.requests().len(), 2, "what was pipelined was not served");
}
