//! Changes of a server's tunnels, as it tells its peers, and how they fit into frames.

use std::time::Duration;

use prost::Message as _;

use super::{DELTA_BYTES_MAX, DELTA_ENTRIES_MAX, PeerMessageError, SERIAL_DIGITS_MAX};
use crate::capabilities::Capabilities;
use crate::cluster::ClusterId;
use crate::greeting::{Advertised, BootNonce, Certificate, SOFTWARE_BYTES_MAX, advertised, printable};
use crate::spiffe::AgentId;
use crate::wire::{Endpoints, PeerTunnel, ServedCertificate, TunnelHealth, TunnelsDelta};

/// Most bytes that a message of these sizes needs beside its content: its field's number and its length.
const ENTRY_OVERHEAD_BYTES: usize = 4;

/// Most bytes of a number, as a varint.
const NUMBER_BYTES_MAX: usize = 10;

/// A change of the tunnels of one server, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolDelta {
    /// True for the first delta of a full copy. Tunnels that the whole copy does not have are gone.
    pub is_full: bool,
    /// Counts the changes of a session. The deltas of one change have the same number.
    pub revision: u64,
    /// Tunnels that are new or have changed; each replaces an earlier one of its number.
    pub added: Vec<RemoteTunnel>,
    /// The numbers of tunnels that have ended.
    pub removed: Vec<u64>,
    /// True for the last delta of a change.
    pub is_done: bool,
}

/// A tunnel between another server and an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteTunnel {
    /// Identifies the tunnel among all of that server's process.
    pub number: u64,
    /// The agent of the tunnel, as its certificate has it.
    pub agent: AgentId,
    /// The process of the agent.
    pub boot: BootNonce,
    /// The number of the tunnel among those of this process.
    pub sequence: u64,
    /// The serial number of the agent's certificate, in lower-case hexadecimal digits.
    pub serial: String,
    /// The time at which that certificate was issued, in seconds since 1970.
    pub issued: u64,
    /// The agent's description of its control plane, printable and within its limits.
    pub advertised: Advertised,
    /// True while the tunnel is live, and false while it is suspect.
    pub is_live: bool,
    /// True while that server looks for an earlier process of the agent, and does not use the tunnel yet.
    pub is_on_probation: bool,
    /// True if the tunnel takes no new streams.
    pub is_draining: bool,
    /// The shortest round trip of late between that server and the agent; at most 71 minutes.
    pub distance: Duration,
    /// Streams that carry exchanges now.
    pub streams_open: u32,
    /// The version of the agent's software as it claims, printable. Empty if it claims none, or the other server tells none.
    pub version: String,
    /// The time at which the tunnel began, in seconds since 1970; `None` if the other server does not tell it.
    pub since: Option<u64>,
    /// The abilities of the agent beyond the protocol's version.
    pub capabilities: Capabilities,
}

impl PoolDelta {
    /// Splits a change into deltas that each fit into a frame; at least one, because a full copy may be empty.
    #[must_use]
    pub fn split(is_full: bool, revision: u64, added: Vec<RemoteTunnel>, removed: Vec<u64>) -> Vec<Self> {
        let empty = Self { is_full: false, revision, added: Vec::new(), removed: Vec::new(), is_done: false };
        let mut deltas = vec![Self { is_full, ..empty.clone() }];
        let mut bytes = 0;
        let mut room_for = |deltas: &mut Vec<Self>, entry_bytes: usize| {
            let has_most = deltas.last().is_some_and(|delta| delta.entries() >= DELTA_ENTRIES_MAX);
            if has_most || bytes + entry_bytes > DELTA_BYTES_MAX {
                deltas.push(empty.clone());
                bytes = 0;
            }
            bytes += entry_bytes;
        };
        for number in removed {
            room_for(&mut deltas, NUMBER_BYTES_MAX);
            deltas.last_mut().into_iter().for_each(|delta| delta.removed.push(number));
        }
        for tunnel in added {
            let entry_bytes = PeerTunnel::from(tunnel.clone()).encoded_len() + ENTRY_OVERHEAD_BYTES;
            room_for(&mut deltas, entry_bytes);
            if let Some(delta) = deltas.last_mut() {
                delta.added.push(tunnel);
            }
        }
        deltas.last_mut().into_iter().for_each(|delta| delta.is_done = true);
        deltas
    }

    /// The number of tunnels that were added or removed.
    pub(super) fn entries(&self) -> usize {
        self.added.len() + self.removed.len()
    }
}

impl TryFrom<TunnelsDelta> for PoolDelta {
    type Error = PeerMessageError;

    fn try_from(delta: TunnelsDelta) -> Result<Self, PeerMessageError> {
        let TunnelsDelta { full, revision, added, removed, done } = delta;
        let entries = added.len() + removed.len();
        if entries > DELTA_ENTRIES_MAX {
            return Err(PeerMessageError::Entries(entries));
        }
        let added = added.into_iter().map(RemoteTunnel::try_from).collect::<Result<_, _>>()?;
        Ok(Self { is_full: full, revision, added, removed, is_done: done })
    }
}

impl From<PoolDelta> for TunnelsDelta {
    fn from(delta: PoolDelta) -> Self {
        let PoolDelta { is_full, revision, added, removed, is_done } = delta;
        let added = added.into_iter().map(PeerTunnel::from).collect();
        Self { full: is_full, revision, added, removed, done: is_done }
    }
}

impl TryFrom<PeerTunnel> for RemoteTunnel {
    type Error = PeerMessageError;

    fn try_from(tunnel: PeerTunnel) -> Result<Self, PeerMessageError> {
        let is_live = tunnel.health() == TunnelHealth::Live;
        let cluster: ClusterId = tunnel.cluster.parse()?;
        let within = || cluster.to_string();
        let agent =
            AgentId::new(cluster.clone(), &tunnel.agent).ok_or_else(|| PeerMessageError::Agent(within()))?;
        let boot =
            tunnel.boot_nonce.as_slice().try_into().map_err(|_| PeerMessageError::BootNonce(within()))?;
        if !is_serial(&tunnel.serial) {
            return Err(PeerMessageError::Serial(within()));
        }
        Ok(Self {
            number: tunnel.number,
            agent,
            boot: BootNonce(boot),
            sequence: tunnel.sequence,
            serial: tunnel.serial,
            issued: tunnel.issued,
            advertised: advertised(tunnel.endpoints.unwrap_or_default()),
            is_live,
            is_on_probation: tunnel.probation,
            is_draining: tunnel.draining,
            distance: Duration::from_micros(tunnel.distance_us.into()),
            streams_open: tunnel.streams,
            version: printable(&tunnel.version, SOFTWARE_BYTES_MAX),
            since: (tunnel.since > 0).then_some(tunnel.since),
            capabilities: Capabilities::from_words(&tunnel.capabilities),
        })
    }
}

impl From<RemoteTunnel> for PeerTunnel {
    fn from(tunnel: RemoteTunnel) -> Self {
        let health = if tunnel.is_live { TunnelHealth::Live } else { TunnelHealth::Suspect };
        let Advertised { endpoints: addresses, certificates, kubernetes_version } = tunnel.advertised;
        let served =
            |Certificate { address, names, is_cut }| ServedCertificate { address, names, cut: is_cut };
        let certificates = certificates.into_iter().map(served).collect();
        Self {
            number: tunnel.number,
            cluster: tunnel.agent.cluster().to_string(),
            agent: tunnel.agent.instance().to_owned(),
            boot_nonce: tunnel.boot.0.to_vec(),
            sequence: tunnel.sequence,
            serial: tunnel.serial,
            issued: tunnel.issued,
            endpoints: Some(Endpoints { addresses, certificates, kubernetes_version }),
            health: health.into(),
            probation: tunnel.is_on_probation,
            draining: tunnel.is_draining,
            distance_us: u32::try_from(tunnel.distance.as_micros()).unwrap_or(u32::MAX),
            streams: tunnel.streams_open,
            version: tunnel.version,
            since: tunnel.since.unwrap_or_default(),
            capabilities: tunnel.capabilities.words(),
        }
    }
}

/// Returns true for the normal form of a serial number.
fn is_serial(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (1..=SERIAL_DIGITS_MAX).contains(&text.len()) && text.bytes().all(is_digit)
}
