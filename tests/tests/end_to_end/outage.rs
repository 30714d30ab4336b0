//! Requests while a cluster's link is dark: an agent that is stopped by SIGSTOP is as silent as a dead link.

mod kubectl;
mod parking;
mod pool;
mod restarted;
mod retry;

use std::time::Duration;

use rustix::process::Signal;
use tests::fake_api::FakeApi;
use tests::rig::{Agent, ApiServer, Rig};

/// The limit for anything that is waited for. Builds of other tests may run beside.
const SOON: Duration = Duration::from_secs(60);

/// Configuration of an agent that sends no requests of its own. Otherwise it asks the API server every 10 s
/// for its control plane's address.
const ASKS_NOTHING: &str = "advertise: [\"192.168.1.10:6443\"]\n";

/// A server, an agent, and its API server.
struct OutageTrial {
    rig: Rig,
    api: FakeApi,
    agent: Agent,
}

impl OutageTrial {
    /// A server whose configuration ends with `more`, and one agent.
    async fn start(more: &str) -> Self {
        let (rig, api) = (Rig::start_with(more).await, FakeApi::start().await.expect("a fake starts"));
        let agent = rig.agent_with("edge-a", &ApiServer::of_fake(&rig, &api), ASKS_NOTHING).await;
        rig.connected("edge-a").await;
        Self { rig, api, agent }
    }

    /// Freezes the agent, and waits until the server has noticed it for each tunnel. An agent that resumes
    /// after an earlier silence may have dialed by TCP meanwhile, and requests over that tunnel are not
    /// parked.
    async fn dark(&self) {
        self.silent(|item| is_suspect(item) && !item.contains("\"health\":\"Live\"")).await;
    }

    /// The same where another agent's tunnel goes on.
    async fn dark_beside_another(&self) {
        self.silent(is_suspect).await;
    }

    async fn silent(&self, noticed: impl Fn(&str) -> bool) {
        self.agent.process.signal(Signal::STOP).expect("the agent runs");
        self.rig.listed("edge-a", noticed).await;
    }

    /// Lets the agent go on.
    fn bright(&self) {
        self.agent.process.signal(Signal::CONT).expect("the agent runs");
    }

    /// Waits until this number of requests are parked.
    async fn parked(&self, count: f64) {
        self.rig.measured("tombolo_server_requests_parked", |now| now == count).await;
    }

    /// Number of parked requests that have ended with this outcome.
    async fn ended(&self, outcome: &str) -> f64 {
        let series = format!("tombolo_server_requests_parked_total{{outcome=\"{outcome}\"}}");
        self.rig.metric(self.rig.probes(), &series).await
    }
}

/// Number of reads that were sent again for this reason.
async fn retried(rig: &Rig, reason: &str) -> f64 {
    let series = format!("tombolo_server_reads_retried_total{{reason=\"{reason}\"}}");
    rig.metric(rig.probes(), &series).await
}

/// Number of reads that were sent again. A killed agent's tunnel is silent, until its replacement's greeting ends
/// it: which of the two a read sees first is chance.
async fn retried_in_all(rig: &Rig) -> f64 {
    retried(rig, "lost").await + retried(rig, "silent").await
}

/// Returns true if the server misses something of one of a cluster's tunnels.
fn is_suspect(item: &str) -> bool {
    item.contains("\"health\":\"Suspect\"")
}
