//! Pods behind a link that loses packets, and behind one that goes dark for half a minute.

use std::time::Duration;

use tests::node::sha256;
use tests::node_edge::{NodeEdge, POD};
use tokio::time::sleep_until;

use super::behind;
use super::open_sessions::OpenSessions;
use crate::complete_reads::reads_are_complete;
use crate::kubectls::{clients, pattern};

/// The link of this trial: one packet of twenty is lost each way, and a round trip takes 80 ms.
const LOSSY: &str = "delay=40ms loss=5%";
const DARK: Duration = Duration::from_secs(30);

#[test]
fn reads_and_typing_over_a_lossy_link_are_complete() {
    behind("what_is_read_from_a_pod_over_a_lossy_link", LOSSY, async |edge: NodeEdge| {
        let bytes = 6 * 1024 * 1024;
        let makes = format!("pod flood {bytes} | sha256sum");
        let made = edge.direct.stdout(&["exec", POD, "--", "sh", "-c", &makes]).await;
        let typed = pattern(1024 * 1024);
        for client in clients(&edge).iter().filter(|client| client.name.starts_with("tunneled")) {
            let output = client.run(&["exec", POD, "--", "pod", "flood", &bytes.to_string()]).await;
            assert!(
                output.status.success(),
                "{}: {:?}",
                client.name,
                String::from_utf8_lossy(&output.stderr)
            );
            assert_eq!(format!("{}  -\n", sha256(&output.stdout)), made, "{}", client.name);
            let hashed = client.types(&edge, &["exec", "-i", POD, "--", "sha256sum"], &typed).await;
            assert_eq!(hashed, (Some(0), format!("{}  -\n", sha256(&typed)).into_bytes()), "{}", client.name);
        }
    });
}

/// The test tries each protocol two hundred times.
#[test]
#[ignore = "soak: 800 times fifty megabytes, and half of them slowly"]
fn fifty_megabytes_over_a_lossy_link_arrive_complete_or_as_an_error() {
    behind(
        "fifty_megabytes_over_a_lossy_link_arrive_complete_or_as_an_error",
        LOSSY,
        async |edge: NodeEdge| {
            reads_are_complete(&edge, 50, &[false, true]).await;
        },
    );
}

#[test]
fn an_exec_logs_and_a_forwarded_port_outlive_half_a_minute_of_outage() {
    behind(
        "an_exec_logs_and_a_forwarded_port_outlive_half_a_minute_of_outage",
        "delay=10ms",
        async |edge: NodeEdge| {
            let mut open = OpenSessions::start(&edge).await;
            open.goes_on(&edge, "before").await;
            for_half_a_minute(&edge, &mut open).await;
            open.goes_on(&edge, "after").await;
            open.end().await;
        },
    );
}

/// Makes the link dark for that long. A line that is typed meanwhile comes back afterwards.
pub async fn for_half_a_minute(edge: &NodeEdge, open: &mut OpenSessions) {
    let down = edge.site.link().down().await;
    open.type_line(edge, "said in the dark").await;
    sleep_until((down + DARK).into()).await;
    open.has_not_received("said in the dark");
    edge.site.link().up().await;
    open.expect_line("said in the dark").await;
}
