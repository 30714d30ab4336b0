//! The cost of an outage: the memory of both daemons, and the bytes that they hold for it.

use serde::Serialize;

use super::Agent;
use super::echo_api::ServerStreams;
use super::streams::CallerStreams;
use crate::rig::Rig;

/// Resident memory of both daemons in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Resident {
    /// Of the server, with all that others do there.
    pub server: u64,
    /// The memory of the agent with the busy tunnel.
    pub agent: u64,
}

/// The memory that one outage cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// While everything flowed, right before the link went dark.
    pub before: Resident,
    /// Right before it was opened.
    pub dark: Resident,
    /// The memory while everything flowed again.
    pub after: Resident,
    /// Streams of the busy tunnel.
    pub streams: u32,
    /// Sent into them and not arrived, in both directions, right before the link was opened: in the daemons,
    /// and in the sockets on either side of them.
    pub held_bytes: u64,
}

impl Resident {
    pub(super) fn now(rig: &Rig, agent: &Agent) -> Self {
        Self { server: rig.resident_bytes(), agent: agent.process.resident_bytes() }
    }
}

/// Bytes that are under way.
pub(super) fn memory_held(server_streams: &ServerStreams, streams: &CallerStreams) -> u64 {
    let (there, here) = (streams.sent(), server_streams.sent());
    let sent = here.download + there.upload + here.trickle + there.trickle + 2 * there.exec;
    let meters = [
        &streams.download,
        &server_streams.upload,
        &streams.trickle,
        &server_streams.trickle,
        &server_streams.exec,
        &streams.exec,
    ];
    let arrived: u64 = meters.into_iter().map(super::Meter::bytes).sum();
    let events = here.events.len().saturating_sub(streams.busy_watch.text().len());
    sent.saturating_sub(arrived) + events as u64
}
