//! One round: a site behind the link with real daemons, and the turns there.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ::tests::carrier::Carrier;
use ::tests::fake_api::{Behaviour, FakeApiOptions};
use ::tests::lab::{self, Lab, Uplink};
use ::tests::typing::EchoTimes;
use bytes::Bytes;
use tokio::time::sleep;

use super::bulk::{self, Bulk};
use super::shells::Shells;
use super::{BulkTraffic, KeystrokeTurn, KeystrokesFlags};
use crate::link::path::Impairments;

const SHELL: &str = "/api/v1/namespaces/default/pods/shell/exec";

/// Runs one round, with its turns in this order.
pub(super) async fn run(
    impairments: Impairments,
    carrier: Carrier,
    flags: KeystrokesFlags,
    order: Vec<BulkTraffic>,
) -> Result<Vec<KeystrokeTurn>, Box<dyn Error>> {
    // A lab blocks the thread that it runs on.
    let round = tokio::task::spawn_blocking(move || {
        lab::run(async |lab: &Lab| in_lab(lab, impairments, carrier, &flags, &order).await)
    });
    Ok(round.await??)
}

async fn in_lab(
    lab: &Lab,
    impairments: Impairments,
    carrier: Carrier,
    flags: &KeystrokesFlags,
    order: &[BulkTraffic],
) -> Vec<KeystrokeTurn> {
    let rig = lab.rig_logging("info", "").await;
    let seed = impairments.seed.to_string();
    let uplink = Uplink::simulated(&impairments.linksim_words()).with(&["--seed", &seed]);
    let site = lab.site("edge", uplink).await;
    let api = site.fake_api(FakeApiOptions::default()).await;
    api.on(SHELL, Behaviour::Upgrade { pause: Duration::ZERO, first: Bytes::new() });
    bulk::serve(&api);
    let _agent = site.agent(&rig, &api, &format!("carrier: {}", carrier.as_str())).await;
    let shell = format!("/clusters/edge{SHELL}?command=cat&stdin=true");
    let mut shells = Shells::open(&rig, &shell, flags.shells, impairments.seed).await;

    let [lasts, warm_up] = [flags.seconds, flags.warm_up].map(|seconds| Duration::from_secs(seconds.into()));
    let mut turns = Vec::new();
    for beside in order {
        let transfers = [beside.is_out(), beside.is_in()].map(|is| if is { flags.transfers } else { 0 });
        let bulk = Bulk::begin(&rig, transfers).await;
        sleep(warm_up).await;
        let counts = [&bulk.out_bytes, &bulk.in_bytes];
        let (began, before) = (Instant::now(), counts.map(read));
        let took = shells.type_for(lasts).await;
        let seconds = began.elapsed().as_secs_f64();
        let [out, into] = [0, 1].map(|way| (read(counts[way]) - before[way]) as f64 * 8.0 / 1e6 / seconds);
        bulk.end();
        turns.push(turn(took, out, into));
    }
    turns
}

fn turn(EchoTimes { lines, p50, p99, longest }: EchoTimes, out_mbit: f64, in_mbit: f64) -> KeystrokeTurn {
    let [p50_ms, p99_ms, max_ms] = [p50, p99, longest].map(|took| took.as_secs_f64() * 1e3);
    KeystrokeTurn { lines, p50_ms, p99_ms, max_ms, out_mbit, in_mbit }
}

fn read(count: &Arc<AtomicU64>) -> u64 {
    count.load(Relaxed)
}
