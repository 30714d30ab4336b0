//! Trials with a node of their own, because they take something away from it. The module's name makes them
//! run first: the two clusters of the others end with the last of them that runs.

use tests::lab::{Lab, Uplink, trial};
use tests::node;
use tests::node_edge::{NAMES, NodeEdge};
use tests::skip::skip;

mod agent_pods;
mod by_address;
mod by_entry_point;
mod cut_reads;
mod deployed;
mod idle;
mod lifecycle;
mod new_addresses;
mod open_sessions;
mod outage;
mod readme;
mod server_pod;
mod typing;

/// Runs a trial with one cluster of its own behind a link with these options.
fn behind(test: &str, link: &str, does: impl AsyncFnOnce(NodeEdge) + Send) {
    if let Err(unable) = node::assets() {
        return skip(test, &unable.to_string());
    }
    trial(test, async |lab: &Lab| {
        let rig = lab.rig("").await;
        let edge = NodeEdge::start(lab, &rig, NAMES[0], Uplink::simulated(link)).await;
        does(edge).await;
    });
}
