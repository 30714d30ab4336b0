//! Whether a newer certificate takes a tunnel over, and until when a tunnel lasts.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use proto::spiffe::AgentId;
use proto::wire::Extension;
use trust::Serial;
use trust::proof::{EXPORTER_BYTES, Proof, Purpose};

use crate::directory::{AgentCredential, Directory};

/// So long after its certificate has ended a tunnel that was not extended is closed: clocks differ, and a renewal that is late
/// by minutes should cost nothing.
pub(super) const EXPIRED_FOR: Duration = Duration::from_secs(5 * 60);

/// What a proven extension gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Extended {
    pub(super) credential: AgentCredential,
    /// When the newer certificate ends.
    pub(super) ends: SystemTime,
}

/// What an agent's certificate of this serial number gives, if its proof holds on the tunnel with this exporter.
pub(super) async fn judge(
    directory: &Directory,
    agent: &AgentId,
    exporter: Option<[u8; EXPORTER_BYTES]>,
    extension: Extension,
) -> Option<Extended> {
    let Extension { serial, proof } = extension;
    let serial = Serial::from(<[u8; 16]>::try_from(serial.as_slice()).ok()?);
    let record = directory.agent(agent).await.ok()??;
    let spki = BASE64.decode(&record.public_key).ok()?;
    let said = Proof { purpose: Purpose::Extension, exporter: &exporter?, serial, spki: &spki };
    if record.serial != serial.to_string() || !said.is_signed(&spki, &proof) {
        return None;
    }
    let credential = AgentCredential { serial: record.serial, issued: record.issued };
    Some(Extended { credential, ends: record.expires.time()? })
}

/// How long a tunnel lasts from `now` on.
pub(super) fn lasts(ends: SystemTime, now: SystemTime) -> Duration {
    (ends + EXPIRED_FOR).duration_since(now).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_lasts_five_minutes_longer_than_its_certificate() {
        let ends = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        assert_eq!(lasts(ends, ends - Duration::from_secs(60)), Duration::from_secs(360));
        assert_eq!(lasts(ends, ends + Duration::from_secs(299)), Duration::from_secs(1));
        assert_eq!(lasts(ends, ends + Duration::from_secs(3600)), Duration::ZERO);
    }
}
