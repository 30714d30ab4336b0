//! An outage of seconds: every stream goes on where it stopped, unless it is longer than the limit. `loadtest
//! outage` measures the speed of that.

use std::time::Duration;

use tests::lab::trial;
use tests::outage::{OutagePlan, OutageSite, Tunnels};

/// Long enough that every timer of QUIC has backed off.
const OUTAGE: Duration = Duration::from_secs(3);
/// The shortest limit that may be configured, and an outage that is longer.
const SHORTEST_LIMIT: &str = "tunnel: { outageLimitSeconds: 9 }";
const BEYOND: Duration = Duration::from_secs(12);
/// Fast enough that what waits at its ends is soon over.
const LINK: &str = "delay=20ms rate=32mbit queue=128KiB";

#[test]
fn no_stream_breaks_and_no_byte_is_lost_or_doubled_by_an_outage() {
    trial("no_stream_breaks_by_an_outage", async |lab| outage(lab, "", false).await);
}

#[test]
fn no_stream_breaks_by_an_outage_over_tcp() {
    trial("no_stream_breaks_by_an_outage_over_tcp", async |lab| outage(lab, "carrier: http2", false).await);
}

#[test]
fn no_stream_breaks_by_an_outage_that_changes_the_source_port() {
    trial("no_stream_breaks_by_an_outage_that_changes_the_source_port", async |lab| {
        outage(lab, "", true).await
    });
}

/// No stream ends as if it were complete.
#[test]
fn beyond_the_agents_own_limit_every_stream_ends_with_an_error() {
    trial("beyond_the_agents_own_limit_every_stream_ends_with_an_error", async |lab| {
        let rig = lab.rig("").await;
        let tunnels = Tunnels::of(&rig).await;
        let site = OutageSite::build(lab, &rig, "edge-a", LINK, 1, SHORTEST_LIMIT).await;

        let outcome = site.run(&rig, &tunnels, OutagePlan { length: BEYOND, new_port: false, seed: 1 }).await;

        assert_eq!(outcome.wrongs_beyond(), Vec::<String>::new());
    });
}

async fn outage(lab: &tests::lab::Lab, more: &str, new_port: bool) {
    let rig = lab.rig("").await;
    let tunnels = Tunnels::of(&rig).await;
    let site = OutageSite::build(lab, &rig, "edge-a", LINK, 1, more).await;

    let outcome = site.run(&rig, &tunnels, OutagePlan { length: OUTAGE, new_port, seed: 1 }).await;

    assert_eq!(outcome.wrongs(), Vec::<String>::new());
    assert!(outcome.slowest().is_some(), "{:#?}", outcome.directions);
    let forgotten = site.site().link().stats().await["nat"]["rebound"].as_u64().unwrap();
    assert!(if new_port { forgotten >= 2 } else { forgotten == 0 }, "{forgotten} mappings of two agents");
}
