//! A download through gateway and tunnel and small GETs beside it, over a given carrier.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use ::tests::caller::{GATEWAY, Http2Caller, read_to_end};
use ::tests::carrier::Carrier;
use ::tests::fake_api::{Answer, Behaviour, FakeApiOptions};
use ::tests::lab::{self, Lab, Uplink};
use bytes::Bytes;
use h2::RecvStream;
use tokio::time::sleep;

use super::path::Impairments;
use super::quic::SMALL_BYTES;
use super::{LinkTurn, small_requests};

/// The path of a small response, and that of an endless one.
const SMALL: &str = "/api/v1/namespaces/default/configmaps/small";
const BULK: &str = "/api/v1/namespaces/default/pods/bulk/log";
const PIECE_BYTES: usize = 64 * 1024;
/// The receive window of the download. It is larger than the link's bandwidth-delay product, so that it
/// limits nothing.
const CALLER_WINDOW_BYTES: u32 = 16 << 20;

/// Runs one turn at a new site behind the link, with the real daemons.
pub async fn turn(
    impairments: Impairments,
    carrier: Carrier,
    warm_up: Duration,
    lasts: Duration,
) -> Result<LinkTurn, Box<dyn Error>> {
    // A lab blocks the thread that it runs on.
    let turn = tokio::task::spawn_blocking(move || {
        lab::run(async |lab: &Lab| in_lab(lab, impairments, carrier, warm_up, lasts).await)
    });
    Ok(turn.await??)
}

async fn in_lab(
    lab: &Lab,
    impairments: Impairments,
    carrier: Carrier,
    warm_up: Duration,
    lasts: Duration,
) -> LinkTurn {
    let rig = lab.rig_logging("info", "").await;
    let seed = impairments.seed.to_string();
    let uplink = Uplink::simulated(&impairments.linksim_words()).with(&["--seed", &seed]);
    let site = lab.site("edge", uplink).await;
    let api = site.fake_api(FakeApiOptions::default()).await;
    api.on(SMALL, Behaviour::Answer(Answer::json(200, " ".repeat(SMALL_BYTES))));
    api.on(BULK, Behaviour::Endless(Bytes::from(vec![0; PIECE_BYTES])));
    let _agent = site.agent(&rig, &api, &format!("carrier: {}", carrier.as_str())).await;

    let at = |path: &str| format!("/clusters/edge{path}");
    let mut bulk = Http2Caller::dial_windows(&rig, GATEWAY, None, CALLER_WINDOW_BYTES, CALLER_WINDOW_BYTES)
        .await
        .with_token();
    let (answer, _) = bulk.send("GET", &at(BULK), &[], true);
    let received = Arc::new(AtomicU64::new(0));
    let body = answer.await.expect("the download begins").into_body();
    let downloading = tokio::spawn(download(body, Arc::clone(&received)));
    let mut small = Http2Caller::dial(&rig).await;
    sleep(warm_up).await;
    let turn = small_requests::measure(lasts, &received, || {
        let (answer, _) = small.send("GET", &at(SMALL), &[], true);
        async move {
            let (_, end) = read_to_end(answer.await.ok()?.into_body()).await;
            end.ok()
        }
    })
    .await;
    assert!(!downloading.is_finished(), "the download broke");
    downloading.abort();
    turn
}

async fn download(mut body: RecvStream, received: Arc<AtomicU64>) {
    while let Some(Ok(data)) = body.data().await {
        let _ = body.flow_control().release_capacity(data.len()); // Fails only on a stream that is gone.
        received.fetch_add(data.len() as u64, Relaxed);
    }
}
