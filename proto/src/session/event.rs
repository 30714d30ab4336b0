//! The events that a session reports to its driver.

use super::Health;
use crate::wire::{Endpoints, Extension, Peer, Servers, StreamQuery, StreamReport};

/// An event that the driver of a session has to act upon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The health changed to this.
    Health(Health),
    /// The peer is stopping: open no new stream.
    PeerDrains,
    /// The cluster's endpoints changed (only agents say so).
    Endpoints(Endpoints),
    /// A newer certificate takes the tunnel over, if its proof holds (only agents say so).
    Extension(Extension),
    /// The peer asks for streams of another tunnel (only servers do).
    StreamQuery(StreamQuery),
    /// The peer answers such a question (only agents do).
    StreamReport(StreamReport),
    /// The list of servers has changed (only servers say so), not checked yet.
    Servers(Servers),
    /// A message of another server, not checked yet. All of them are reported, in their order.
    Peer(Peer),
    /// After a drain: both sides have no open stream any more, so the tunnel can be closed without loss. Or
    /// this side asked for the drain, has none, and the other side is silent, so that there is nobody to wait
    /// for.
    Empty,
}
