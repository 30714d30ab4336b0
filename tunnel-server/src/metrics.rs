//! What the server counts, under names that begin with `tombolo_server_`.

use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use proto::ClusterId;
use transport::{GreetError, TunnelEnded};

/// Tells the exporter what each metric means. Called once, after the recorder was installed.
pub fn describe() {
    describe_gauge!("tombolo_server_agents_connected", "Tunnels that agents of a cluster hold open now.");
    describe_counter!("tombolo_server_tunnels_ended_total", "Tunnels that ended, by reason.");
    describe_counter!(
        "tombolo_server_greetings_failed_total",
        "Connections of agents that came to no tunnel, by reason."
    );
    describe_counter!(
        "tombolo_server_exchanges_total",
        "Requests of callers, by verb and by the code of the answer."
    );
    describe_gauge!("tombolo_server_exchanges_active", "Requests of callers that are being served now.");
    describe_histogram!(
        "tombolo_server_exchange_head_seconds",
        metrics::Unit::Seconds,
        "Time from a request's head to its answer's head, by verb; watches and bodies go on after it."
    );
}

/// Counts a cluster's tunnel for as long as it is held.
#[must_use]
pub struct Connected(metrics::Gauge);

impl Connected {
    /// Counts one more. The label is bounded: only clusters with a certificate of ours come this far.
    pub fn new(cluster: &ClusterId) -> Self {
        let gauge = gauge!("tombolo_server_agents_connected", "cluster" => cluster.to_string());
        gauge.increment(1);
        Self(gauge)
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

/// Counts a tunnel's end.
pub fn tunnel_ended(ended: &TunnelEnded) {
    let reason = match ended {
        TunnelEnded::Drained => "drained",
        TunnelEnded::ClosedByPeer(_) => "closed_by_agent",
        TunnelEnded::Lost => "lost",
        TunnelEnded::Restarted => "restarted",
        TunnelEnded::Violation(_) | TunnelEnded::Frame(_) => "violation",
        TunnelEnded::Carrier(_) => "carrier",
    };
    counter!("tombolo_server_tunnels_ended_total", "reason" => reason).increment(1);
}

/// Counts a connection that came to no tunnel.
pub fn greeting_failed(error: &GreetError) {
    let reason = match error {
        GreetError::TooSlow => "too_slow",
        GreetError::Handshake(_) => "handshake",
        GreetError::NotAHello | GreetError::Broke(_) => "greeting",
        GreetError::Refused(_) => "refused",
    };
    counter!("tombolo_server_greetings_failed_total", "reason" => reason).increment(1);
}

/// Counts an exchange for as long as it is held.
#[must_use]
pub struct Active(metrics::Gauge);

impl Active {
    /// Counts one more.
    pub fn begin() -> Self {
        let gauge = gauge!("tombolo_server_exchanges_active");
        gauge.increment(1);
        Self(gauge)
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

/// Counts an answer's head. `verb` and `code` come from small fixed sets.
pub fn answered(verb: &'static str, code: u16, took: Duration) {
    counter!("tombolo_server_exchanges_total", "verb" => verb, "code" => code.to_string()).increment(1);
    histogram!("tombolo_server_exchange_head_seconds", "verb" => verb).record(took.as_secs_f64());
}
