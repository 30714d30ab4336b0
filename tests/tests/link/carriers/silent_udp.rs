//! UDP ceases and TCP passes: over its tunnel by TCP the agent tells what it has received over QUIC, so that nothing
//! waits for the silent tunnel that need not, and nothing happens twice.

use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::ResponseFuture;
use tests::caller::{Http1Caller, Http2Caller, SOON, head, upgrade};
use tests::enroll::at;
use tests::fake_api::{Behaviour, RecordedRequest, Store};
use tests::lab::trial;
use tests::listener::{Listener, echo};
use tests::rig::GROUP;
use tests::rig::policy::{may_dial, usual};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::dead_tunnel::{COLLECTION, until};
use super::{CarrierSetup, NO_UDP};

/// Work moves to another agent's tunnel only after this time (`STABLE_AFTER`), so a faster answer shows that the
/// agent itself has told.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// Requests of each kind that are sent into the dark.
const EACH: usize = 5;

#[test]
fn requests_an_agent_never_received_are_sent_again_over_tcp_once() {
    trial("requests_an_agent_never_received_are_sent_again_over_tcp_once", async |lab| {
        let setup = CarrierSetup::build(lab).await;
        for kind in ["read", "written", "uploaded"] {
            setup.api.on(&format!("/api/v1/{kind}"), Behaviour::json("{}"));
        }
        let pod = "/api/v1/namespaces/default/pods/p/exec";
        setup.api.on(pod, Behaviour::Upgrade { pause: Duration::ZERO, first: Bytes::from_static(b"first") });
        let store = Store::new();
        let version = store.put("a", "1");
        setup.api.on(COLLECTION, Behaviour::Store(store.clone()));
        let _agent = setup.agent("").await;
        setup.logged_carrier(0, "tunnel opened", "quic").await;
        let mut caller = Http2Caller::dial(&setup.rig).await;
        let watch = format!("/clusters/edge-a{COLLECTION}?watch=1&resourceVersion={version}");
        let watch = caller.send("GET", &watch, &[], true).0;
        let mut watch = timeout(SOON, watch).await.expect("a head in time").expect("a head").into_body();
        store.put("b", "1");
        until(&mut watch, "\"b\"").await;

        // The silence is noticed after some seconds. All that is sent before goes into the dark.
        let logged_bytes = setup.rig.agent_log("edge-a").len();
        setup.fault(NO_UDP).await;
        let (began, mut sent) = (Instant::now(), Vec::new());
        for number in 0..EACH {
            sent.push(Sent::new(&mut caller, "GET", format!("/api/v1/read/{number}"), None));
            sent.push(Sent::new(&mut caller, "DELETE", format!("/api/v1/written/{number}"), None));
            sent.push(Sent::new(&mut caller, "POST", format!("/api/v1/uploaded/{number}"), Some(number)));
        }
        let path = format!("/clusters/edge-a{pod}");
        let (upgraded, ()) = tokio::join!(upgrade(&setup.rig, &path), async {
            setup.logged_carrier(logged_bytes, "tunnel opened", "http2").await;
        });
        let opened = Instant::now();
        store.put("c", "1");
        until(&mut watch, "\"c\"").await;
        let watched = opened.elapsed();
        for Sent { path, answer, .. } in &mut sent {
            let answer = timeout(SOON, answer).await.expect("an answer in time").expect("an answer");
            assert_eq!(answer.status(), 200, "{path}\n{}", setup.rig.server_log());
        }
        let answered = opened.elapsed();
        println!("over TCP after {:?}; event {watched:?}, answers {answered:?} later", opened - began);
        assert!(watched < STABLE_AFTER && answered < STABLE_AFTER, "{watched:?} {answered:?}");
        let (mut reader, mut writer, first) = upgraded;
        let mut echoed = first;
        writer.write_all(b" and more").await.unwrap();
        while !echoed.ends_with(b"more") {
            assert!(timeout(SOON, reader.read_buf(&mut echoed)).await.expect("an echo in time").unwrap() > 0);
        }

        // The old tunnel comes back with what was on its way, and nothing of it is carried out any more.
        let logged_bytes = setup.rig.agent_log("edge-a").len();
        setup.no_fault().await;
        setup.returned(logged_bytes).await;
        setup.serves().await;
        let came = setup.api.requests();
        for Sent { path, body, .. } in &sent {
            let same: Vec<&RecordedRequest> = came.iter().filter(|one| one.target == *path).collect();
            assert_eq!(same.len(), 1, "{path}");
            assert_eq!(same[0].body, *body, "{path}");
        }
        let sent_again = async |kind: &str| {
            let series = format!("tombolo_server_requests_sent_again_total{{kind=\"{kind}\"}}");
            setup.rig.metric(setup.rig.probes(), &series).await
        };
        assert_eq!((sent_again("write").await, sent_again("upgrade").await), (2.0 * EACH as f64, 1.0));
        let reads = "tombolo_server_reads_retried_total{reason=\"silent\"}";
        assert_eq!(setup.rig.metric(setup.rig.probes(), reads).await, EACH as f64);
    });
}

/// A write that its agent has received ends with an unknown outcome, and is not sent again.
#[test]
fn streams_of_a_tunnel_that_stays_silent_beside_another_are_reset() {
    trial("streams_of_a_tunnel_that_stays_silent_beside_another_are_reset", async |lab| {
        let setup = CarrierSetup::build(lab).await;
        let target = setup.site.run(Listener::start(echo)).await;
        let address = target.address.to_string();
        setup.api.on("/api/v1/written", Behaviour::NeverAnswer);
        let _agent = setup.agent(&format!("targets: [{address:?}]\n")).await;
        setup.logged_carrier(0, "tunnel opened", "quic").await;
        let dialers = may_dial("dialers", ("token", &format!("token:{GROUP}")), &["edge-a"]);
        setup.rig.put_policy(&usual().into_iter().chain([dialers]).collect::<Vec<_>>()).await;
        at(&setup.rig, &["cluster", "update", "edge-a", "--advertise", &address]).await;
        let mut dialed = Http1Caller::dial(&setup.rig).await;
        dialed.write(head("CONNECT", &address, "Tombolo-Cluster: edge-a\r\n")).await;
        let answer = dialed.read_head().await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        dialed.write("x").await;
        assert_eq!(dialed.read_exactly(1).await, b"x");
        let mut caller = Http2Caller::dial(&setup.rig).await;
        let write = caller.send("DELETE", "/clusters/edge-a/api/v1/written", &[], true).0;
        let is_write = |one: &RecordedRequest| one.target == "/api/v1/written";
        setup.api.wait_for_request(SOON, is_write).await.expect("it arrives");

        let logged_bytes = setup.rig.agent_log("edge-a").len();
        setup.fault(NO_UDP).await;
        let began = Instant::now();
        dialed.write("y").await;
        setup.logged_carrier(logged_bytes, "tunnel opened", "http2").await;

        let (rest, end) = dialed.read_to_end().await;
        println!("the connection to the target was reset {:?} after UDP ceased", began.elapsed());
        assert!(rest.is_empty() && end.is_err(), "a break, and no end: {rest:?} {end:?}");
        let write = timeout(SOON, write).await.expect("an answer in time").expect("an answer");
        assert_eq!(write.status(), 504, "{}", setup.rig.server_log());
        println!("the write has an unknown outcome {:?} after UDP ceased", began.elapsed());
        assert_eq!(setup.api.requests().iter().filter(|one| is_write(one)).count(), 1);
        // The agent was told, so it holds nothing of the streams for minutes.
        setup.logged_carrier(logged_bytes, "tunnel closed", "quic").await;
        assert!(target.received().await.is_empty(), "the target's connection has ended, too");
        setup.serves().await;
    });
}

/// A request whose answer is still awaited.
struct Sent {
    path: String,
    body: Bytes,
    answer: ResponseFuture,
}

impl Sent {
    /// Sends a request, with a body of some thousand bytes if it has a `number`.
    fn new(caller: &mut Http2Caller, method: &str, path: String, number: Option<usize>) -> Self {
        let body = number.map_or_else(Bytes::new, |number| Bytes::from(format!("{number}").repeat(3_000)));
        let target = format!("/clusters/edge-a{path}");
        let (answer, mut stream) = caller.send(method, &target, &[], body.is_empty());
        if !body.is_empty() {
            stream.send_data(body.clone(), true).expect("the stream is open");
        }
        Self { path, body, answer }
    }
}
