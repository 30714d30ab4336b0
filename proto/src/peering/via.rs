//! Streams to a cluster through the server that has a tunnel to it: the first frames of both servers.

use crate::cluster::{ClusterId, NotAClusterId, is_dns_label};
use crate::greeting::printable;
use crate::wire::{
    StreamOpen, ViaNoTunnel, ViaOpen, ViaOpened, ViaRefused, ViaReply, stream_open, via_open, via_reply,
};

/// Longest reason of a refused stream, in bytes; the rest is cut off.
pub const REFUSAL_BYTES_MAX: usize = 512;

/// The first frame of a stream that a server opens through another one, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct ViaRequest {
    /// The cluster to which the receiver shall have a tunnel.
    pub cluster: ClusterId,
    /// The first frame for the agent. It is never one for another server, and has no number.
    pub open: StreamOpen,
}

/// The answer to such a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViaOutcome {
    /// An agent has the stream: what follows is its answer.
    Opened {
        /// The name of the agent among those of the cluster.
        agent: String,
        /// The tunnel that carries the stream: the `number` of its `RemoteTunnel`.
        number: u64,
    },
    /// The server has no tunnel to the cluster that takes streams. Nothing was sent to an agent.
    NoTunnel,
    /// The server refuses the stream, for this reason. Nothing was sent to an agent.
    Refused(String),
}

/// The reason why a stream of another server cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotVia {
    /// The frame is one for an agent, or of a kind that this version does not know.
    #[error("the stream names no cluster: it is for an agent, or of a newer kind")]
    Kind,
    /// The cluster has no such name.
    #[error(transparent)]
    Cluster(#[from] NotAClusterId),
    /// The frame for the agent is missing, or of a kind that this version does not know.
    #[error("the stream to cluster {0} has no request, or one of a newer kind")]
    NoRequest(ClusterId),
}

impl ViaRequest {
    /// Makes of the first frame for an agent of `cluster` one for a server that has a tunnel to it. `None` if
    /// the frame is one for a server already, or has no kind.
    #[must_use]
    pub fn wrap(cluster: &ClusterId, open: StreamOpen) -> Option<StreamOpen> {
        let kind = match open.kind? {
            stream_open::Kind::Http(open) => via_open::Kind::Http(open),
            stream_open::Kind::Dial(open) => via_open::Kind::Dial(open),
            stream_open::Kind::Via(_) => return None,
        };
        let via = ViaOpen { cluster: cluster.to_string(), kind: Some(kind) };
        Some(StreamOpen { kind: Some(stream_open::Kind::Via(via)), number: 0 })
    }

    /// Checks the first frame of a stream of another server.
    ///
    /// # Errors
    /// [`NotVia`]; the caller aborts the stream with `AbortCode::BadOpen`.
    pub fn parse(open: StreamOpen) -> Result<Self, NotVia> {
        let Some(stream_open::Kind::Via(ViaOpen { cluster, kind })) = open.kind else {
            return Err(NotVia::Kind);
        };
        let cluster: ClusterId = cluster.parse()?;
        let kind = match kind {
            Some(via_open::Kind::Http(open)) => stream_open::Kind::Http(open),
            Some(via_open::Kind::Dial(open)) => stream_open::Kind::Dial(open),
            None => return Err(NotVia::NoRequest(cluster)),
        };
        Ok(Self { cluster, open: StreamOpen { kind: Some(kind), number: 0 } })
    }
}

impl From<ViaOutcome> for ViaReply {
    fn from(outcome: ViaOutcome) -> Self {
        let outcome = match outcome {
            ViaOutcome::Opened { agent, number } => via_reply::Outcome::Opened(ViaOpened { agent, number }),
            ViaOutcome::NoTunnel => via_reply::Outcome::NoTunnel(ViaNoTunnel {}),
            ViaOutcome::Refused(message) => {
                via_reply::Outcome::Refused(ViaRefused { message: printable(&message, REFUSAL_BYTES_MAX) })
            }
        };
        Self { outcome: Some(outcome) }
    }
}

impl From<ViaReply> for ViaOutcome {
    /// An answer that cannot be understood is a refusal: the other server has begun nothing that counts.
    fn from(reply: ViaReply) -> Self {
        match reply.outcome {
            Some(via_reply::Outcome::Opened(ViaOpened { agent, number })) if is_dns_label(&agent) => {
                Self::Opened { agent, number }
            }
            Some(via_reply::Outcome::NoTunnel(ViaNoTunnel {})) => Self::NoTunnel,
            Some(via_reply::Outcome::Refused(ViaRefused { message })) => {
                Self::Refused(printable(&message, REFUSAL_BYTES_MAX))
            }
            Some(via_reply::Outcome::Opened(_)) | None => {
                Self::Refused("the answer of the other server is not understood".to_owned())
            }
        }
    }
}
