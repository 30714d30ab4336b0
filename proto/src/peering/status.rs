//! The state of a server, as it tells its peers.

use std::fmt;
use std::time::Duration;

use super::PeerMessageError;
use crate::wire::{ServerStatus, server_status::Records};

/// The state of a server. It is shown, compared and measured, and no decision depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerStatus {
    /// True if its readiness probe succeeds.
    pub is_ready: bool,
    /// The freshness of its memory of the shared records.
    pub records: RecordsState,
    /// The time since which changes of the shared records may be unknown there.
    pub records_age: Duration,
    /// The digest of the policy's file whose rules are in force.
    pub policy: FileDigest,
    /// The digest of the trust bundle that it hands to agents, if it has one.
    pub trust_bundle: Option<FileDigest>,
    /// The other servers that are registered and take sessions.
    pub peers: u32,
    /// Those of them whose session with this server is open.
    pub peers_connected: u32,
}

/// The freshness of a server's memory of the shared records, in words that a receiver needs no limits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordsState {
    /// Every change of the last seconds is known, or nobody shares the records.
    Fresh,
    /// Nothing is changed any more. A state that is not known here counts as this one.
    Behind,
    /// Nothing new is served there any more.
    Stale,
}

/// A SHA-256 of a file, by which servers compare theirs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileDigest(pub [u8; 32]);

impl fmt::Display for FileDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for FileDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileDigest({self})")
    }
}

impl TryFrom<ServerStatus> for PeerStatus {
    type Error = PeerMessageError;

    fn try_from(status: ServerStatus) -> Result<Self, PeerMessageError> {
        let records = match status.records() {
            Records::Fresh => RecordsState::Fresh,
            Records::Stale => RecordsState::Stale,
            Records::Behind | Records::Unspecified => RecordsState::Behind,
        };
        let ServerStatus { ready, records_age_ms, policy_digest, trust_bundle_digest, peers, .. } = status;
        let trust_bundle = (!trust_bundle_digest.is_empty()).then_some(trust_bundle_digest);
        Ok(Self {
            is_ready: ready,
            records,
            records_age: Duration::from_millis(records_age_ms),
            policy: digest(&policy_digest)?,
            trust_bundle: trust_bundle.as_deref().map(digest).transpose()?,
            peers,
            peers_connected: status.peers_connected,
        })
    }
}

impl From<PeerStatus> for ServerStatus {
    fn from(status: PeerStatus) -> Self {
        let records = match status.records {
            RecordsState::Fresh => Records::Fresh,
            RecordsState::Behind => Records::Behind,
            RecordsState::Stale => Records::Stale,
        };
        Self {
            ready: status.is_ready,
            records: records.into(),
            records_age_ms: u64::try_from(status.records_age.as_millis()).unwrap_or(u64::MAX),
            policy_digest: status.policy.0.to_vec(),
            trust_bundle_digest: status.trust_bundle.map_or_else(Vec::new, |digest| digest.0.to_vec()),
            peers: status.peers,
            peers_connected: status.peers_connected,
        }
    }
}

fn digest(bytes: &[u8]) -> Result<FileDigest, PeerMessageError> {
    bytes.try_into().map(FileDigest).map_err(|_| PeerMessageError::FileDigest)
}
