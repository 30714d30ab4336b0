//! The agent's metrics, under names that begin with `tombolo_agent_`. `docs/metrics.md` has all of them.

mod labels;

use std::time::{SystemTime, UNIX_EPOCH};

use daemon::metrics::expiry::ValidityGauges;
use daemon::metrics::links::{Figures, Links};
use daemon::metrics::requests::RequestMetrics;
use metrics::{counter, describe_counter, describe_gauge, gauge};
use proto::AbortCode;
use rustls_pki_types::CertificateDer;
use transport::{Buffers, Tunnel, TunnelEnded};

pub use labels::{
    AbortReason, DialFailureReason, DiscoveryOutcome, GuardReason, RequestKind, ResendReason,
    TargetDialOutcome, TunnelEnd,
};

const CONNECTED: &str = "tombolo_agent_tunnels_connected";
const SERVERS_KNOWN: &str = "tombolo_agent_servers_known";
const SERVERS_REPLACED: &str = "tombolo_agent_servers_replaced_total";
const DIALS_FAILED: &str = "tombolo_agent_dials_failed_total";
const TUNNELS_ENDED: &str = "tombolo_agent_tunnels_ended_total";
const RECONNECTS: &str = "tombolo_agent_reconnects_total";
const REFUSED: &str = "tombolo_agent_requests_refused_total";
const GUARD: &str = "tombolo_agent_guard_refusals_total";
const TARGET_DIALS: &str = "tombolo_agent_target_dials_total";
const API_DIALS: &str = "tombolo_agent_apiserver_dials_total";
const API_RESENDS: &str = "tombolo_agent_apiserver_resends_total";
const API_SERVERS: &str = "tombolo_agent_apiserver_endpoints";
const DISCOVERIES: &str = "tombolo_agent_discoveries_total";
const ENDPOINTS: &str = "tombolo_agent_discovered_endpoints";
const DISCOVERED: &str = "tombolo_agent_discovered_timestamp_seconds";
const BUFFERS: &str = "tombolo_agent_udp_buffer_bytes";
const VALIDITY: ValidityGauges = ValidityGauges {
    expiry: "tombolo_agent_certificate_expiry_timestamp_seconds",
    not_before: "tombolo_agent_certificate_not_before_timestamp_seconds",
};
const FILE_FAILURES: &str = "tombolo_agent_file_reload_failures_total";
const FILE_CURRENT: &str = "tombolo_agent_file_reload_last_successful";

/// The label value of the agent's certificate, its key and the servers' roots, which are read together.
const IDENTITY_FILES: &str = "identity";

/// The outcome of a dial to the API server that succeeded. Failures have the text of an [`AbortReason`].
const API_CONNECTED: &str = "connected";

/// Describes each metric to the exporter, and sets counters to zero for every label value, because a rate
/// needs two samples. Called once, after the recorder was installed.
pub fn describe() {
    describe_gauge!(CONNECTED, "Tunnels that are open now, by server.");
    describe_gauge!(SERVERS_KNOWN, "Servers in the list that a server has sent.");
    servers_known(0);
    describe_counter!(
        SERVERS_REPLACED,
        "Servers that were silent while another one was not, so that the next one was dialed in their place."
    );
    counter!(SERVERS_REPLACED).increment(0);
    describe_counter!(DIALS_FAILED, "Dials that led to no tunnel, by reason.");
    zero(DIALS_FAILED, "reason", DialFailureReason::VALUES);
    describe_counter!(TUNNELS_ENDED, "Tunnels that ended, by reason.");
    zero(TUNNELS_ENDED, "reason", TunnelEnd::VALUES);
    describe_counter!(
        RECONNECTS,
        "Tunnels that were opened again, by the reason for which the one before had ended."
    );
    zero(RECONNECTS, "reason", TunnelEnd::VALUES);
    describe_counter!(REFUSED, "Streams that were aborted before an answer, by reason.");
    zero(REFUSED, "reason", AbortReason::VALUES);
    describe_counter!(
        GUARD,
        "Identities that the agent's own allow-list refused, by reason; the log names them at DEBUG."
    );
    zero(GUARD, "reason", GuardReason::VALUES);
    describe_counter!(API_DIALS, "Connections dialed to the API server, by outcome.");
    zero(API_DIALS, "outcome", &[API_CONNECTED]);
    describe_counter!(API_RESENDS, "Requests that were sent to the API server again, by reason.");
    zero(API_RESENDS, "reason", ResendReason::VALUES);
    describe_gauge!(API_SERVERS, "API servers among which requests are balanced, by whether they are ready.");
    api_servers(0, 0);
    describe_counter!(TARGET_DIALS, "Connections to targets that the server asked for, by outcome.");
    zero(TARGET_DIALS, "outcome", TargetDialOutcome::VALUES);
    describe_counter!(DISCOVERIES, "Requests to the cluster for its control plane's addresses, by outcome.");
    zero(DISCOVERIES, "outcome", DiscoveryOutcome::VALUES);
    describe_gauge!(ENDPOINTS, "Endpoints of the control plane that are advertised, configured or found.");
    describe_gauge!(
        DISCOVERED,
        "Time of the cluster's last answer about its control plane, in seconds since 1970."
    );
    describe_gauge!(
        BUFFERS,
        "Buffer that the kernel gave the newest tunnel's UDP socket, by direction; below a megabyte bulk transfers suffer."
    );
    VALIDITY.describe();
}

/// Counts a dial to a target.
pub fn target_dialed(outcome: TargetDialOutcome) {
    counter!(TARGET_DIALS, "outcome" => outcome.as_str()).increment(1);
}

/// The metrics of the streams that are served, by [`RequestKind`].
pub fn exchanges() -> RequestMetrics {
    RequestMetrics::new("tombolo_agent", "kind", RequestKind::VALUES)
}

/// The metrics of tunnels, by server.
pub fn links() -> Links {
    Links::new("tombolo_agent_server", "server")
}

/// Counts a tunnel to a server as open until it is dropped.
#[must_use]
pub struct ConnectedTunnel(metrics::Gauge);

impl ConnectedTunnel {
    /// A tunnel to this server, which is one of the configuration.
    pub fn to(server: &str) -> Self {
        let gauge = gauge!(CONNECTED, "server" => server.to_owned());
        gauge.increment(1.0);
        Self(gauge)
    }
}

impl Drop for ConnectedTunnel {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

/// The round trip, packets and bytes of a tunnel.
pub fn figures(tunnel: &Tunnel) -> Figures {
    let link = tunnel.link_stats();
    Figures {
        round_trip: link.round_trip,
        streams_open: tunnel.streams_open().into(),
        packets_sent: link.packets_sent,
        packets_lost: link.packets_lost,
        wire_bytes_sent: link.wire_bytes_sent,
        wire_bytes_received: link.wire_bytes_received,
        stream_bytes_sent: link.stream_bytes_sent,
        stream_bytes_received: link.stream_bytes_received,
    }
}

/// Sets the buffers that the kernel gave a tunnel's socket.
pub fn buffers(buffers: Buffers) {
    gauge!(BUFFERS, "direction" => "receive").set(buffers.receive as f64);
    gauge!(BUFFERS, "direction" => "send").set(buffers.send as f64);
}

/// Sets the validity of the certificate that ends first. One that cannot be parsed is left out.
pub fn certificates(used_for: &'static str, certificates: &[CertificateDer<'_>]) {
    VALIDITY.set(used_for, certificates);
}

/// Describes the metrics of the files of the agent's identity, which are in force.
pub fn describe_identity_files() {
    describe_counter!(
        FILE_FAILURES,
        "Changes of files that were not taken because they are unreadable or invalid."
    );
    counter!(FILE_FAILURES, "file" => IDENTITY_FILES).increment(0);
    describe_gauge!(
        FILE_CURRENT,
        "1 if the content of files is in force, 0 if their last change was not taken."
    );
    gauge!(FILE_CURRENT, "file" => IDENTITY_FILES).set(1.0);
}

/// Records that the files of the agent's identity have changed, and whether the change was taken.
pub fn identity_files_read(is_taken: bool) {
    counter!(FILE_FAILURES, "file" => IDENTITY_FILES).increment(u64::from(!is_taken));
    gauge!(FILE_CURRENT, "file" => IDENTITY_FILES).set(if is_taken { 1.0 } else { 0.0 });
}

/// Counts a stream that was aborted before an answer.
pub fn refused(code: AbortCode) {
    counter!(REFUSED, "reason" => AbortReason::from(code).as_str()).increment(1);
}

/// Counts an identity that the guard refused.
pub fn guard_refused(reason: GuardReason) {
    counter!(GUARD, "reason" => reason.as_str()).increment(1);
}

/// Counts a connection that was dialed to the API server. `code` is the failure, if it failed.
pub fn apiserver_dialed(code: Option<AbortCode>) {
    let outcome = code.map_or(API_CONNECTED, |code| AbortReason::from(code).as_str());
    counter!(API_DIALS, "outcome" => outcome).increment(1);
}

/// Counts a request that is sent to the API server again.
pub fn apiserver_resent(reason: ResendReason) {
    counter!(API_RESENDS, "reason" => reason.as_str()).increment(1);
}

/// Sets how many API servers are ready, and how many are not.
pub fn api_servers(ready: usize, not_ready: usize) {
    gauge!(API_SERVERS, "state" => "ready").set(ready as f64);
    gauge!(API_SERVERS, "state" => "not_ready").set(not_ready as f64);
}

/// Sets the number of endpoints that are advertised from now on.
pub fn endpoints(count: usize) {
    gauge!(ENDPOINTS).set(count as f64);
}

/// Counts a request to the cluster for its control plane.
pub fn discovered(outcome: DiscoveryOutcome) {
    counter!(DISCOVERIES, "outcome" => outcome.as_str()).increment(1);
    if outcome == DiscoveryOutcome::Answered {
        // A clock before 1970 is wrong anyway.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        gauge!(DISCOVERED).set(now.as_secs() as f64);
    }
}

/// Counts a dial that led to no tunnel.
pub fn dial_failed(reason: DialFailureReason) {
    counter!(DIALS_FAILED, "reason" => reason.as_str()).increment(1);
}

/// Counts a tunnel's end, and returns the label value for it.
pub fn tunnel_ended(ended: &TunnelEnded) -> TunnelEnd {
    let end = TunnelEnd::from(ended);
    counter!(TUNNELS_ENDED, "reason" => end.as_str()).increment(1);
    end
}

/// Sets the number of servers in the list that the agent has.
pub fn servers_known(count: usize) {
    gauge!(SERVERS_KNOWN).set(count as f64);
}

/// Counts a silent server in whose place the next one is dialed.
pub fn server_replaced() {
    counter!(SERVERS_REPLACED).increment(1);
}

/// Counts a tunnel that was opened again after one that ended like this.
pub fn reconnected(after: TunnelEnd) {
    counter!(RECONNECTS, "reason" => after.as_str()).increment(1);
}

fn zero(name: &'static str, label: &'static str, values: &[&'static str]) {
    values.iter().for_each(|value| counter!(name, label => *value).increment(0));
}
