//! A compatibility shim for timers inside Kubernetes that cut a command's output short on slow links. It is
//! removed when they no longer do.
//!
//! **The defect.** A TCP endpoint that has closed answers later bytes with RST (RFC 1122, section 4.2.2.13),
//! and output that its kernel has not sent yet is lost. A container runtime and an API server close right
//! after a command's last byte, while megabytes of its output still lie in kernel buffers. On a slow link a
//! ping arrives after that close: output is cut short, over SPDY even with exit code 0. Decisions 0045 and
//! 0053 (`docs/decisions`) have the measurements.
//!
//! **The pings.** kubectl pings every 5 s. API server and kubelet ping over SPDY every 5 s, too, and so does
//! the translator between WebSocket and SPDY, from the upgrade on (`streamtranslator.go`,
//! `spdy/connection.go`).
//!
//! **The remedy, in three parts.**
//! * `pings`: the agent itself answers the caller's ping to an edge that sent something within the last 10
//!   s.
//! * `drain_read`: before other bytes of a caller that was silent for 1 s are forwarded, the agent reads
//!   what the edge may still have to send. After an end of file nothing is forwarded, so no RST comes and
//!   nothing is lost.
//! * `read_ahead`: around each ping of a translator the agent reads more of the edge's bytes than the
//!   caller takes.
//!
//! **Known Kubernetes versions.** All of it was measured with Kubernetes 1.36 (API server, kubelet and
//! kubectl), where the kubelet speaks WebSocket itself and the translator is the kubelet's. In releases
//! before that the translator is the API server's. Both ping alike.
//!
//! **When it is no longer needed.** Let `KubernetesCompat::new` ignore its protocol and set [`DRAINS_MAX`]
//! to 0. Then run `make test-node`, of which `tests/tests/node/complete_reads.rs` reads 50 MB from a pod by four
//! kubectls at once, and `make soak`, which repeats that 800 times through a link that loses 5 % of its
//! packets (`tests/tests/node/alone/outage.rs`) and copies 1 GiB by `kubectl cp`
//! (`tests/tests/node/alone/typing.rs`). The shim can go once no reading is short with any supported release.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use proto::upgrade_protocol::UpgradeProtocol;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::buffer::BUFFER_BYTES;
use drain_read::DrainRead;
use pings::Pings;
use read_ahead::ReadAhead;

mod drain_read;
mod pings;
mod read_ahead;
#[cfg(test)]
mod tests;

/// Connections of which more than the usual bytes may wait at once. On other connections the caller's bytes
/// are forwarded at once. 4 connections, 32 MiB each.
pub const DRAINS_MAX: usize = 4;

/// An edge that sent so many bytes without a pause may have more in its kernel, although the caller takes
/// everything at once.
const UNPAUSED_BYTES: usize = 2 * BUFFER_BYTES;

/// An edge that was written to within this time is not drained first: a caller that sends all the time would
/// become slow.
const CALLER_SILENCE: Duration = Duration::from_secs(1);

/// An edge that sent something within this time is alive, and the next bytes may lie in kernels on the way
/// while the programs between wait for a processor. So it is not pinged. Longer than the 5 s between two of
/// kubectl's pings.
const ALIVE_FOR: Duration = Duration::from_secs(10);

static DRAIN_SLOTS: Semaphore = Semaphore::const_new(DRAINS_MAX);

/// The state of the shim for one pipe. The pipe reports what it reads and writes, and asks what it may do.
pub(super) struct KubernetesCompat<'a> {
    /// Present where the protocol's frames are known.
    pings: Option<Pings>,
    /// Present where a translator behind the edge pings.
    read_ahead: Option<ReadAhead>,
    /// Present while the caller's bytes are held back.
    drain: Option<DrainRead>,
    slots: &'a Semaphore,
    /// Permits that more than the usual bytes wait.
    slot: Option<SemaphorePermit<'a>>,
    /// Bytes that the edge sent since there was last nothing to read.
    unpaused: usize,
    /// Time at which the edge last sent something.
    edge_sent: Option<Instant>,
    /// Time at which the edge last took something.
    edge_took: Instant,
}

/// The state of the direction from the edge to the caller.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge {
    /// The edge has sent end of file.
    pub(super) is_over: bool,
    /// Bytes that wait for the caller.
    pub(super) waiting: usize,
}

impl KubernetesCompat<'static> {
    /// The shim of one pipe, with the slots that all pipes of the process share.
    pub(super) fn new(protocol: Option<UpgradeProtocol>) -> Self {
        Self::with_slots(&DRAIN_SLOTS, protocol)
    }
}

impl<'a> KubernetesCompat<'a> {
    pub(super) fn with_slots(slots: &'a Semaphore, protocol: Option<UpgradeProtocol>) -> Self {
        Self {
            pings: protocol.map(Pings::new),
            read_ahead: matches!(protocol, Some(UpgradeProtocol::WebSocket)).then(ReadAhead::begin),
            drain: None,
            slots,
            slot: None,
            unpaused: 0,
            edge_sent: None,
            edge_took: Instant::now(),
        }
    }

    /// Bytes beyond [`BUFFER_BYTES`] that may wait for the caller now. Wakes the task when there may be more.
    pub(super) fn extra_bytes(&mut self, cx: &mut Context<'_>, edge: Edge) -> usize {
        let mut extra = self.drain.as_ref().map_or(0, DrainRead::extra_bytes);
        if edge.waiting >= BUFFER_BYTES
            && let Some(read_ahead) = &mut self.read_ahead
        {
            let ahead = read_ahead.extra_bytes(cx);
            if ahead > 0 && self.may_drain(edge) {
                extra = extra.max(ahead);
            }
        }
        extra
    }

    /// The edge has sent so many bytes.
    pub(super) fn edge_sent(&mut self, bytes: usize) {
        self.unpaused = self.unpaused.saturating_add(bytes);
        self.edge_sent = Some(Instant::now());
    }

    /// There was nothing to read from the edge.
    pub(super) fn edge_paused(&mut self) {
        self.unpaused = 0;
    }

    /// The edge has taken bytes of the caller.
    pub(super) fn written_to_edge(&mut self) {
        self.edge_took = Instant::now();
    }

    /// The caller has sent `bytes`. Takes out the pings that the agent answers itself, and decides whether
    /// the rest is held back while the edge is drained.
    pub(super) fn caller_sent(&mut self, bytes: &mut BytesMut, edge: Edge) {
        let is_alive = self.is_alive(edge);
        if let Some(pings) = &mut self.pings {
            pings.caller_sent(bytes, is_alive);
        }
        // Also where only a ping was sent, which is not forwarded: programs between the agent and the runtime
        // ping each other.
        if self.edge_took.elapsed() >= CALLER_SILENCE && self.may_drain(edge) {
            self.drain = Some(DrainRead::begin());
        }
    }

    /// Returns true if the caller's bytes are held back while the edge is drained.
    pub(super) fn holds_back(&self) -> bool {
        self.drain.is_some()
    }

    /// Ends the draining, because the edge has sent end of file.
    pub(super) fn stop_holding_back(&mut self) {
        self.drain = None;
    }

    /// Ready where the draining is over, or where more may be read from the edge. `read` says that the edge
    /// has just sent something.
    pub(super) fn poll_drained(&mut self, cx: &mut Context<'_>, edge: Edge, read: bool) -> Poll<()> {
        let Some(drain) = &mut self.drain else { return Poll::Ready(()) };
        let sends = read || edge.waiting >= BUFFER_BYTES + drain.extra_bytes();
        drain.poll_over(cx, sends).map(|is_over| {
            if is_over {
                self.edge_took = Instant::now();
                self.drain = None;
            }
        })
    }

    /// Gives the slot back once no more than the usual bytes wait.
    pub(super) fn release_slot(&mut self, edge: Edge) {
        if self.drain.is_none() && edge.waiting < BUFFER_BYTES {
            self.slot = None;
        }
    }

    /// Answers to pings that have to be written to the caller before anything else, if there are any.
    pub(super) fn answers(&mut self) -> Option<&mut BytesMut> {
        self.pings.as_mut().map(Pings::due_answers).filter(|answers| !answers.is_empty())
    }

    /// The number of the edge's `bytes` that may be written to the caller now: up to the end of a frame where
    /// an answer waits.
    pub(super) fn writable(&self, bytes: &[u8]) -> usize {
        self.pings.as_ref().map_or(bytes.len(), |pings| pings.writable(bytes))
    }

    /// These bytes of the edge were written to the caller.
    pub(super) fn written_to_caller(&mut self, bytes: &[u8]) {
        if let Some(pings) = &mut self.pings {
            pings.written_to_caller(bytes);
        }
    }

    /// Returns true if the edge is alive for sure: it sent something lately, or bytes of it still wait.
    fn is_alive(&self, edge: Edge) -> bool {
        let sent_lately = self.edge_sent.is_some_and(|at| at.elapsed() < ALIVE_FOR);
        !edge.is_over && (sent_lately || edge.waiting > 0)
    }

    /// Returns true if the edge may have more to send than was read, and a slot is free to let it wait here.
    fn may_drain(&mut self, edge: Edge) -> bool {
        if edge.is_over || (edge.waiting == 0 && self.unpaused < UNPAUSED_BYTES) {
            return false;
        }
        if self.slot.is_none() {
            self.slot = self.slots.try_acquire().ok();
        }
        self.slot.is_some()
    }
}
