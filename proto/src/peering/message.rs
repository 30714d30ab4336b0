//! The messages of a session between servers, checked against their limits.

use std::fmt;

use super::probe::{ProbeAnswer, ProbeRequest};
use super::status::PeerStatus;
use super::tunnels::PoolDelta;
use super::{PeerMessageError, USAGE_CALLERS_MAX};
use crate::wire::caller_usage::Kind;
use crate::wire::{Applied, CallerUsage, Clock, Peer, PeerDraining, Usage, peer::Content};

/// A message of a server to another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerMessage {
    /// A change of the sender's own tunnels.
    Tunnels(PoolDelta),
    /// The sender is stopping: agents and callers shall go to other servers.
    Draining,
    /// The sender's clock, so that the receiver notices a wrong one.
    Clock {
        /// Milliseconds since 1970, when the message was made.
        unix_millis: u64,
    },
    /// The sender's memory has all records of the shared store up to a revision.
    Applied {
        /// The newest revision that it has.
        revision: i64,
    },
    /// The callers who use much of a limit at the sender, in place of the last such message.
    Usage(Vec<CallerShare>),
    /// The sender asks for other processes of an agent.
    Probe(ProbeRequest),
    /// The answer to such a question.
    Probed(ProbeAnswer),
    /// The sender's own state, in place of the last such message.
    Status(PeerStatus),
}

/// A digest of a caller's name, and of the cluster where a limit is for one. Servers compute it alike. Its `Debug` form does
/// not show it, because a reader who guesses names can check them by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallerDigest(pub [u8; 16]);

/// One caller's use of one limit at one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallerShare {
    /// The caller who holds it.
    pub caller: CallerDigest,
    /// The limit of the caller.
    pub kind: UsageKind,
    /// The number that counts against the limit.
    pub held: u32,
}

/// A limit of a caller that holds over all servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UsageKind {
    /// Requests that run, long-running ones excluded.
    Requests,
    /// Requests of any kind in the last second, refused ones included.
    Rate,
    /// Long-running requests to one cluster.
    Watches,
    /// Upgraded connections, of all clusters.
    Upgrades,
    /// Connections to the gateway by the caller's certificates.
    Connections,
    /// [`Requests`](Self::Requests), and those that were refused in the last second because too many ran.
    RequestsWanted,
}

impl fmt::Debug for CallerDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallerDigest(..)")
    }
}

impl PeerMessage {
    /// Checks a frame of another server; `None` for content that this version does not know.
    ///
    /// # Errors
    /// [`PeerMessageError`], after which the session has to be closed.
    pub fn parse(peer: Peer) -> Result<Option<Self>, PeerMessageError> {
        Ok(Some(match peer.content {
            Some(Content::Tunnels(delta)) => Self::Tunnels(delta.try_into()?),
            Some(Content::Draining(PeerDraining {})) => Self::Draining,
            Some(Content::Clock(Clock { unix_millis })) => Self::Clock { unix_millis },
            Some(Content::Applied(Applied { revision })) => Self::Applied { revision },
            Some(Content::Usage(Usage { callers })) => Self::Usage(shares(&callers)?),
            Some(Content::Probe(probe)) => Self::Probe(probe.try_into()?),
            Some(Content::Probed(probed)) => Self::Probed(probed.into()),
            Some(Content::Status(status)) => Self::Status(status.try_into()?),
            None => return Ok(None),
        }))
    }
}

impl From<PeerMessage> for Peer {
    fn from(message: PeerMessage) -> Self {
        let content = match message {
            PeerMessage::Tunnels(delta) => Content::Tunnels(delta.into()),
            PeerMessage::Draining => Content::Draining(PeerDraining {}),
            PeerMessage::Clock { unix_millis } => Content::Clock(Clock { unix_millis }),
            PeerMessage::Applied { revision } => Content::Applied(Applied { revision }),
            PeerMessage::Usage(shares) => {
                Content::Usage(Usage { callers: shares.into_iter().map(CallerUsage::from).collect() })
            }
            PeerMessage::Probe(probe) => Content::Probe(probe.into()),
            PeerMessage::Probed(answer) => Content::Probed(answer.into()),
            PeerMessage::Status(status) => Content::Status(status.into()),
        };
        Self { content: Some(content) }
    }
}

impl From<CallerShare> for CallerUsage {
    fn from(CallerShare { caller, kind, held }: CallerShare) -> Self {
        Self { caller: caller.0.to_vec(), kind: Kind::from(kind).into(), held }
    }
}

impl From<UsageKind> for Kind {
    fn from(kind: UsageKind) -> Self {
        match kind {
            UsageKind::Requests => Self::Requests,
            UsageKind::Rate => Self::Rate,
            UsageKind::Watches => Self::Watches,
            UsageKind::Upgrades => Self::Upgrades,
            UsageKind::Connections => Self::Connections,
            UsageKind::RequestsWanted => Self::RequestsWanted,
        }
    }
}

/// Callers with the limits that this version knows. A newer server may tell of others.
fn shares(callers: &[CallerUsage]) -> Result<Vec<CallerShare>, PeerMessageError> {
    if callers.len() > USAGE_CALLERS_MAX {
        return Err(PeerMessageError::Callers(callers.len()));
    }
    let mut shares = Vec::with_capacity(callers.len());
    for usage in callers {
        let digest = usage.caller.as_slice().try_into().map_err(|_| PeerMessageError::Digest)?;
        let kind = match usage.kind() {
            Kind::Requests => UsageKind::Requests,
            Kind::Rate => UsageKind::Rate,
            Kind::Watches => UsageKind::Watches,
            Kind::Upgrades => UsageKind::Upgrades,
            Kind::Connections => UsageKind::Connections,
            Kind::RequestsWanted => UsageKind::RequestsWanted,
            Kind::Unspecified => continue,
        };
        shares.push(CallerShare { caller: CallerDigest(digest), kind, held: usage.held });
    }
    Ok(shares)
}
