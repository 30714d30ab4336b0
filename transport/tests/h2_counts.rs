//! A defect of h2 0.4.20 that this workspace meets in debug builds, in its smallest form.
//!
//! A server answers before it has read the request, and drops both. h2 then schedules a reset with the code
//! NO_ERROR behind the answer. If the answer waits for the client's window, and the connection ends, the
//! stream is counted for ever. `Drop for Counts` asserts that none is.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use http::{Request, Response};
use tokio::io::duplex;
use tokio::time::timeout;

/// No event of these tests is later than this.
const SOON: Duration = Duration::from_secs(30);

/// Returns true if h2's assertion fails once a client has left whose window holds so many bytes.
#[expect(clippy::disallowed_methods, reason = "a panic of this task is the result")]
async fn asserts(window: u32, answer: &'static [u8]) -> bool {
    let (ours, theirs) = duplex(64 * 1024);
    let client = async {
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(window);
        let (mut requests, connection) =
            builder.handshake::<_, Bytes>(theirs).await.expect("both sides of h2 go on");
        let request = Request::post("https://gateway/upload").body(()).expect("both sides of h2 go on");
        let (answered, mut body) = requests.send_request(request, false).expect("both sides of h2 go on");
        body.send_data("half of it".into(), false).expect("both sides of h2 go on");
        // Both arms are cancel-safe: they are dropped together.
        tokio::select! {
            answered = answered => drop(answered.expect("both sides of h2 go on")),
            ended = connection => panic!("the connection goes on: {ended:?}"),
        }
    };
    let server = async {
        let mut connection = h2::server::handshake(ours).await.expect("both sides of h2 go on");
        let (request, mut respond) =
            connection.accept().await.expect("both sides of h2 go on").expect("both sides of h2 go on");
        let body: RecvStream = request.into_body();
        let mut sending = respond.send_response(Response::new(()), false).expect("both sides of h2 go on");
        sending.send_data(Bytes::from_static(answer), true).expect("both sides of h2 go on");
        drop((sending, respond, body));
        // Until the client has left.
        while let Some(Ok(_)) = connection.accept().await {}
        let _ = poll_fn(|cx| connection.poll_closed(cx)).await;
    };
    let server = tokio::spawn(server);
    timeout(SOON, client).await.expect("both sides of h2 go on");
    timeout(SOON, server).await.expect("both sides of h2 go on").is_err()
}

/// If this fails, h2 has mended it, and decision 0059 can be shortened.
#[cfg(debug_assertions)]
#[tokio::test]
async fn h2_counts_a_stream_for_ever_whose_answer_waits_for_a_window() {
    assert!(asserts(0, b"an answer that does not fit").await);
    assert!(!asserts(65_535, b"an answer that fits").await);
}
