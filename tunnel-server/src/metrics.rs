//! The server's metrics, whose names begin with `tombolo_server_`. `docs/metrics.md` lists every one of them.

mod agent_versions;
mod clusters;
mod elections;
mod reloads;
mod vip_services;

use std::time::{SystemTime, UNIX_EPOCH};

use daemon::metrics::expiry::ValidityGauges;
use daemon::metrics::links::{Figures, Links};
use daemon::metrics::requests::RequestMetrics;
use metrics::{counter, describe_counter, describe_gauge, gauge};
use policy::action::Verb;
use proto::text_enum;
use rustls_pki_types::CertificateDer;
use transport::{GreetError, Tunnel, TunnelEnded};

pub use agent_versions::AgentVersions;
pub use clusters::{AWAY_REPORTED_MAX, ClusterConnectivity, ClusterGauges};
pub use elections::{ElectionName, leads};
pub use reloads::{ReloadStatus, ReloadedFile};
pub use vip_services::{published, publishing_failed};

const REFUSALS: &str = "tombolo_server_refusals_total";
const TUNNELS_ENDED: &str = "tombolo_server_tunnels_ended_total";
const HANDSHAKES_FAILED: &str = "tombolo_server_tunnel_handshakes_failed_total";
const KEYS_COPIED: &str = "tombolo_server_agent_keys_copied_total";
const ENROLLMENTS: &str = "tombolo_server_enrollments_total";
const TERMINATIONS: &str = "tombolo_server_request_terminations_total";
const LIMITED: &str = "tombolo_server_limited_total";
const SLOW_READERS: &str = "tombolo_server_slow_readers";
const LOW_PRIORITY: &str = "tombolo_server_connections_low_priority_total";
const READS_RETRIED: &str = "tombolo_server_reads_retried_total";
const SENT_AGAIN: &str = "tombolo_server_requests_sent_again_total";
const WATCHES_PARKED: &str = "tombolo_server_watches_parked";
const WATCHES_RESUMED: &str = "tombolo_server_watches_resumed_total";
const WATCHES_ENDED: &str = "tombolo_server_watches_ended_total";
const POLICY_GENERATION: &str = "tombolo_server_policy_generation";
const POLICY_LOADED_AT: &str = "tombolo_server_policy_reload_last_success_timestamp_seconds";
const POLICY_FAILURES: &str = "tombolo_server_policy_reload_failures_total";
const POLICY_CURRENT: &str = "tombolo_server_policy_reload_last_successful";
const VALIDITY: ValidityGauges = ValidityGauges {
    expiry: "tombolo_server_certificate_expiry_timestamp_seconds",
    not_before: "tombolo_server_certificate_not_before_timestamp_seconds",
};

const RELAYED: &str = "tombolo_server_relayed_requests_total";

/// The value of the label `reason` for an exchange that was ended because its caller did not read.
const SLOW_READER: &str = "slow_reader";

text_enum! {
    /// The reason why a read was sent a second time.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RetryReason {
        /// The tunnel of the first attempt ended.
        Lost = "lost",
        /// The tunnel of the first attempt was silent, and another tunnel was not.
        Silent = "silent",
    }
}

text_enum! {
    /// The kind of a request that was sent again because its agent never began it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SentAgainKind {
        /// A request that may have effects.
        Write = "write",
        /// A request for an upgrade.
        Upgrade = "upgrade",
        /// A connection to a target.
        Dial = "dial",
    }
}

text_enum! {
    /// The reason why a watch that lost its tunnel was not resumed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum WatchEnded {
        /// No point was known yet from which the watch could resume without missing an event.
        NoSafePoint = "no_safe_point",
        /// The watch's query does not define where it starts.
        UnclearQuery = "unclear_query",
        /// An event was larger than the server may buffer for one watch.
        EventTooLarge = "event_too_large",
        /// The buffered events of all watches together were larger than the server allows.
        NoRoom = "no_room",
        /// The response contained something that is not a watch event.
        NotAnEvent = "not_an_event",
        /// The events did not arrive in the order of their resource versions.
        Unordered = "unordered",
        /// The API server had ended the watch with an ERROR event.
        ErrorEvent = "error_event",
        /// The cluster did not come back in time.
        Away = "away",
        /// The wait queue of the cluster was full.
        NoSlot = "no_slot",
        /// The caller is no longer allowed to watch this.
        NotAllowed = "not_allowed",
        /// The API server answered with something other than a watch, for example 410 Gone.
        Answered = "answered",
        /// The agent, or this server, refused the resumed watch.
        Refused = "refused",
        /// The timeout in the caller's query had passed.
        TimedOut = "timed_out",
        /// This server is stopping now.
        Stopping = "stopping",
    }
}

text_enum! {
    /// The outcome of a request for an agent's certificate.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum EnrollmentOutcome {
        /// A certificate was issued for a token.
        Enrolled = "enrolled",
        /// A certificate was issued for the ServiceAccount of a further pod.
        Attested = "attested",
        /// A certificate was issued for the proof of an earlier one.
        Renewed = "renewed",
        /// The request was refused for another reason than a limit.
        Refused = "refused",
        /// The request was refused because of too many failures or too many certificates.
        Limited = "limited",
    }
}

text_enum! {
    /// The reason why a tunnel ended, as a label.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum TunnelEndReason {
        Drained = "drained",
        ClosedByAgent = "closed_by_agent",
        Lost = "lost",
        Restarted = "restarted",
        Violation = "violation",
        Carrier = "carrier",
    }
}

text_enum! {
    /// The reason why an agent's connection did not become a tunnel, as a label.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum HandshakeFailure {
        /// The handshake or the greeting took too long.
        TooSlow = "too_slow",
        /// The handshake of QUIC or TLS failed.
        Handshake = "handshake",
        /// The greeting was malformed, or broke off.
        Greeting = "greeting",
        /// The agent was refused for another reason than a limit.
        Refused = "refused",
        /// The agent's cluster has as many agents as it may.
        Full = "full",
        /// The agent, or its cluster, has as many tunnels as it may.
        TooManyTunnels = "too_many_tunnels",
        /// The server has as many tunnels as it may.
        ServerFull = "server_full",
    }
}

/// Counts a watch as parked until this guard is dropped: its tunnel was lost, and it waits for another.
#[derive(Debug)]
#[must_use = "the watch no longer counts as parked when this is dropped"]
pub struct ParkedWatch(());

/// Counts a stream of another server that an agent of this one has.
pub fn relayed() {
    counter!(RELAYED).increment(1);
}

/// Describes each counter to the exporter and sets it to zero for every label value, because a rate needs two samples.
/// Called once, after the exporter was installed.
pub fn describe() {
    describe_counter!(RELAYED, "Streams of other servers that were carried to an agent of this one.");
    counter!(RELAYED).increment(0);
    describe_counter!(TUNNELS_ENDED, "Tunnels that ended, by reason.");
    for reason in TunnelEndReason::ALL {
        counter!(TUNNELS_ENDED, "reason" => reason.as_str()).increment(0);
    }
    describe_counter!(HANDSHAKES_FAILED, "Connections of agents that did not become a tunnel, by reason.");
    for reason in HandshakeFailure::ALL {
        counter!(HANDSHAKES_FAILED, "reason" => reason.as_str()).increment(0);
    }
    describe_counter!(
        KEYS_COPIED,
        "Agents that were disconnected because another live process uses the same certificate."
    );
    counter!(KEYS_COPIED).increment(0);
    let help = "Requests for agents' certificates, by outcome: enrolled, attested, renewed, refused, or limited (too many \
                failures or too many certificates).";
    describe_counter!(ENROLLMENTS, help);
    for outcome in EnrollmentOutcome::ALL {
        counter!(ENROLLMENTS, "outcome" => outcome.as_str()).increment(0);
    }
    describe_counter!(TERMINATIONS, "Requests that this server ended before they were complete, by reason.");
    counter!(TERMINATIONS, "reason" => SLOW_READER).increment(0);
    describe_counter!(LIMITED, "Requests that were refused because a limit was reached, by limit.");
    describe_counter!(
        LOW_PRIORITY,
        "Connections that were moved to the low-priority runtime because logins kept failing over them."
    );
    counter!(LOW_PRIORITY).increment(0);
    describe_gauge!(
        SLOW_READERS,
        "Requests whose callers do not read their response and that are still kept open."
    );
    slow_readers(0);
    describe_counter!(
        READS_RETRIED,
        "Reads that were sent a second time over another tunnel, by what happened to the first tunnel."
    );
    for reason in RetryReason::ALL {
        counter!(READS_RETRIED, "reason" => reason.as_str()).increment(0);
    }
    describe_sent_again();
    describe_gauge!(WATCHES_PARKED, "Watches that lost their tunnel and wait for another one.");
    gauge!(WATCHES_PARKED).set(0.0);
    describe_counter!(WATCHES_RESUMED, "Watches that lost their tunnel and were resumed over another one.");
    counter!(WATCHES_RESUMED).increment(0);
    describe_counter!(WATCHES_ENDED, "Watches that lost their tunnel and could not be resumed, by reason.");
    for reason in WatchEnded::ALL {
        counter!(WATCHES_ENDED, "reason" => reason.as_str()).increment(0);
    }
    describe_gauge!(
        POLICY_GENERATION,
        "The number of the policy in force; each reload of the policy adds one."
    );
    describe_gauge!(POLICY_LOADED_AT, "When the policy in force was loaded, in seconds since 1970.");
    describe_counter!(
        POLICY_FAILURES,
        "Changes of the policy file that were not taken because they are unreadable or invalid."
    );
    counter!(POLICY_FAILURES).increment(0);
    describe_gauge!(
        POLICY_CURRENT,
        "1 if the policy in force is the content of its file, 0 if the last change was not taken."
    );
    vip_services::describe();
    elections::describe();
    VALIDITY.describe();
}

fn describe_sent_again() {
    describe_counter!(
        SENT_AGAIN,
        "Requests with effects that were sent again, because their agent reported that it never began them, by kind."
    );
    for kind in SentAgainKind::ALL {
        counter!(SENT_AGAIN, "kind" => kind.as_str()).increment(0);
    }
}

impl ParkedWatch {
    /// Counts one more parked watch.
    pub fn begin() -> Self {
        gauge!(WATCHES_PARKED).increment(1.0);
        Self(())
    }
}

impl Drop for ParkedWatch {
    fn drop(&mut self) {
        gauge!(WATCHES_PARKED).decrement(1.0);
    }
}

/// Describes the counter of refusals, and sets it to zero for each of these reasons.
pub fn describe_refusals(reasons: &[&'static str]) {
    describe_counter!(
        REFUSALS,
        "Requests that the gateway answered with a Status of its own, by the reason in its details.causes."
    );
    reasons.iter().for_each(|reason| counter!(REFUSALS, "reason" => *reason).increment(0));
}

/// Sets the counter of exchanges that are ended early to zero for each of these reasons.
pub fn describe_terminations(reasons: impl IntoIterator<Item = &'static str>) {
    for reason in reasons {
        counter!(TERMINATIONS, "reason" => reason).increment(0);
    }
}

/// Sets the counter of requests that a limit stopped to zero for each of these limits.
pub fn describe_limits(limits: &[&'static str]) {
    limits.iter().for_each(|limit| counter!(LIMITED, "limit" => *limit).increment(0));
}

/// The metrics of callers' requests, by verb.
pub fn requests() -> RequestMetrics {
    // Every value but `unknown`. The long-running verbs, `watch` and `connect`, have values of their own.
    let verbs: Vec<&str> = Verb::ALL.map(Verb::as_str).into_iter().chain(["dial"]).collect();
    RequestMetrics::new("tombolo_server", "verb", &verbs)
}

/// The metrics of tunnels, by cluster.
pub fn links() -> Links {
    Links::new("tombolo_server_cluster", "cluster")
}

/// Counts a request that was refused.
pub fn refused(reason: &'static str) {
    counter!(REFUSALS, "reason" => reason).increment(1);
}

/// Records when the first of these certificates expires. A certificate that cannot be parsed is left out.
pub fn certificates(used_for: &'static str, certificates: &[CertificateDer<'_>]) {
    VALIDITY.set(used_for, certificates);
}

/// The traffic and loss figures of a tunnel.
pub fn link_figures(tunnel: &Tunnel) -> Figures {
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

/// Counts the end of a tunnel.
pub fn tunnel_ended(ended: &TunnelEnded) {
    let reason = match ended {
        TunnelEnded::Drained => TunnelEndReason::Drained,
        TunnelEnded::ClosedByPeer(_) => TunnelEndReason::ClosedByAgent,
        TunnelEnded::Lost => TunnelEndReason::Lost,
        TunnelEnded::Restarted => TunnelEndReason::Restarted,
        TunnelEnded::Violation(_) | TunnelEnded::Frame(_) => TunnelEndReason::Violation,
        TunnelEnded::Carrier(_) => TunnelEndReason::Carrier,
    };
    counter!(TUNNELS_ENDED, "reason" => reason.as_str()).increment(1);
}

/// Counts an agent's connection that did not become a tunnel.
pub fn handshake_failed(error: &GreetError) {
    let reason = match error {
        GreetError::TooSlow => HandshakeFailure::TooSlow,
        GreetError::Handshake(_) => HandshakeFailure::Handshake,
        GreetError::NotAHello | GreetError::Broke(_) => HandshakeFailure::Greeting,
        GreetError::Refused(_) => HandshakeFailure::Refused,
        // Nothing has failed.
        GreetError::Checked { .. } => return,
    };
    counter!(HANDSHAKES_FAILED, "reason" => reason.as_str()).increment(1);
}

/// Counts an agent's tunnel that the registry refused, for this reason.
pub fn tunnel_refused(reason: HandshakeFailure) {
    counter!(HANDSHAKES_FAILED, "reason" => reason.as_str()).increment(1);
}

/// Counts an agent that was disconnected because another process uses its certificate.
pub fn key_copied() {
    counter!(KEYS_COPIED).increment(1);
}

/// Counts a request for an agent's certificate.
pub fn enrollment(outcome: EnrollmentOutcome) {
    counter!(ENROLLMENTS, "outcome" => outcome.as_str()).increment(1);
}

/// Counts an exchange that this server ended because its caller did not read.
pub fn slow_reader_terminated() {
    counter!(TERMINATIONS, "reason" => SLOW_READER).increment(1);
}

/// Counts an exchange that this server ended because it is no longer allowed.
pub fn request_terminated(reason: &'static str) {
    counter!(TERMINATIONS, "reason" => reason).increment(1);
}

/// Counts a request that a limit stopped. `limit` is one of `LimitExceeded::NAMES`.
pub fn limited(limit: &'static str) {
    counter!(LIMITED, "limit" => limit).increment(1);
}

/// Counts a connection that the low-priority runtime serves from now on.
pub fn low_priority() {
    counter!(LOW_PRIORITY).increment(1);
}

/// Counts a read that is sent a second time.
pub fn read_retried(reason: RetryReason) {
    counter!(READS_RETRIED, "reason" => reason.as_str()).increment(1);
}

/// Counts a request that is sent again, because its agent never began it.
pub fn sent_again(kind: SentAgainKind) {
    counter!(SENT_AGAIN, "kind" => kind.as_str()).increment(1);
}

/// Counts a watch that was resumed over another tunnel.
pub fn watch_resumed() {
    counter!(WATCHES_RESUMED).increment(1);
}

/// Counts a watch that ended with its tunnel.
pub fn watch_ended(reason: WatchEnded) {
    counter!(WATCHES_ENDED, "reason" => reason.as_str()).increment(1);
}

/// Records which policy is in force, and since when.
pub fn policy_in_force(generation: u64, at: SystemTime) {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    gauge!(POLICY_GENERATION).set(f64::from(u32::try_from(generation).unwrap_or(u32::MAX)));
    gauge!(POLICY_LOADED_AT).set(since.as_secs_f64());
    gauge!(POLICY_CURRENT).set(1.0);
}

/// Counts a change of the policy file that was not taken.
pub fn policy_refused() {
    counter!(POLICY_FAILURES).increment(1);
    gauge!(POLICY_CURRENT).set(0.0);
}

/// Records how many exchanges wait for callers who do not read.
pub fn slow_readers(count: usize) {
    gauge!(SLOW_READERS).set(f64::from(u32::try_from(count).unwrap_or(u32::MAX)));
}
