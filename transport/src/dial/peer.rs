//! Greets another server, which was dialed by its ID.

use std::time::Duration;

use proto::peering::{self, PeerGreeting, PeerInfo};
use proto::session::{PEER_SILENCE_MAX, Protocol};
use proto::wire::control_frame::Frame;

use super::error::DialError;
use super::greet::Opening;

/// Opens a session with another server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerOpening {
    /// This server, the one that dials.
    pub own: PeerInfo,
    /// The ID of the server that is dialed, the same as in [`DialTls::for_peer`](crate::DialTls::for_peer).
    pub dialed_id: String,
}

impl Opening for PeerOpening {
    const PROTOCOL: Protocol = Protocol::Peer;

    type Welcome = PeerGreeting;

    fn frame(&self) -> Frame {
        Frame::PeerHello(peering::hello(&self.own))
    }

    fn silence_limit(&self) -> Duration {
        PEER_SILENCE_MAX
    }

    fn welcomed(&self, answer: Frame) -> Result<PeerGreeting, DialError> {
        let Frame::PeerWelcome(welcome) = answer else {
            return Err(DialError::NotAWelcome);
        };
        peering::verify_welcome(welcome, &self.dialed_id)
            .map_err(|error| DialError::Untrusted(error.to_string()))
    }

    fn silence_agreed(&self, _: &PeerGreeting) -> Duration {
        PEER_SILENCE_MAX
    }
}
