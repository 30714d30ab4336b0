//! The lifetime of a tunnel, which ends with its certificate unless the agent proves a newer one.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use proto::spiffe::AgentId;
use proto::wire::Extension;
use trust::Serial;
use trust::proof::{EXPORTER_BYTES, Proof, Purpose};

use crate::directory::{AgentCredential, Directory};

/// A tunnel is closed this long after its certificate has expired. Clocks differ, and a renewal that is
/// minutes late should cost nothing.
pub(super) const EXPIRY_GRACE: Duration = Duration::from_secs(5 * 60);

/// A newer certificate whose key the agent has proved to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProvenExtension {
    pub(super) credential: AgentCredential,
    /// The expiry of the newer certificate.
    pub(super) ends: SystemTime,
}

/// Verifies an agent's proof for its certificate of this serial number, on the tunnel with this exporter.
/// `None` if the proof or the certificate is not valid.
pub(super) async fn verify(
    directory: &Directory,
    agent: &AgentId,
    exporter: Option<[u8; EXPORTER_BYTES]>,
    extension: Extension,
) -> Option<ProvenExtension> {
    let Extension { serial, proof } = extension;
    let serial = Serial::from(<[u8; 16]>::try_from(serial.as_slice()).ok()?);
    let record = directory.agent(agent).await.ok()??;
    let spki = BASE64.decode(&record.public_key).ok()?;
    let claim = Proof { purpose: Purpose::Extension, exporter: &exporter?, serial, spki: &spki };
    if record.serial != serial.to_string() || !claim.is_signed(&spki, &proof) {
        return None;
    }
    let credential = AgentCredential { serial: record.serial, issued: record.issued };
    Some(ProvenExtension { credential, ends: record.expires.time()? })
}

/// The lifetime that is left of a tunnel at `now`.
pub(super) fn remaining(ends: SystemTime, now: SystemTime) -> Duration {
    (ends + EXPIRY_GRACE).duration_since(now).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_lasts_five_minutes_longer_than_its_certificate() {
        let ends = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        assert_eq!(remaining(ends, ends - Duration::from_secs(60)), Duration::from_secs(360));
        assert_eq!(remaining(ends, ends + Duration::from_secs(299)), Duration::from_secs(1));
        assert_eq!(remaining(ends, ends + Duration::from_secs(3600)), Duration::ZERO);
    }
}
