//! A peer's breaches of the protocol, for which a tunnel is closed.

use super::frame_limits::{FRAMES_PER_SECOND_MAX, PEER_FRAMES_PER_SECOND_MAX};

/// A peer's breach of the protocol. The tunnel is closed for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolViolation {
    /// A frame of the greeting, after the greeting.
    #[error("a {0} frame came after the greeting")]
    LateGreeting(&'static str),
    /// A frame that only the other protocol has: of servers on an agent's tunnel, or the reverse.
    #[error("a {0} frame does not belong to this protocol")]
    ForeignFrame(&'static str),
    /// A message of another server breaks a limit, for this reason.
    #[error("a message between servers is not valid: {0}")]
    PeerMessage(String),
    /// The other server does not read its messages, and more of them wait than may.
    #[error("too many messages wait for a server that does not read them")]
    UnreadMessages,
    /// More frames than a peer may send.
    #[error("more than {max} control frames a second", max = FRAMES_PER_SECOND_MAX)]
    TooManyFrames,
    /// More frames than another server may send.
    #[error("more than {max} control frames of a server a second", max = PEER_FRAMES_PER_SECOND_MAX)]
    TooManyPeerFrames,
    /// More streams were acknowledged than this side has ended.
    #[error("the ends of more streams were acknowledged than had been sent")]
    FalseAcknowledgement,
}
