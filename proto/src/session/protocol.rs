//! The two protocols that use sessions, and the frames that belong to one of them alone.

use std::time::Duration;

use super::violation::ProtocolViolation;
use super::{HEARTBEAT_IDLE, SILENCE_LEAST};
use crate::wire::control_frame::Frame;

/// Silence after which a session between servers is given up. Short, because a server has other servers to use
/// and its registration does not outlive it by much. So what a dead server carried has ended for callers after 15 s, the time to notice
/// included.
pub const PEER_SILENCE_MAX: Duration = Duration::from_secs(14);

const _: () = assert!(SILENCE_LEAST.as_millis() <= PEER_SILENCE_MAX.as_millis());
const _: () = assert!(HEARTBEAT_IDLE.as_millis() * 3 <= PEER_SILENCE_MAX.as_millis());

/// The protocol of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// A tunnel between a server and an agent.
    Agent,
    /// A session between two servers.
    Peer,
}

impl Protocol {
    /// Refuses frames of a greeting, and frames that belong to the other protocol.
    pub(super) fn check(self, frame: &Frame) -> Result<(), ProtocolViolation> {
        let (name, protocol) = match frame {
            Frame::Heartbeat(_) | Frame::Drain(_) | Frame::Drained(_) => return Ok(()),
            Frame::Hello(_) => return Err(ProtocolViolation::LateGreeting("Hello")),
            Frame::Welcome(_) => return Err(ProtocolViolation::LateGreeting("Welcome")),
            Frame::Refused(_) => return Err(ProtocolViolation::LateGreeting("Refused")),
            Frame::PeerHello(_) => return Err(ProtocolViolation::LateGreeting("PeerHello")),
            Frame::PeerWelcome(_) => return Err(ProtocolViolation::LateGreeting("PeerWelcome")),
            Frame::Endpoints(_) => ("Endpoints", Self::Agent),
            Frame::Extension(_) => ("Extension", Self::Agent),
            Frame::StreamQuery(_) => ("StreamQuery", Self::Agent),
            Frame::StreamReport(_) => ("StreamReport", Self::Agent),
            Frame::Servers(_) => ("Servers", Self::Agent),
            Frame::Peer(_) => ("Peer", Self::Peer),
        };
        if self == protocol { Ok(()) } else { Err(ProtocolViolation::ForeignFrame(name)) }
    }
}
