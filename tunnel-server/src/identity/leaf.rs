//! The leaf of a verified chain whose URI names a role, with its serial number and its times.

use std::time::SystemTime;

use rustls_pki_types::CertificateDer;
use trust::BACKDATED;
use trust::identity::NotOfRole;

use super::certificate::{credential, read};
use super::credential::Credential;

/// The serial number and the times of a leaf.
pub(super) struct LeafTimes {
    /// Its serial number in lower-case hexadecimal.
    pub(super) serial: String,
    /// The time at which it was issued.
    pub(super) issued: SystemTime,
    /// The first moment at which it is no longer valid.
    pub(super) ends: SystemTime,
}

/// Reads the serial number and the times of a leaf that [`trust::identity`] has accepted.
pub(super) fn leaf_times(leaf: &CertificateDer<'_>) -> Result<LeafTimes, NotOfRole> {
    let leaf = read(leaf).ok_or(NotOfRole::Unreadable)?;
    let Credential { id, issued, expires } = credential(&leaf);
    let (Some(begins), Some(ends)) = (issued, expires) else { return Err(NotOfRole::Unreadable) };
    // Issuers backdate certificates by this span.
    Ok(LeafTimes { serial: id.to_string(), issued: begins + BACKDATED, ends })
}
