//! The schemas of `proto/tombolo/tunnel/v1`, as generated types.

use std::time::Duration;

#[allow(
    missing_docs,
    unused_qualifications,
    clippy::allow_attributes_without_reason,
    clippy::too_many_lines,
    clippy::derive_partial_eq_without_eq,
    clippy::doc_markdown,
    reason = "generated"
)]
mod tunnel_v1 {
    include!(concat!(env!("OUT_DIR"), "/tombolo.tunnel.v1.rs"));
}

pub use tunnel_v1::{
    Applied, Assert, CallerUsage, CarrierNote, Clock, Closing, Connected, ControlFrame, DialOpen, DialReply,
    Drain, Drained, Endpoints, Extension, Heartbeat, Hello, HttpOpen, NotConnected, PassThrough, Peer,
    PeerDraining, PeerHello, PeerTunnel, PeerWelcome, Probe, Probed, Refused, ServedCertificate, ServerEntry,
    ServerStatus, Servers, StreamOpen, StreamQuery, StreamReport, TunnelHealth, TunnelsDelta, Usage,
    ViaNoTunnel, ViaOpen, ViaOpened, ViaRefused, ViaReply, Welcome, caller_usage, carrier_note,
    control_frame, dial_reply, http_open, not_connected, peer, probed, refused, server_status, stream_open,
    via_open, via_reply,
};

use control_frame::Frame;

// prost does not derive it for a message that contains others.
impl Eq for Endpoints {}
impl Eq for Peer {}
impl Eq for Servers {}

impl From<Frame> for ControlFrame {
    fn from(frame: Frame) -> Self {
        Self { frame: Some(frame) }
    }
}

impl StreamOpen {
    /// The part of a first frame that numbers the stream. It is appended to the other part, which it merges with.
    #[must_use]
    pub fn numbered(number: u64) -> Self {
        Self { kind: None, number }
    }

    /// Opens a stream for one HTTP exchange on behalf of `identity`.
    #[must_use]
    pub fn http(identity: impl Into<http_open::Identity>, audit_id: String, long_running: bool) -> Self {
        let identity = Some(identity.into());
        let open =
            HttpOpen { identity, audit_id, long_running, answer_seconds_max: 0, reduce: String::new() };
        Self { kind: Some(stream_open::Kind::Http(open)), number: 0 }
    }

    /// The same with a deadline for the head of the answer, in whole seconds.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        if let Some(stream_open::Kind::Http(open)) = &mut self.kind {
            open.answer_seconds_max = u32::try_from(deadline.as_secs()).unwrap_or(u32::MAX);
        }
        self
    }

    /// The same for a list that the agent reduces by this question, in JSON.
    #[must_use]
    pub fn with_reduce(mut self, question: &str) -> Self {
        if let Some(stream_open::Kind::Http(open)) = &mut self.kind {
            question.clone_into(&mut open.reduce);
        }
        self
    }

    /// Opens a stream of bytes to `target`, which is `host:port`.
    #[must_use]
    pub fn dial(target: String, audit_id: String) -> Self {
        Self { kind: Some(stream_open::Kind::Dial(DialOpen { target, audit_id })), number: 0 }
    }
}

impl DialReply {
    /// The target is connected, at `address`.
    #[must_use]
    pub fn connected(address: String) -> Self {
        Self { outcome: Some(dial_reply::Outcome::Connected(Connected { address })) }
    }

    /// The target could not be connected, for this reason.
    #[must_use]
    pub fn not_connected(reason: not_connected::Reason) -> Self {
        let reason = reason.into();
        Self { outcome: Some(dial_reply::Outcome::NotConnected(NotConnected { reason })) }
    }
}

impl From<Assert> for http_open::Identity {
    fn from(identity: Assert) -> Self {
        Self::Assert(identity)
    }
}

impl From<PassThrough> for http_open::Identity {
    fn from(identity: PassThrough) -> Self {
        Self::PassThrough(identity)
    }
}
