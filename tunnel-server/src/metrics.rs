//! What the server counts, under names that begin with `tombolo_server_`. Every metric stands in `docs/metrics.md`.

mod clusters;
mod vip_services;

use std::time::{SystemTime, UNIX_EPOCH};

use daemon::metrics::exchanges::Exchanges;
use daemon::metrics::expiry;
use daemon::metrics::links::{Figures, Links};
use metrics::{counter, describe_counter, describe_gauge, gauge};
use policy::action::Verb;
use rustls_pki_types::CertificateDer;
use transport::{GreetError, Tunnel, TunnelEnded};

pub use clusters::{AWAY_TOLD_MAX, Census, Known};
pub use vip_services::{published, publishing_failed};

const REFUSALS: &str = "tombolo_server_refusals_total";
const TUNNELS_ENDED: &str = "tombolo_server_tunnels_ended_total";
const GREETINGS_FAILED: &str = "tombolo_server_greetings_failed_total";
const KEYS_COPIED: &str = "tombolo_server_agent_keys_copied_total";
const ENROLLMENTS: &str = "tombolo_server_enrollments_total";
const EXCHANGES_ENDED: &str = "tombolo_server_exchanges_ended_total";
const LIMITED: &str = "tombolo_server_limited_total";
const EXCHANGES_STALLED: &str = "tombolo_server_exchanges_stalled";
const SET_ASIDE: &str = "tombolo_server_connections_set_aside_total";
const READS_RETRIED: &str = "tombolo_server_reads_retried_total";
const WATCHES_PARKED: &str = "tombolo_server_watches_parked";
const WATCHES_RESUMED: &str = "tombolo_server_watches_resumed_total";
const WATCHES_ENDED: &str = "tombolo_server_watches_ended_total";
const POLICY_GENERATION: &str = "tombolo_server_policy_generation";
const POLICY_TAKEN: &str = "tombolo_server_policy_reload_last_success_timestamp_seconds";
const POLICY_FAILURES: &str = "tombolo_server_policy_reload_failures_total";
const POLICY_CURRENT: &str = "tombolo_server_policy_reload_last_successful";
const FILE_FAILURES: &str = "tombolo_server_file_reload_failures_total";
const FILE_CURRENT: &str = "tombolo_server_file_reload_last_successful";
const EXPIRY: &str = "tombolo_server_certificate_expiry_timestamp_seconds";

/// The limits of callers and clusters, as values of the label `limit`.
pub const LIMITS: [&str; 15] = [
    "source_failures",
    "caller_exchanges",
    "caller_requests",
    "caller_rate",
    "caller_watches",
    "caller_upgrades",
    "egress_connections",
    "passthrough_connections",
    "passthrough_source",
    "vip_connections",
    "vip_source",
    "cluster_watches",
    "cluster_upgrades",
    "cluster_queue",
    "cluster_requests",
];

/// A file beside the policy that is read again when it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reread {
    /// Of static tokens.
    Tokens,
    /// That agents are given.
    TrustBundle,
    /// The configuration, as far as it speaks of administrators.
    Admins,
}

/// Why a read was sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retried {
    /// Its tunnel ended.
    Lost,
    /// Its tunnel was silent, and another one was not.
    Silent,
}

/// Why a watch whose tunnel was lost was not begun again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchEnded {
    /// No point was known yet from which nothing is missed.
    NoSafePoint,
    /// Its query did not say where it begins.
    UnclearQuery,
    /// An event had been larger than may be held.
    EventTooLarge,
    /// All events that were held had been larger than they may be.
    NoRoom,
    /// Something had come that is no event.
    NotAnEvent,
    /// Events had come that were not in the order of their versions.
    Unordered,
    /// The API server had ended it with an error.
    ErrorEvent,
    /// The cluster did not come back in time.
    Away,
    /// No place was left to wait in.
    NoPlace,
    /// Its caller may no longer.
    NotAllowed,
    /// The API server answered with something else than a watch, that its past is gone, for example.
    Answered,
    /// The agent, or this server, refused it.
    Refused,
    /// The time that its caller gave it had passed.
    TimedOut,
    /// This server stops.
    Stopping,
}

/// A watch whose tunnel was lost and that waits for another, until it is dropped.
#[derive(Debug)]
#[must_use = "the watch no longer counts as parked when this is dropped"]
pub struct ParkedWatch(());

/// Tells the exporter what each counter means, and sets it to zero for every reason, because a rate needs two values.
/// Called once, after the recorder was installed.
pub fn describe() {
    describe_counter!(TUNNELS_ENDED, "Tunnels that ended, by reason.");
    for reason in ["drained", "closed_by_agent", "lost", "restarted", "violation", "carrier"] {
        counter!(TUNNELS_ENDED, "reason" => reason).increment(0);
    }
    describe_counter!(GREETINGS_FAILED, "Connections of agents that came to no tunnel, by reason.");
    for reason in ["too_slow", "handshake", "greeting", "refused", "full"] {
        counter!(GREETINGS_FAILED, "reason" => reason).increment(0);
    }
    describe_counter!(
        KEYS_COPIED,
        "Agents turned away because another process uses the same certificate and answers."
    );
    counter!(KEYS_COPIED).increment(0);
    let help = "Requests for agents' certificates by outcome: enrolled, attested, renewed, refused, or limited for too many failures or too many certificates.";
    describe_counter!(ENROLLMENTS, help);
    for outcome in ["enrolled", "attested", "renewed", "refused", "limited"] {
        counter!(ENROLLMENTS, "outcome" => outcome).increment(0);
    }
    describe_counter!(EXCHANGES_ENDED, "Exchanges that this server ended before their time, by reason.");
    for reason in [
        "stalled",
        "revoked",
        "expired",
        "policy_changed",
        "forbidden_by_host",
        "host_away",
        "session_too_old",
    ] {
        counter!(EXCHANGES_ENDED, "reason" => reason).increment(0);
    }
    describe_counter!(LIMITED, "Requests that did not begin because a limit was reached, by limit.");
    for limit in LIMITS {
        counter!(LIMITED, "limit" => limit).increment(0);
    }
    describe_counter!(
        SET_ASIDE,
        "Connections over which logins went on failing, and that are served with what others leave of the processor."
    );
    counter!(SET_ASIDE).increment(0);
    describe_gauge!(EXCHANGES_STALLED, "Exchanges that are borne although their callers do not read.");
    exchanges_stalled(0);
    describe_counter!(
        READS_RETRIED,
        "Times a read was sent again over another tunnel, by what became of the one before."
    );
    for why in [Retried::Lost, Retried::Silent] {
        counter!(READS_RETRIED, "reason" => why.as_str()).increment(0);
    }
    describe_gauge!(WATCHES_PARKED, "Watches whose tunnels were lost and that wait for another.");
    gauge!(WATCHES_PARKED).set(0.0);
    describe_counter!(WATCHES_RESUMED, "Watches whose tunnels were lost and that went on over another.");
    counter!(WATCHES_RESUMED).increment(0);
    describe_counter!(WATCHES_ENDED, "Watches that ended because their tunnels were lost, by reason.");
    for why in WatchEnded::ALL {
        counter!(WATCHES_ENDED, "reason" => why.as_str()).increment(0);
    }
    describe_gauge!(
        POLICY_GENERATION,
        "Which policy is in force; each that takes another's place counts one more."
    );
    describe_gauge!(POLICY_TAKEN, "When the policy in force was read, in seconds since 1970.");
    describe_counter!(POLICY_FAILURES, "Times that the policy's file had changed and was not taken.");
    counter!(POLICY_FAILURES).increment(0);
    describe_gauge!(
        POLICY_CURRENT,
        "1 if the policy in force is what the file says, 0 if the file was not taken."
    );
    vip_services::describe();
    describe_gauge!(EXPIRY, "When a certificate of this server's ends, in seconds since 1970, by its use.");
}

impl Reread {
    fn as_str(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::TrustBundle => "trust_bundle",
            Self::Admins => "admins",
        }
    }
}

impl Retried {
    fn as_str(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Silent => "silent",
        }
    }
}

impl WatchEnded {
    /// All of them.
    const ALL: [Self; 14] = [
        Self::NoSafePoint,
        Self::UnclearQuery,
        Self::EventTooLarge,
        Self::NoRoom,
        Self::NotAnEvent,
        Self::Unordered,
        Self::ErrorEvent,
        Self::Away,
        Self::NoPlace,
        Self::NotAllowed,
        Self::Answered,
        Self::Refused,
        Self::TimedOut,
        Self::Stopping,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::NoSafePoint => "no_safe_point",
            Self::UnclearQuery => "unclear_query",
            Self::EventTooLarge => "event_too_large",
            Self::NoRoom => "no_room",
            Self::NotAnEvent => "not_an_event",
            Self::Unordered => "unordered",
            Self::ErrorEvent => "error_event",
            Self::Away => "away",
            Self::NoPlace => "no_place",
            Self::NotAllowed => "not_allowed",
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::TimedOut => "timed_out",
            Self::Stopping => "stopping",
        }
    }
}

impl ParkedWatch {
    /// One more.
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

/// Tells what refusals are, and sets every reason to zero.
pub fn describe_refusals(reasons: &[&'static str]) {
    describe_counter!(
        REFUSALS,
        "Requests that the gateway answered with a Status of its own, by the reason in its details.causes."
    );
    reasons.iter().for_each(|reason| counter!(REFUSALS, "reason" => *reason).increment(0));
}

/// Requests of callers, by verb.
pub fn exchanges() -> Exchanges {
    // Every value but `unknown`. What runs long, `watch` and `connect`, has a value of its own.
    let verbs: Vec<&str> = Verb::ALL.map(Verb::as_str).into_iter().chain(["dial"]).collect();
    Exchanges::new("tombolo_server", "verb", &verbs)
}

/// Tunnels, by cluster.
pub fn links() -> Links {
    Links::new("tombolo_server_cluster", "cluster")
}

/// Counts a request that was refused.
pub fn refused(reason: &'static str) {
    counter!(REFUSALS, "reason" => reason).increment(1);
}

/// Notes when the first of these certificates ends. One that cannot be read is left out.
pub fn certificates(used_for: &'static str, certificates: &[CertificateDer<'_>]) {
    expiry::note(EXPIRY, used_for, certificates);
}

/// What a tunnel has carried and lost.
pub fn link_figures(tunnel: &Tunnel) -> Figures {
    let link = tunnel.link();
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
    counter!(TUNNELS_ENDED, "reason" => reason).increment(1);
}

/// Counts a connection that came to no tunnel.
pub fn handshake_failed(error: &GreetError) {
    let reason = match error {
        GreetError::TooSlow => "too_slow",
        GreetError::Handshake(_) => "handshake",
        GreetError::NotAHello | GreetError::Broke(_) => "greeting",
        GreetError::Refused(_) => "refused",
    };
    counter!(GREETINGS_FAILED, "reason" => reason).increment(1);
}

/// Counts a greeted tunnel for which the registry has no place.
pub fn tunnel_over_limit() {
    counter!(GREETINGS_FAILED, "reason" => "full").increment(1);
}

/// Counts an agent that was turned away because another process uses its certificate.
pub fn key_copied() {
    counter!(KEYS_COPIED).increment(1);
}

/// Counts a request for an agent's certificate.
pub fn enrolled(outcome: &'static str) {
    counter!(ENROLLMENTS, "outcome" => outcome).increment(1);
}

/// Counts an exchange that this server ended because its caller did not read.
pub fn exchange_stalled_out() {
    counter!(EXCHANGES_ENDED, "reason" => "stalled").increment(1);
}

/// Counts an exchange that this server ended because it may not go on.
pub fn exchange_ended(reason: &'static str) {
    counter!(EXCHANGES_ENDED, "reason" => reason).increment(1);
}

/// Counts a request that did not begin because of a limit, which is one of [`LIMITS`].
pub fn limited(limit: &'static str) {
    counter!(LIMITED, "limit" => limit).increment(1);
}

/// Counts a connection that is served aside from now on.
pub fn set_aside() {
    counter!(SET_ASIDE).increment(1);
}

/// Counts that a read is sent again.
pub fn read_retried(why: Retried) {
    counter!(READS_RETRIED, "reason" => why.as_str()).increment(1);
}

/// Counts a watch that goes on over another tunnel.
pub fn watch_resumed() {
    counter!(WATCHES_RESUMED).increment(1);
}

/// Counts a watch that ended with its tunnel.
pub fn watch_ended(why: WatchEnded) {
    counter!(WATCHES_ENDED, "reason" => why.as_str()).increment(1);
}

/// Notes which policy is in force, from when.
pub fn policy_in_force(generation: u64, at: SystemTime) {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    gauge!(POLICY_GENERATION).set(f64::from(u32::try_from(generation).unwrap_or(u32::MAX)));
    gauge!(POLICY_TAKEN).set(since.as_secs_f64());
    gauge!(POLICY_CURRENT).set(1.0);
}

/// Counts a change of the policy's file that was not taken.
pub fn policy_refused() {
    counter!(POLICY_FAILURES).increment(1);
    gauge!(POLICY_CURRENT).set(0.0);
}

/// Tells of a file that was read at the start.
pub fn describe_file(file: Reread) {
    describe_counter!(FILE_FAILURES, "Times that a file had changed and was not taken.");
    counter!(FILE_FAILURES, "file" => file.as_str()).increment(0);
    describe_gauge!(FILE_CURRENT, "Whether a file is in force as it stands there now.");
    gauge!(FILE_CURRENT, "file" => file.as_str()).set(1.0);
}

/// Notes that a file had changed, and whether it was taken.
pub fn file_read(file: Reread, is_taken: bool) {
    counter!(FILE_FAILURES, "file" => file.as_str()).increment(u64::from(!is_taken));
    gauge!(FILE_CURRENT, "file" => file.as_str()).set(if is_taken { 1.0 } else { 0.0 });
}

/// Notes how many exchanges wait for callers who do not read.
pub fn exchanges_stalled(count: usize) {
    gauge!(EXCHANGES_STALLED).set(f64::from(u32::try_from(count).unwrap_or(u32::MAX)));
}
