//! Several servers that share their records in a real etcd of three members.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::{sleep, timeout};

mod admin;
mod caller_limits;
mod clocks;
mod copies;
mod dials;
mod directory;
mod elections;
mod faults;
mod freshness;
mod hop;
mod in_force;
mod leaving;
mod moving_records;
mod peer_port;
mod revocations;
mod servers;
mod soak;
mod tunnels;

/// A request that reaches the fake API server of `edge-a`, and its answer there: the fake knows no path.
const PATH: &str = "/clusters/edge-a/version";
const SERVED: u16 = 404;

/// The option by which `tombolo` finds the first server.
const SOCKET: [&str; 2] = ["--socket", "admin/admin.sock"];

/// The limit for any step of a test. Builds of other tests may run beside.
const DONE_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Returns true if an agent with these metrics has a tunnel to the server at this address.
fn has_tunnel(metrics: &str, gateway: SocketAddr) -> bool {
    let series = format!("tombolo_agent_tunnels_connected{{server=\"{gateway}\"}} 1");
    metrics.lines().any(|line| line == series)
}

/// Waits until a condition holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let held = timeout(DONE_MAX, async {
        while !holds().await {
            sleep(LOOK_EVERY).await;
        }
    });
    assert!(held.await.is_ok(), "never: {what}");
}
