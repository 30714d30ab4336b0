//! The limits of control frames of each protocol.

/// Most control frames that a peer may send in a second, in the long run.
pub const FRAMES_PER_SECOND_MAX: u32 = 100;

/// Most control frames that may arrive at once: the heartbeats of a whole outage wait in the stream and come
/// together when the link returns.
pub const FRAMES_BURST_MAX: u32 = 1000;

/// Most control frames that another server may send in a second, in the long run.
pub const PEER_FRAMES_PER_SECOND_MAX: u32 = 1000;

/// Most control frames of another server that may arrive at once: a copy of 10,000 tunnels whose agents advertise as much as
/// they may, with two of them in a frame, and what waited in the meantime.
pub const PEER_FRAMES_BURST_MAX: u32 = 8192;
