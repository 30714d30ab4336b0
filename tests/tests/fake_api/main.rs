//! Each misbehaviour of the fake API server is what it claims, seen by a peer that speaks byte by byte.

mod answers;

use std::io;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;
use tests::dial::dial;
use tests::fake_api::{
    Behaviour, FakeApi, FakeApiOptions, HttpVersion, ListenerMode, RecordedRequest, WatchFeed,
};
use tests::pki::Authority;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

/// The limit for anything that should happen.
const SOON: Duration = Duration::from_secs(10);
/// The time within which nothing may happen. A fake that wrongly answers may go unnoticed; a correct one
/// never fails.
const A_WHILE: Duration = Duration::from_millis(200);

#[tokio::test]
async fn http1_requests_are_recorded_as_they_were_written() {
    let fake = FakeApi::start_http1().await.unwrap();
    fake.on("/api", Behaviour::json("{}"));
    let mut peer = Peer::http1(&fake).await;

    let head =
        "POST /api/a%2Fb?x=1 HTTP/1.1\r\nhOsT: h\r\nX-One: 1\r\nx-one: 2\r\nContent-Length: 5\r\n\r\nhello";
    peer.write(head).await;
    let answer = peer.read_past("{}").await;

    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n")
    );
    let request = only(fake.requests());
    assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", "/api/a%2Fb?x=1"));
    let names: Vec<&str> = request.headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["hOsT", "X-One", "x-one", "Content-Length"]);
    assert_eq!(request.header("X-ONE"), ["1", "2"]);
    assert_eq!((request.body_bytes, request.body.as_slice()), (5, b"hello".as_slice()));
    assert!(request.body_ended.is_some());
    assert_eq!(fake.connections()[0].bytes, head.as_bytes());
    assert_eq!(fake.connections()[0].version, Some(HttpVersion::Http1));
}

#[tokio::test]
async fn a_client_without_the_required_certificate_is_refused() {
    let (authority, other) = (Authority::new("required"), Authority::new("other"));
    let required_clients = Some(authority.certificate_pem().to_owned());
    let fake =
        FakeApi::start_with(FakeApiOptions { required_clients, ..FakeApiOptions::default() }).await.unwrap();
    fake.otherwise(Behaviour::json("{}"));
    let user = |authority: &Authority| Some(authority.issue_user("a", &[]));
    for (identity, is_served) in [(user(&authority), true), (user(&other), false), (None, false)] {
        let mut stream = dial(fake.address(), fake.ca_pem(), &[], identity.as_ref()).await.unwrap();

        // With TLS 1.3 a client learns only afterwards that it was refused.
        let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await;
        let answer = timeout(SOON, stream.read_u8()).await.unwrap();

        assert_eq!(answer.is_ok(), is_served, "{answer:?}");
    }
    assert_eq!(fake.requests().len(), 1);
}

#[tokio::test]
async fn chunked_bodies_and_keep_alive_are_understood() {
    let fake = FakeApi::start_http1().await.unwrap();
    fake.otherwise(Behaviour::json("done"));
    let mut peer = Peer::http1(&fake).await;

    peer.write("PUT /one HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        .await;
    peer.read_past("done").await;
    peer.write("GET /two HTTP/1.1\r\n\r\n").await;
    peer.read_past("done").await;

    let requests = fake.requests();
    assert_eq!((requests[0].body_bytes, requests[0].body.as_slice()), (5, b"abcde".as_slice()));
    assert_eq!((requests[1].target.as_str(), requests[1].connection), ("/two", requests[0].connection));
}

#[tokio::test]
async fn http2_requests_are_recorded_too() {
    let fake = FakeApi::start().await.unwrap();
    fake.on("/version", Behaviour::json("v"));
    let mut peer = Http2Peer::dial(&fake).await;

    let answer = peer.get("/version?a=%20").await.unwrap();

    assert_eq!(answer.status(), 200);
    assert_eq!(complete(answer.into_body()).await.unwrap(), "v");
    let request = only(fake.requests());
    assert_eq!((request.version, request.target.as_str()), (HttpVersion::Http2, "/version?a=%20"));
    assert_eq!(request.authority.as_deref(), Some("fake.example"));
}

#[tokio::test]
async fn the_longest_prefix_wins_and_an_unknown_path_is_not_found() {
    let fake = FakeApi::start_http1().await.unwrap();
    fake.on("/api", Behaviour::json("short"));
    fake.on("/api/v1", Behaviour::json("long"));
    let mut peer = Peer::http1(&fake).await;

    for (path, expected) in [("/api/v1/pods", "long"), ("/api?x=/api/v1", "short"), ("/", "NotFound")] {
        peer.write(&format!("GET {path} HTTP/1.1\r\n\r\n")).await;
        assert!(peer.read_past(expected).await.contains("HTTP/1.1 "), "{path}");
    }
}

#[tokio::test]
async fn a_kubeconfig_for_the_fake_carries_its_token() {
    let fake = FakeApi::start().await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubeconfig");

    fake.write_kubeconfig(&path, "s3cret").unwrap();

    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(&fake.url()) && text.contains("token: \"s3cret\""), "{text}");
}

#[tokio::test]
async fn a_closed_listener_refuses_and_an_opened_one_is_at_the_same_address() {
    let mut fake = FakeApi::start_http1().await.unwrap();
    fake.otherwise(Behaviour::json("here"));
    let mut old = Peer::http1(&fake).await;
    fake.refuse().await;

    let refused = TcpStream::connect(fake.address()).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    old.write("GET / HTTP/1.1\r\n\r\n").await;
    old.read_past("here").await;

    fake.listen_again().await.unwrap();
    Peer::http1(&fake).await.write("GET / HTTP/1.1\r\n\r\n").await;
    fake.wait_for_request(SOON, |request| request.connection == 1).await.unwrap();
}

#[tokio::test]
async fn a_listener_is_silent_before_tls_or_closes() {
    let fake = FakeApi::start().await.unwrap();
    fake.set_listener_mode(ListenerMode::SilentBeforeTls);
    assert!(timeout(A_WHILE, dial(fake.address(), fake.ca_pem(), &[], None)).await.is_err());
    assert_eq!(fake.connections().len(), 1);

    fake.set_listener_mode(ListenerMode::Close);
    assert!(timeout(SOON, dial(fake.address(), fake.ca_pem(), &[], None)).await.unwrap().is_err());
}

#[tokio::test]
async fn a_right_101_echoes_and_passes_a_half_close_on() {
    let fake = FakeApi::start_http1().await.unwrap();
    fake.otherwise(Behaviour::Upgrade { pause: A_WHILE, first: Bytes::from_static(b"welcome") });
    let mut peer = Peer::http1(&fake).await;

    peer.write("GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nearly").await;
    let head = peer.read_past("welcomeearly").await;
    peer.write("ping").await;
    peer.read_past("ping").await;
    peer.stream.shutdown().await.unwrap();

    let upgraded = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
    assert!(head.starts_with(upgraded), "{head}");
    let (rest, end) = peer.read_to_end().await;
    assert!(rest.is_empty() && end.is_ok(), "a clean end: {end:?}");
    fake.wait_for_hangup(0, SOON).await.unwrap();
}

#[tokio::test]
async fn wrong_101s_are_wrong_in_the_way_they_say() {
    let fake = FakeApi::start_http1().await.unwrap();
    for (behaviour, expected) in [
        (Behaviour::wrong_101_protocol(), "Connection: Upgrade\r\nUpgrade: other/9\r\n\r\n"),
        (Behaviour::wrong_101_without_connection("SPDY/3.1"), "Protocols\r\nUpgrade: SPDY/3.1\r\n\r\n"),
        (Behaviour::garbage(), "this is not HTTP\r\n\r\n"),
        (Behaviour::json("no upgrade"), "no upgrade"),
    ] {
        fake.otherwise(behaviour);
        let mut peer = Peer::http1(&fake).await;
        peer.write("GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n").await;
        let text = peer.read_past(expected).await;
        assert!(text.ends_with(expected));
        assert!(timeout(A_WHILE, peer.read()).await.is_err(), "the connection stays open");
    }
}

#[tokio::test]
async fn upgrades_over_http2_are_sent_back_to_http1() {
    let fake = FakeApi::start().await.unwrap();
    fake.otherwise(Behaviour::upgrade());

    let refused = Http2Peer::dial(&fake).await.get("/").await.unwrap_err();

    assert_eq!(refused.reason(), Some(h2::Reason::HTTP_1_1_REQUIRED));
}

#[tokio::test]
async fn streams_are_limited_as_configured_and_counted() {
    let options = FakeApiOptions { concurrent_streams_max: 3, ..FakeApiOptions::default() };
    let fake = FakeApi::start_with(options).await.unwrap();
    let feed = WatchFeed::new();
    fake.otherwise(Behaviour::Watch(feed.clone()));
    fake.on("/settings", Behaviour::json("read"));
    let mut peer = Http2Peer::dial(&fake).await;
    complete(peer.get("/settings").await.unwrap().into_body()).await.unwrap(); // An answer means that the fake's SETTINGS have been read.

    let pending: Vec<_> = (0..5).map(|n| tokio::spawn(peer.send(&format!("/{n}")))).collect();
    fake.wait_for_request(SOON, |request| request.target == "/2").await.unwrap();
    while fake.requests().len() < 6 {
        feed.end();
        tokio::task::yield_now().await;
    }

    assert_eq!(fake.streams_open_max(), 3);
    drop(pending);
}

#[tokio::test]
async fn goaway_comes_after_the_configured_requests_and_running_ones_finish() {
    let options = FakeApiOptions { goaway_after: Some(2), ..FakeApiOptions::default() };
    let fake = FakeApi::start_with(options).await.unwrap();
    fake.otherwise(Behaviour::json("ok"));
    let mut peer = Http2Peer::dial(&fake).await;

    assert_eq!(complete(peer.get("/1").await.unwrap().into_body()).await.unwrap(), "ok");
    assert_eq!(complete(peer.get("/2").await.unwrap().into_body()).await.unwrap(), "ok");

    timeout(SOON, &mut peer.driver).await.unwrap().unwrap();
    assert!(peer.sender.clone().ready().await.is_err(), "no third request on this connection");
}

#[tokio::test]
async fn dropping_all_connections_ends_them_without_a_farewell() {
    let fake = FakeApi::start_http1().await.unwrap();
    fake.otherwise(Behaviour::Watch(WatchFeed::new()));
    let mut peer = Peer::http1(&fake).await;
    peer.write("GET / HTTP/1.1\r\n\r\n").await;
    peer.read_past("\r\n\r\n").await;

    fake.drop_connections();

    assert_eq!(peer.read_to_end().await.1.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert!(fake.connections()[0].ended.is_some());
}

#[tokio::test]
async fn a_wait_that_times_out_says_what_has_arrived() {
    let fake = FakeApi::start_http1().await.unwrap();
    Peer::http1(&fake).await.write("GET /seen HTTP/1.1\r\n\r\n").await;
    fake.wait_for_request(SOON, |request| request.target == "/seen").await.unwrap();

    let error = fake.wait_for_request(A_WHILE, |request| request.target == "/never").await.unwrap_err();

    assert!(error.to_string().contains("GET /seen"), "{error}");
}

/// A peer that writes and reads bytes over TLS.
struct Peer {
    stream: TlsStream<TcpStream>,
}

impl Peer {
    async fn http1(fake: &FakeApi) -> Self {
        Self { stream: dial(fake.address(), fake.ca_pem(), &["http/1.1"], None).await.unwrap() }
    }

    async fn write(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    async fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; 16 * 1024];
        let read = self.stream.read(&mut bytes).await?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Reads until what was read ends with `end`.
    async fn read_past(&mut self, end: &str) -> String {
        let mut text = String::new();
        while !text.contains(end) {
            let more = timeout(SOON, self.read())
                .await
                .unwrap_or_else(|_| panic!("no {end:?} in {text:?}"))
                .unwrap();
            assert!(!more.is_empty(), "an end instead of {end:?} after {text:?}");
            text.push_str(&String::from_utf8_lossy(&more));
        }
        text
    }

    async fn read_bytes(&mut self, count: usize) {
        let mut read = 0;
        while read < count {
            read += timeout(SOON, self.read()).await.unwrap().unwrap().len();
        }
    }

    async fn read_to_end(&mut self) -> (String, io::Result<usize>) {
        let mut bytes = Vec::new();
        let end = timeout(SOON, self.stream.read_to_end(&mut bytes)).await.unwrap();
        (String::from_utf8_lossy(&bytes).into_owned(), end)
    }
}

/// A peer that speaks HTTP/2.
struct Http2Peer {
    sender: SendRequest<Bytes>,
    driver: tokio::task::JoinHandle<()>,
}

impl Http2Peer {
    async fn dial(fake: &FakeApi) -> Self {
        let stream = dial(fake.address(), fake.ca_pem(), &["h2", "http/1.1"], None).await.unwrap();
        let (sender, connection) = h2::client::handshake(stream).await.unwrap();
        let driver = tokio::spawn(async move { drop(connection.await) });
        Self { sender, driver }
    }

    fn send(
        &mut self,
        path: &str,
    ) -> impl Future<Output = Result<http::Response<h2::RecvStream>, h2::Error>> + use<> {
        let request = Request::get(format!("https://fake.example{path}")).body(()).unwrap();
        self.sender.send_request(request, true).unwrap().0
    }

    async fn get(&mut self, path: &str) -> Result<http::Response<h2::RecvStream>, h2::Error> {
        timeout(SOON, self.send(path)).await.unwrap()
    }
}

async fn complete(mut body: h2::RecvStream) -> Result<Bytes, h2::Error> {
    let mut bytes = Vec::new();
    while let Some(data) = timeout(SOON, body.data()).await.unwrap() {
        bytes.extend_from_slice(&data?);
    }
    Ok(bytes.into())
}

fn only(mut requests: Vec<RecordedRequest>) -> RecordedRequest {
    assert_eq!(requests.len(), 1, "{requests:?}");
    requests.remove(0)
}
