//! Three sites whose control planes have one address, distinguished by the name of the network alone, with
//! their own admin.conf.

use tests::audit_log::{AuditLog, note};
use tests::enroll::at;
use tests::lab::trial;
use tests::rig::GROUP;
use tests::rig::policy::{may_dial, user_may_dial, usual};

use super::by_address::{ByAddressEdge, LocalProxy, uid};

/// The number of times that each cluster is asked in turn.
const TURNS: usize = 5;

const PLANTS: [&str; 2] = ["plant-1", "plant-2"];

/// It leads to none where two clusters of one network have it.
#[test]
fn by_the_name_of_a_network_an_address_leads_to_its_own_cluster() {
    trial("by_the_name_of_a_network_an_address_leads_to_its_own_cluster", async |lab| {
        let rig = lab.rig("").await;
        let edges = [
            ByAddressEdge::start(lab, &rig, "edge-a").await,
            ByAddressEdge::start(lab, &rig, "edge-b").await,
        ];
        for (edge, plant) in ["edge-a", "edge-b"].into_iter().zip(PLANTS) {
            at(&rig, &["cluster", "update", edge, "--network", plant]).await;
        }
        let dials = [
            may_dial("dials", ("client-certificate", GROUP), &["edge-*"]),
            user_may_dial("bob", ("client-certificate", "bob"), &["edge-a"]),
        ];
        rig.put_policy(&usual().into_iter().chain(dials).collect::<Vec<_>>()).await;
        rig.caller("alice", &[GROUP]).await;
        rig.caller("bob", &[]).await;
        let proxies = [
            LocalProxy::start_within(&rig, "alice", ["--network", PLANTS[0]], &edges[0]).await,
            LocalProxy::start_within(&rig, "alice", ["--network", PLANTS[1]], &edges[1]).await,
        ];
        let uids = [uid(edges[0].cluster.admin()).await, uid(edges[1].cluster.admin()).await];
        assert_ne!(uids[0], uids[1]);

        for turn in 0..TURNS {
            for (which, (proxy, expected)) in proxies.iter().zip(&uids).enumerate() {
                assert_eq!(uid(proxy.kubectl(&edges[which].cluster)).await, *expected, "turn {turn}");
            }
        }

        let third = ByAddressEdge::start(lab, &rig, "edge-c").await;
        assert_eq!(uid(proxies[0].kubectl(&edges[0].cluster)).await, uids[0], "it is in no network yet");
        at(&rig, &["cluster", "update", "edge-c", "--network", PLANTS[0]]).await;

        // To kubectl, which shows the status line.
        let output = proxies[0].kubectl(&edges[0].cluster).refusal(&["get", "namespaces"]).await;
        assert!(output.contains("192.168.1.10:6443 is ambiguous among edge-a, edge-c"), "{output}");
        assert!(!output.contains("edge-b"), "{output}");
        let log = AuditLog::of(&rig);
        let completions = log.completions();
        let completions =
            completions.iter().find(|line| line["responseStatus"]["reason"] == "TargetAmbiguous");
        let completions = completions.expect("it is in the audit log");
        assert_eq!(
            (note(completions, "among"), note(completions, "network")),
            ("edge-a, edge-c", PLANTS[0]),
            "{completions}"
        );
        assert_eq!(completions["user"]["username"], "alice");
        // The other network has nothing to do with it, and for whom policy has one of both nothing is
        // ambiguous.
        assert_eq!(uid(proxies[1].kubectl(&edges[1].cluster)).await, uids[1]);
        let bobs = LocalProxy::start_within(&rig, "bob", ["--network", PLANTS[0]], &edges[0]).await;
        assert_eq!(uid(bobs.kubectl(&edges[0].cluster)).await, uids[0]);
        // By its own name it is reached as ever.
        let own = LocalProxy::start_within(&rig, "alice", ["--cluster", "edge-c"], &third).await;
        let expected = uid(third.cluster.admin()).await;
        assert_eq!(uid(own.kubectl(&third.cluster)).await, expected);
        assert!(!uids.contains(&expected));
    });
}
