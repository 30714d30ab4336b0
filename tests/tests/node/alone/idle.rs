//! Sessions without any traffic for an hour are still open afterwards.

use std::time::Duration;

use tests::node_edge::NodeEdge;
use tokio::time::sleep;

use super::behind;
use super::open_sessions::OpenSessions;

const HOUR: Duration = Duration::from_secs(60 * 60);

#[test]
#[ignore = "soak: an hour"]
fn an_idle_exec_followed_logs_and_a_forwarded_connection_live_for_an_hour() {
    behind("an_exec_lives_for_an_hour_without_a_word", "delay=10ms", async |edge: NodeEdge| {
        let mut open = OpenSessions::start(&edge).await;
        open.goes_on(&edge, "before").await;
        // Nothing is waited for: that this time passes is what is tried.
        sleep(HOUR).await;
        open.goes_on(&edge, "after").await;
        open.end().await;
    });
}
