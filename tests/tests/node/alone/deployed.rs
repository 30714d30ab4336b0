//! The agent as it ships for Kubernetes: restricted pods of a Deployment, of an image without a shell, that
//! enroll by themselves.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use tests::enroll;
use tests::lab::Uplink;
use tests::node_edge::{NodeEdge, POD};
use tests::rig::{GROUP, Rig};

use super::agent_pods::{DEPLOYMENT, rolled_out, trial};

/// A line each 50 ms, for 20 s: it begins before the old agent is asked to stop and ends after it.
const SLOW: &str = "seq 1 400 | while read n; do echo $n; sleep 0.05; done";
const SLOW_LINES: u32 = 400;

/// Meanwhile no read fails, and a shell goes on.
#[test]
#[ignore = "soak: its image is built for four minutes first, by .ci/image"]
fn the_deployments_agents_enroll_serve_and_are_replaced() {
    trial("the_deployments_agents_enroll_serve_and_are_replaced", Uplink::Cable, async |_, edge, rig| {
        let first = uids(&edge).await;
        assert_eq!(agents(rig, edge.name).await.intersection(&first).count(), 1, "{first:?}");
        let shown = edge.tunneled.stdout(&["exec", POD, "--", "cat", "/proc/1/cmdline"]).await;
        assert_eq!(shown.replace('\0', " "), format!("pod serve {} ", edge.name));
        let outsider = rig.kubeconfig("outsider", &[GROUP], edge.name).await;
        let output =
            edge.tunneled.clone().with_kubeconfig(outsider).refusal(&["exec", POD, "--", "true"]).await;
        assert!(output.contains("may not impersonate this user"), "{output}");
        let shell = ["exec", "--namespace", "tombolo", DEPLOYMENT, "--", "sh"];
        let output = edge.tunneled.refusal(&shell).await;
        assert!(output.contains("executable file not found"), "{output}");

        replaced(&edge).await;

        let second = uids(&edge).await;
        assert_eq!((second.len(), second.intersection(&first).count()), (1, 0), "{first:?} {second:?}");
        // The token was used up by the first pod: this one proved itself by its ServiceAccount.
        assert_eq!(agents(rig, edge.name).await.intersection(&second).count(), 1, "{second:?}");
    });
}

/// Replaces the agents, and reads meanwhile.
async fn replaced(edge: &NodeEdge) {
    let is_done = AtomicBool::new(false);
    let slow = edge.tunneled.run(&["exec", POD, "--", "sh", "-c", SLOW]);
    let update = async {
        let old = pods(edge, "{.items[*].metadata.name}").await;
        edge.direct.stdout(&["rollout", "restart", DEPLOYMENT, "--namespace", "tombolo"]).await;
        rolled_out(edge).await;
        let old = format!("pod/{old}");
        edge.direct.stdout(&["wait", "--for=delete", &old, "--namespace", "tombolo", "--timeout=100s"]).await;
        is_done.store(true, Ordering::Relaxed);
    };
    let reads = async {
        let mut reads = 0;
        while !is_done.load(Ordering::Relaxed) {
            let read = edge.tunneled.stdout(&["get", "pod", POD, "-o", "jsonpath={.metadata.name}"]).await;
            assert_eq!(read, POD);
            reads += 1;
        }
        reads
    };
    let (slow, (), reads) = tokio::join!(slow, update, reads);
    let slow = slow.expect("kubectl");
    let lines: String = (1..=SLOW_LINES).map(|n| format!("{n}\n")).collect();
    assert!(slow.status.success(), "{}", String::from_utf8_lossy(&slow.stderr));
    assert_eq!(String::from_utf8_lossy(&slow.stdout), lines);
    assert!(reads > 10, "{reads}");
}

/// The UIDs of the pods that run agents.
async fn uids(edge: &NodeEdge) -> BTreeSet<String> {
    pods(edge, "{.items[*].metadata.uid}").await.split_whitespace().map(str::to_owned).collect()
}

async fn pods(edge: &NodeEdge, what: &str) -> String {
    let path = format!("jsonpath={what}");
    edge.direct.stdout(&["get", "pods", "--namespace", "tombolo", "-o", &path]).await
}

/// The agents that the server has on record for a cluster.
async fn agents(rig: &Rig, cluster: &str) -> BTreeSet<String> {
    let listed = enroll::at(rig, &["agent", "list"]).await;
    let prefix = format!("{cluster}/");
    listed.split_whitespace().filter_map(|word| word.strip_prefix(&prefix)).map(str::to_owned).collect()
}
