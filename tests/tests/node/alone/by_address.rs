//! Commands for pods where a cluster's own address is one of the server's host, by an unchanged admin.conf.

use tests::client_network::ClientNetwork;
use tests::enroll::at;
use tests::lab::{Uplink, trial};
use tests::node;
use tests::node_edge::{NAMES, NodeEdge, POD};
use tests::rig::policy::{user_may_dial, usual};
use tests::skip::skip;

use crate::exec::{outputs_are_separate, what_is_typed_arrives};
use crate::kubectls::{Client, by_both_protocols, pattern};

/// The number of bytes that are typed.
const BYTES: usize = 1_000_000;

const ENTRY_POINT: &str = "vip: { entryPoints: [{ name: office, sources: [10.8.1.0/24], addresses: [{ listen: \"192.168.1.10:6443\", \
                   cluster: edge-a }] }] }\n";

#[test]
fn an_unchanged_admin_conf_reaches_into_pods_by_the_clusters_own_address() {
    let test = "an_unchanged_admin_conf_reaches_into_pods_by_the_clusters_own_address";
    if let Err(unable) = node::assets() {
        return skip(test, &unable.to_string());
    }
    trial(test, async |lab| {
        let rig = lab.rig(ENTRY_POINT).await;
        let edge = NodeEdge::start(lab, &rig, NAMES[0], Uplink::simulated("delay=20ms loss=1%")).await;
        at(&rig, &["cluster", "update", NAMES[0], "--advertise", "192.168.1.10:6443"]).await;
        let rule = user_may_dial("office", ("entry-point:office", "entry-point:office"), &[NAMES[0]]);
        rig.put_policy(&usual().into_iter().chain([rule]).collect::<Vec<_>>()).await;
        let client_network = ClientNetwork::build(lab, 1).await;
        let kubectl = client_network.kubectl(&edge.cluster);

        for client in by_both_protocols("address", &kubectl) {
            let stderr = outputs_are_separate(&client).await;
            assert_eq!(stderr, "err\ncommand terminated with exit code 42\n", "{}", client.name);
            what_is_typed_arrives(&edge, &client, &pattern(BYTES)).await;
        }
        let whoami = ["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"];
        assert_eq!(kubectl.stdout(&whoami).await, edge.direct.stdout(&whoami).await);
        let logs = Client { name: "logs".to_owned(), kubectl }.run(&["logs", POD]).await;
        assert!(logs.status.success(), "{logs:?}");
    });
}
