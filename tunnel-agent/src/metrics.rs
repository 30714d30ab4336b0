//! What the agent counts, under names that begin with `tombolo_agent_`.

use metrics::{counter, describe_counter, describe_gauge, gauge};
use proto::AbortCode;
use transport::{DialError, TunnelEnded};

/// Tells the exporter what each metric means. Called once, after the recorder was installed.
pub fn describe() {
    describe_gauge!("tombolo_agent_tunnels_connected", "Tunnels to servers that are open now.");
    describe_counter!("tombolo_agent_dials_failed_total", "Dials that came to no tunnel, by reason.");
    describe_counter!("tombolo_agent_tunnels_ended_total", "Tunnels that ended, by reason.");
    describe_gauge!("tombolo_agent_exchanges_active", "Streams that are being served now.");
    describe_counter!(
        "tombolo_agent_exchanges_refused_total",
        "Streams that were aborted before an answer, by reason."
    );
}

/// Counts one more of a gauge for as long as it is held.
#[must_use]
pub struct Active(metrics::Gauge);

impl Active {
    /// An exchange.
    pub fn begin() -> Self {
        Self::count(gauge!("tombolo_agent_exchanges_active"))
    }

    /// A tunnel.
    pub fn connected() -> Self {
        Self::count(gauge!("tombolo_agent_tunnels_connected"))
    }

    fn count(gauge: metrics::Gauge) -> Self {
        gauge.increment(1);
        Self(gauge)
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

/// Counts a stream that was aborted before an answer.
pub fn refused(code: AbortCode) {
    let reason = match code {
        AbortCode::Abandoned => "abandoned",
        AbortCode::BadOpen => "bad_open",
        AbortCode::GuardRefused => "guard",
        AbortCode::Draining => "draining",
        AbortCode::BadRequest => "bad_request",
        AbortCode::ApiServerUnreachable => "apiserver_unreachable",
        AbortCode::ApiServerSilent => "apiserver_silent",
        AbortCode::ApiServerUntrusted => "apiserver_untrusted",
        AbortCode::ApiServerLost => "apiserver_lost",
        AbortCode::ApiServerNonsense => "apiserver_nonsense",
        AbortCode::NoCredential => "no_credential",
        AbortCode::Unknown(_) => "unknown",
    };
    counter!("tombolo_agent_exchanges_refused_total", "reason" => reason).increment(1);
}

/// Counts a dial in vain.
pub fn dial_failed(error: &DialError) {
    let reason = match error {
        DialError::Name(_) => "name",
        DialError::NoAnswer => "no_answer",
        DialError::Handshake(_) => "handshake",
        DialError::NotNow => "not_now",
        DialError::TooSlow => "too_slow",
        DialError::Refused(_) | DialError::TurnedAway(_) => "refused",
        DialError::NotAWelcome | DialError::Broke(_) => "greeting",
        DialError::Local(_) => "local",
    };
    counter!("tombolo_agent_dials_failed_total", "reason" => reason).increment(1);
}

/// Counts a tunnel's end.
pub fn tunnel_ended(ended: &TunnelEnded) {
    let reason = match ended {
        TunnelEnded::Drained => "drained",
        TunnelEnded::ClosedByPeer(_) => "closed_by_server",
        TunnelEnded::Lost => "lost",
        TunnelEnded::Restarted => "server_restarted",
        TunnelEnded::Violation(_) | TunnelEnded::Frame(_) => "violation",
        TunnelEnded::Carrier(_) => "carrier",
    };
    counter!("tombolo_agent_tunnels_ended_total", "reason" => reason).increment(1);
}
