//! An outage of seconds: every stream goes on where it stopped. How soon is `loadtest outage`'s to say.

use std::time::Duration;

use tests::lab::trial;
use tests::outage::{Plan, Stand, Tunnels};

/// Long enough that every timer of QUIC has backed off.
const OUTAGE: Duration = Duration::from_secs(3);
/// Fast enough that what waits at its ends is soon over.
const LINK: &str = "delay=20ms rate=32mbit queue=128KiB";

#[test]
fn no_stream_breaks_and_no_byte_is_lost_or_doubled_by_an_outage() {
    trial("no_stream_breaks_by_an_outage", async |lab| outage(lab, false).await);
}

#[test]
fn nor_by_one_after_which_the_agent_has_another_source_port() {
    trial("nor_by_one_after_which_the_agent_has_another_source_port", async |lab| outage(lab, true).await);
}

async fn outage(lab: &tests::lab::Lab, new_port: bool) {
    let rig = lab.rig("").await;
    let tunnels = Tunnels::of(&rig).await;
    let stand = Stand::build(lab, &rig, "edge-a", LINK, 1).await;

    let outcome = stand.run(&rig, &tunnels, Plan { length: OUTAGE, new_port, seed: 1 }).await;

    assert_eq!(outcome.wrongs(), Vec::<String>::new());
    assert!(outcome.slowest().is_some(), "{:#?}", outcome.directions);
    let forgotten = stand.site().link().stats().await["nat"]["rebound"].as_u64().unwrap();
    assert!(if new_port { forgotten >= 2 } else { forgotten == 0 }, "{forgotten} mappings of two agents");
}
