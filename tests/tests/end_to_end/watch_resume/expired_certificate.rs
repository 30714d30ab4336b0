//! A watch is parked only while its caller may watch. When the caller's certificate expires meanwhile, it
//! gets an error at once in its encoding.

use std::time::{Duration, SystemTime};

use tests::caller::{GATEWAY, Http2Caller};
use tests::fake_api::{Behaviour, Cut, HttpVersion};
use tests::fake_edge::CLUSTER;
use tests::rig::GROUP;

use super::site::{OpenWatch, Site};

/// The lifetime of the certificate: a caller dials and sends three requests within it.
const VALID: Duration = Duration::from_secs(12);

/// Each with a collection of its own.
const ENCODINGS: [(&str, &str); 3] = [
    ("/apis/j/v1/things", "application/json"),
    ("/apis/p/v1/things", "application/vnd.kubernetes.protobuf;stream=watch"),
    ("/apis/c/v1/things", "application/cbor-seq"),
];

/// The error event has the watch's encoding.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_watch_ends_with_401_when_its_callers_certificate_expires() {
    let mut site = Site::start(HttpVersion::Http1, "").await;
    let store = site.store();
    for (path, content_type) in ENCODINGS {
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n");
        site.edge.fake.on(path, Behaviour::raw(head, Cut::Hold));
    }
    let (_, mut of_another) = site.reflect("").await;
    let expiring = site.edge.rig.caller_until("brief", &[GROUP], SystemTime::now() + VALID);
    let mut caller = Http2Caller::dial_name(&site.edge.rig, GATEWAY, Some(&expiring)).await;
    let mut watches = Vec::new();
    for (path, content_type) in ENCODINGS {
        let target = format!("/clusters/{CLUSTER}{path}?watch=1&resourceVersion=5");
        watches.push((content_type, OpenWatch::begin(&mut caller, &target).await));
    }

    site.stop_agent().await;
    site.parked_are(4.0).await;
    let asked = site.asked().await.len();

    for (content_type, watch) in &mut watches {
        assert!(watch.end().await.is_err(), "{content_type}: the watch breaks off");
        let event = watch.take();
        let output = |text: &[u8]| event.windows(text.len()).any(|window| window == text);
        let is_reported = output(b"ERROR") && output(b"Unauthorized") && output(b"CredentialExpired");
        assert!(is_reported, "{content_type}: {}", String::from_utf8_lossy(&event));
        let is_json = serde_json::from_slice::<serde_json::Value>(&event)
            .is_ok_and(|event| event["object"]["code"] == 401);
        assert_eq!(is_json, *content_type == "application/json");
    }
    let ended = "tombolo_server_request_terminations_total{reason=\"expired\"}";
    site.edge.rig.measured(ended, |ended| ended == ENCODINGS.len() as f64).await;
    site.parked_are(1.0).await;
    site.edge.kill_agent().await;
    store.put("a", "1");
    of_another.until("\"a\"").await;
    assert_eq!(site.asked().await.len(), asked + 1, "what is not allowed is not asked for");
}
