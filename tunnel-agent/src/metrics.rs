//! What the agent counts, under names that begin with `tombolo_agent_`. Every metric stands in `docs/metrics.md`.

use std::time::{SystemTime, UNIX_EPOCH};

use daemon::metrics::exchanges::Exchanges;
use daemon::metrics::expiry;
use daemon::metrics::links::{Figures, Links};
use metrics::{counter, describe_counter, describe_gauge, gauge};
use proto::AbortCode;
use proto::wire::not_connected::Reason;
use rustls_pki_types::CertificateDer;
use transport::{Buffers, DialError, Tunnel, TunnelEnded};

const CONNECTED: &str = "tombolo_agent_tunnels_connected";
const DIALS_FAILED: &str = "tombolo_agent_dials_failed_total";
const TUNNELS_ENDED: &str = "tombolo_agent_tunnels_ended_total";
const RECONNECTS: &str = "tombolo_agent_reconnects_total";
const REFUSED: &str = "tombolo_agent_exchanges_refused_total";
const GUARD: &str = "tombolo_agent_guard_refusals_total";
const TARGET_DIALS: &str = "tombolo_agent_target_dials_total";
const API_DIALS: &str = "tombolo_agent_apiserver_dials_total";
const API_SERVERS: &str = "tombolo_agent_apiserver_endpoints";
const DISCOVERIES: &str = "tombolo_agent_discoveries_total";
const ENDPOINTS: &str = "tombolo_agent_discovered_endpoints";
const DISCOVERED: &str = "tombolo_agent_discovered_timestamp_seconds";
const BUFFERS: &str = "tombolo_agent_udp_buffer_bytes";
const EXPIRY: &str = "tombolo_agent_certificate_expiry_timestamp_seconds";

/// Values of the label `kind` but `unknown`.
const KINDS: [&str; 5] = [READ, WRITE, LONG_RUNNING, UPGRADE, DIAL];

/// `GET`, `HEAD` and `OPTIONS` that end by themselves.
pub const READ: &str = "read";
/// Every other method.
pub const WRITE: &str = "write";
/// What the server calls so: it lasts as long as its caller likes, like a watch or a log that is followed.
pub const LONG_RUNNING: &str = "long_running";
/// What asks for another protocol.
pub const UPGRADE: &str = "upgrade";
/// What is connected to a target.
pub const DIAL: &str = "dial";

/// How a tunnel ended, as values of the label `reason`.
const ENDS: [&str; 6] = ["drained", "closed_by_server", "lost", "server_restarted", "violation", "carrier"];

/// Why an exchange was refused, as values of the label `reason`.
const WORDS: [&str; 16] = [
    "abandoned",
    "caller_stalled",
    "bad_open",
    "guard",
    "draining",
    "busy",
    "bad_request",
    "apiserver_unreachable",
    "apiserver_silent",
    "apiserver_untrusted",
    "apiserver_lost",
    "apiserver_nonsense",
    "no_credential",
    "target_lost",
    "no_bearer",
    "unknown",
];

/// Tells the exporter what each metric means, and sets counters to zero for every reason, because a rate needs two
/// values. Called once, after the recorder was installed.
pub fn describe() {
    describe_gauge!(CONNECTED, "Tunnels that are open now, by server.");
    describe_counter!(DIALS_FAILED, "Dials that came to no tunnel, by reason.");
    const DIALS: [&str; 14] = [
        "resolve",
        "no_address",
        "socket",
        "name",
        "no_answer",
        "proxy",
        "rejected",
        "untrusted",
        "handshake",
        "not_now",
        "too_slow",
        "refused",
        "greeting",
        "local",
    ];
    zero(DIALS_FAILED, &DIALS);
    describe_counter!(TUNNELS_ENDED, "Tunnels that ended, by reason.");
    zero(TUNNELS_ENDED, &ENDS);
    describe_counter!(
        RECONNECTS,
        "Tunnels that were opened again, by the reason for which the one before had ended."
    );
    zero(RECONNECTS, &ENDS);
    describe_counter!(REFUSED, "Streams that were aborted before an answer, by reason.");
    zero(REFUSED, &WORDS);
    describe_counter!(
        GUARD,
        "Identities that the agent's own allow-list refused, by reason; the log says which at DEBUG."
    );
    zero(
        GUARD,
        &["empty", "too_long", "too_many_groups", "unfit", "never", "system", "unlisted", "pass_through"],
    );
    describe_counter!(API_DIALS, "Connections dialed to the API server, by what became of them.");
    counter!(API_DIALS, "outcome" => "connected").increment(0);
    describe_gauge!(API_SERVERS, "API servers among which requests are balanced, by whether they are ready.");
    api_servers(0, 0);
    describe_counter!(
        TARGET_DIALS,
        "Connections to targets that the server asked for, by what became of them."
    );
    zero_of(TARGET_DIALS, "outcome", &DialOutcome::ALL.map(DialOutcome::as_str));
    describe_counter!(DISCOVERIES, "Times that the cluster was asked for its control plane, by outcome.");
    zero_of(DISCOVERIES, "outcome", &["ok", "failed"]);
    describe_gauge!(ENDPOINTS, "Endpoints of the control plane that are advertised, configured or found.");
    describe_gauge!(
        DISCOVERED,
        "When the cluster last said where its control plane is, in seconds since 1970."
    );
    describe_gauge!(
        BUFFERS,
        "What the kernel gave the newest tunnel's UDP socket for each direction; below a megabyte bulk transfers suffer."
    );
    describe_gauge!(EXPIRY, "When a certificate of this agent's ends, in seconds since 1970, by its use.");
}

/// What became of a dial to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DialOutcome {
    /// It answered.
    Connected,
    /// The agent's own list does not have it.
    Guard,
    /// Nobody answers there, or it has no address.
    Unreachable,
    /// As many are open as may be.
    Limit,
}

impl DialOutcome {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Connected, Self::Guard, Self::Unreachable, Self::Limit];

    /// Why there was no connection.
    #[must_use]
    pub fn of(reason: Reason) -> Self {
        match reason {
            Reason::Unspecified | Reason::Target | Reason::Unlisted | Reason::Special => Self::Guard,
            Reason::Unresolved
            | Reason::Unreachable
            | Reason::Timeout
            | Reason::NoService
            | Reason::NotReady
            | Reason::Unread => Self::Unreachable,
            Reason::Limit => Self::Limit,
        }
    }

    /// The value of the label `outcome`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Guard => "guard",
            Self::Unreachable => "unreachable",
            Self::Limit => "limit",
        }
    }
}

/// A target was dialed, or was not.
pub fn dialed(outcome: DialOutcome) {
    counter!(TARGET_DIALS, "outcome" => outcome.as_str()).increment(1);
}

/// Streams that are served, by what their requests are.
pub fn exchanges() -> Exchanges {
    Exchanges::new("tombolo_agent", "kind", &KINDS)
}

/// Tunnels, by server.
pub fn links() -> Links {
    Links::new("tombolo_agent_server", "server")
}

/// Counts a tunnel to a server for as long as it is held.
#[must_use]
pub struct Connected(metrics::Gauge);

impl Connected {
    /// A tunnel to this server, which is one of the configuration.
    pub fn to(server: &str) -> Self {
        let gauge = gauge!(CONNECTED, "server" => server.to_owned());
        gauge.increment(1.0);
        Self(gauge)
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

/// What a tunnel has carried and lost.
pub fn figures(tunnel: &Tunnel) -> Figures {
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

/// Notes what the kernel gave a tunnel's socket.
pub fn buffers(buffers: Buffers) {
    gauge!(BUFFERS, "direction" => "receive").set(buffers.receive as f64);
    gauge!(BUFFERS, "direction" => "send").set(buffers.send as f64);
}

/// Notes when the first of these certificates ends. One that cannot be read is left out.
pub fn certificates(used_for: &'static str, certificates: &[CertificateDer<'_>]) {
    expiry::note(EXPIRY, used_for, certificates);
}

/// Counts a stream that was aborted before an answer.
pub fn refused(code: AbortCode) {
    counter!(REFUSED, "reason" => word(code)).increment(1);
}

/// Counts an identity that the guard refused.
pub fn guard_refused(reason: &'static str) {
    counter!(GUARD, "reason" => reason).increment(1);
}

/// Counts a connection that was dialed to the API server; `code` says why there is none.
pub fn apiserver_dialed(code: Option<AbortCode>) {
    counter!(API_DIALS, "outcome" => code.map_or("connected", word)).increment(1);
}

/// Notes how many API servers are ready, and how many are not.
pub fn api_servers(ready: usize, not_ready: usize) {
    gauge!(API_SERVERS, "state" => "ready").set(ready as f64);
    gauge!(API_SERVERS, "state" => "not_ready").set(not_ready as f64);
}

/// Notes the endpoints that are advertised from now on.
pub fn endpoints(count: usize) {
    gauge!(ENDPOINTS).set(count as f64);
}

/// Counts an answer of the cluster about its control plane, or that there was none.
pub fn discovered(answered: bool) {
    counter!(DISCOVERIES, "outcome" => if answered { "ok" } else { "failed" }).increment(1);
    if answered {
        // A clock before 1970 is wrong anyway.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        gauge!(DISCOVERED).set(now.as_secs() as f64);
    }
}

/// Counts a dial in vain.
pub fn dial_failed(error: &DialError) {
    dial_in_vain(match error {
        DialError::Name(_) => "name",
        DialError::NoAnswer | DialError::Tcp(_) => "no_answer",
        DialError::Proxy(_) => "proxy",
        DialError::Rejected(_) => "rejected",
        DialError::Untrusted(_) => "untrusted",
        DialError::Handshake(_) => "handshake",
        DialError::NotNow => "not_now",
        DialError::TooSlow => "too_slow",
        DialError::Refused(_) | DialError::TurnedAway(_) => "refused",
        DialError::NotAWelcome | DialError::Broke(_) => "greeting",
        DialError::Local(_) => "local",
    });
}

/// Counts a dial that came to nothing before a packet was sent.
pub fn dial_in_vain(reason: &'static str) {
    counter!(DIALS_FAILED, "reason" => reason).increment(1);
}

/// Counts a tunnel's end, and returns the word for it.
pub fn tunnel_ended(ended: &TunnelEnded) -> &'static str {
    let reason = match ended {
        TunnelEnded::Drained => "drained",
        TunnelEnded::ClosedByPeer(_) => "closed_by_server",
        TunnelEnded::Lost => "lost",
        TunnelEnded::Restarted => "server_restarted",
        TunnelEnded::Violation(_) | TunnelEnded::Frame(_) => "violation",
        TunnelEnded::Carrier(_) => "carrier",
    };
    counter!(TUNNELS_ENDED, "reason" => reason).increment(1);
    reason
}

/// Counts a tunnel that was opened again after one that ended so.
pub fn reconnected(ended: &'static str) {
    counter!(RECONNECTS, "reason" => ended).increment(1);
}

fn zero(name: &'static str, reasons: &[&'static str]) {
    zero_of(name, "reason", reasons);
}

fn zero_of(name: &'static str, label: &'static str, values: &[&'static str]) {
    values.iter().for_each(|value| counter!(name, label => *value).increment(0));
}

fn word(code: AbortCode) -> &'static str {
    match code {
        AbortCode::Abandoned => "abandoned",
        AbortCode::CallerStalled => "caller_stalled",
        AbortCode::BadOpen => "bad_open",
        AbortCode::GuardRefused | AbortCode::NoPassThrough => "guard",
        AbortCode::NoBearer => "no_bearer",
        AbortCode::Draining => "draining",
        AbortCode::Busy => "busy",
        AbortCode::BadRequest => "bad_request",
        AbortCode::ApiServerUnreachable => "apiserver_unreachable",
        AbortCode::ApiServerSilent => "apiserver_silent",
        AbortCode::ApiServerUntrusted => "apiserver_untrusted",
        AbortCode::ApiServerLost => "apiserver_lost",
        AbortCode::ApiServerNonsense => "apiserver_nonsense",
        AbortCode::NoCredential => "no_credential",
        AbortCode::TargetLost => "target_lost",
        AbortCode::Unknown(_) => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_has_a_word_that_is_listed() {
        let words: BTreeSet<&str> = (0..64).map(|number| word(AbortCode::from_number(number))).collect();

        assert_eq!(words, WORDS.into());
    }
}
