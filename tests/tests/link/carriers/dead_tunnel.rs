//! A tunnel over TCP is silent or cut, and QUIC is back: watches and reads go on there, and nothing else is
//! sent twice.

use std::pin::pin;

use futures::FutureExt;
use h2::RecvStream;
use tests::caller::{Http2Caller, SOON};
use tests::fake_api::{Behaviour, RecordedRequest, Store};
use tests::lab::{Lab, trial};
use tokio::time::timeout;

use super::{CarrierSetup, NO_UDP};

pub(super) const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";
const READ: &str = "/api/v1/namespaces/default/configmaps/read";
const WRITTEN: &str = "/api/v1/namespaces/default/configmaps/written";

/// Watches and reads go on there, and nothing else is sent twice.
#[test]
fn streams_of_a_silent_tcp_tunnel_continue_over_quic() {
    trial("streams_of_a_silent_tcp_tunnel_continue_over_quic", async |lab| {
        go_on(lab, "drop", "silent").await;
    });
}

#[test]
fn streams_of_a_cut_tcp_tunnel_continue_over_quic() {
    trial("streams_of_a_cut_tcp_tunnel_continue_over_quic", async |lab| {
        go_on(lab, "reject with tcp reset", "lost").await;
    });
}

/// `verdict` is what becomes of TCP, `reason` why a read is sent once more.
async fn go_on(lab: &Lab, verdict: &str, reason: &str) {
    let (setup, store) = (CarrierSetup::build(lab).await, Store::new());
    let version = store.put("a", "1");
    setup.api.on(COLLECTION, Behaviour::Store(store.clone()));
    setup.api.on(READ, Behaviour::NeverAnswer);
    setup.api.on(WRITTEN, Behaviour::NeverAnswer);
    setup.fault(NO_UDP).await;
    let _agent = setup.agent("").await;
    setup.logged_carrier(0, "tunnel opened", "http2").await;
    let mut caller = Http2Caller::dial(&setup.rig).await;
    let mut send =
        |method: &str, path: &str| caller.send(method, &format!("/clusters/edge-a{path}"), &[], true).0;
    let watch = send("GET", &format!("{COLLECTION}?watch=1&resourceVersion={version}"));
    let mut watch = timeout(SOON, watch).await.expect("a head in time").expect("a head").into_body();
    store.put("b", "1");
    until(&mut watch, "\"b\"").await;
    let (read, mut write) = (send("GET", READ), pin!(send("DELETE", WRITTEN)));
    for path in [READ, WRITTEN] {
        setup.api.wait_for_request(SOON, |one| one.target == path).await.expect("it arrives");
        setup.api.on(path, Behaviour::json("{}"));
    }

    let output = setup.rig.agent_log("edge-a").len();
    setup.no_fault().await;
    for direction in ["sport", "dport"] {
        setup.fault(&format!("add rule inet fault forward tcp {direction} $PORT {verdict}")).await;
    }
    setup.logged_carrier(output, "tunnel opened", "quic").await;
    store.put("c", "1");

    until(&mut watch, "\"c\"").await;
    let read = timeout(SOON, read).await.expect("an answer in time").expect("an answer");
    assert_eq!(read.status(), 200, "{}", setup.rig.server_log());
    let retried = format!("tombolo_server_reads_retried_total{{reason=\"{reason}\"}}");
    assert_eq!(setup.rig.metric(setup.rig.probes(), &retried).await, 1.0);
    assert_eq!(setup.rig.metric(setup.rig.probes(), "tombolo_server_watches_resumed_total").await, 1.0);
    // What may have had an effect is held as long as its tunnel may come back, and else nobody knows its
    // outcome.
    match write.as_mut().now_or_never() {
        None => assert_eq!(reason, "silent"),
        Some(answer) => assert_eq!((answer.expect("an answer").status().as_u16(), reason), (504, "lost")),
    }
    let came = |path| setup.api.requests().iter().filter(|one: &&RecordedRequest| one.target == path).count();
    assert_eq!((came(READ), came(WRITTEN)), (2, 1));
}

/// Reads until this has come.
pub(super) async fn until(watch: &mut RecvStream, text: &str) {
    let mut got = Vec::new();
    while !String::from_utf8_lossy(&got).contains(text) {
        let more = timeout(SOON, watch.data()).await.expect("something in time").expect("it goes on");
        got.extend_from_slice(&more.expect("the watch is whole"));
    }
}
