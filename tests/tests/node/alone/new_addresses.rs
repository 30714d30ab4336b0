//! A site whose agent is a restricted pod behind its node's masquerade goes dark, and its node gets other
//! addresses.

use std::net::Ipv4Addr;

use tests::lab::Uplink;

use super::agent_pods::trial;
use super::open_sessions::OpenSessions;
use super::outage::for_half_a_minute;

#[test]
#[ignore = "soak: its image is built for four minutes first, by .ci/image"]
fn what_an_agents_pod_serves_outlives_an_outage_and_new_addresses() {
    let uplink = Uplink::simulated("delay=10ms");
    trial(
        "what_an_agents_pod_serves_outlives_an_outage_and_new_addresses",
        uplink,
        async |lab, edge, rig| {
            let mut open = OpenSessions::start(&edge).await;
            open.goes_on(&edge, "before").await;
            for_half_a_minute(&edge, &mut open).await;
            for last in 1..4 {
                edge.site.replace_address(lab.cloud(), Ipv4Addr::new(100, 127, 0, last)).await;
                open.goes_on(&edge, &format!("from address {last}")).await;
            }
            open.end().await;
            let opened = rig.server_log().matches("tunnel opened").count();
            // That of the agent beside the cluster, and the pod's.
            assert_eq!(opened, 2, "{}", rig.server_log());
        },
    );
}
