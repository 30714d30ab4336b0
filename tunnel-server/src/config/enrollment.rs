//! The section `enrollment`: the listener at which agents enroll, and the certificates that they get.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use daemon::config::{KeyError, bounded, seconds};
use serde::Deserialize;
use trust::{Intermediate, Role, Signer as _, TrustBundle, sealed};

use super::value::{NOTHING, file, is_host_and_port, required_listen_address};

/// Default lifetime of an agent's certificate: a stolen one is useless on the next day.
const LIFETIME_DEFAULT_SECONDS: u64 = 24 * 60 * 60;

/// The bounds of the lifetime: renewals need time for outages, and revocations are not kept for ever.
const LIFETIME_SECONDS_MIN: u64 = 60 * 60;
const LIFETIME_SECONDS_MAX: u64 = 7 * 24 * 60 * 60;

/// Default renewal grace: how long a site can be offline or switched off and still renew by itself.
const GRACE_DEFAULT_DAYS: u64 = 90;

/// The longest renewal grace that can be configured, in days.
pub const GRACE_DAYS_MAX: u64 = 365;

const DAY_SECONDS: u64 = 24 * 60 * 60;

/// The listener at which agents enroll.
#[derive(Debug)]
pub struct EnrollmentConfig {
    /// The TCP address to bind.
    pub listen: SocketAddr,
    /// The address by which agents reach it: `HOST:PORT`.
    pub address: String,
    /// The signer that issues their certificates.
    pub signer: Intermediate,
    /// The files from which it was read.
    pub signer_files: SignerFiles,
    /// The lifetime of a certificate; 1 h to 7 d.
    pub lifetime: Duration,
    /// The time after a certificate's end in which its key can still renew it; 1 to 365 d.
    pub grace: Duration,
}

/// The files of a signer for agents: the sealed one, and the key that opens it.
#[derive(Debug, Clone)]
pub struct SignerFiles {
    sealed: PathBuf,
    sealing_key: PathBuf,
    trust_domain: String,
}

impl SignerFiles {
    /// Reads the signer, which must be for agents of the trust domain. Blocks.
    ///
    /// # Errors
    ///
    /// [`KeyError`], which says what is wrong with the files.
    pub fn read(&self) -> Result<Intermediate, KeyError> {
        let Self { sealed, sealing_key, trust_domain } = self;
        let signer = sealed::load(sealed, sealing_key).map_err(|error| {
            let allowed = format!("a sealed signer for agents ({})", daemon::error_chain(&error));
            KeyError::new("enrollment.signerFile", sealed.display(), allowed)
        })?;
        if signer.role() != Role::Agent || signer.trust_domain().as_str() != trust_domain {
            let found = format!("one for the role {} of {}", signer.role(), signer.trust_domain());
            let allowed = format!("one for the role agent of {trust_domain}");
            return Err(KeyError::new("enrollment.signerFile", found, allowed));
        }
        Ok(signer)
    }

    /// The paths of the sealed file and of the key.
    #[must_use]
    pub fn paths(&self) -> [&Path; 2] {
        [&self.sealed, &self.sealing_key]
    }
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawEnrollment {
    /// Address and TCP port for enrollment.
    #[cfg_attr(test, schemars(required))]
    listen: Option<String>,
    /// `HOST:PORT` at which agents reach this listener.
    #[cfg_attr(test, schemars(required))]
    address: Option<String>,
    /// The sealed intermediate that issues certificates of agents (`agent-intermediate.sealed`).
    #[cfg_attr(test, schemars(required))]
    signer_file: Option<PathBuf>,
    /// The key that opens the sealed intermediate. Keep it apart from the other.
    #[cfg_attr(test, schemars(required))]
    sealing_key_file: Option<PathBuf>,
    /// Lifetime of an agent's certificate. The agent renews it by itself.
    #[cfg_attr(test, schemars(range(min = LIFETIME_SECONDS_MIN, max = LIFETIME_SECONDS_MAX), extend("default" = LIFETIME_DEFAULT_SECONDS)))]
    certificate_lifetime_seconds: Option<u64>,
    /// Time after a certificate's end in which its key can still renew it, for a site that was off.
    #[cfg_attr(test, schemars(range(min = 1, max = GRACE_DAYS_MAX), extend("default" = GRACE_DEFAULT_DAYS)))]
    renewal_grace_days: Option<u64>,
}

pub(super) fn enrollment(
    raw: Option<RawEnrollment>,
    trust_domain: &str,
    trust_bundle: &[u8],
    directory: &Path,
) -> Result<Option<EnrollmentConfig>, KeyError> {
    let Some(raw) = raw else { return Ok(None) };
    let RawEnrollment {
        listen,
        address,
        signer_file,
        sealing_key_file,
        certificate_lifetime_seconds,
        renewal_grace_days,
    } = raw;
    let listen = required_listen_address("enrollment.listen", listen)?;
    let allowed = "HOST:PORT, by which agents reach enrollment.listen";
    let address = address.ok_or_else(|| KeyError::new("enrollment.address", NOTHING, allowed))?;
    if !is_host_and_port(&address) {
        return Err(KeyError::new("enrollment.address", address, allowed));
    }
    let signer_files = SignerFiles {
        sealed: file("enrollment.signerFile", signer_file, directory)?,
        sealing_key: file("enrollment.sealingKeyFile", sealing_key_file, directory)?,
        trust_domain: trust_domain.to_owned(),
    };
    let signer = signer_files.read()?;
    let allowed = "the bundle that `tombolo ca init` writes, for agents to know servers by";
    TrustBundle::decode_unverified(trust_bundle)
        .map_err(|_| KeyError::new("trust.bundleFile", NOTHING, allowed))?;
    let lifetime = certificate_lifetime_seconds.unwrap_or(LIFETIME_DEFAULT_SECONDS);
    let grace = renewal_grace_days.unwrap_or(GRACE_DEFAULT_DAYS);
    let grace = bounded("enrollment.renewalGraceDays", grace, 1..=GRACE_DAYS_MAX)?;
    Ok(Some(EnrollmentConfig {
        listen,
        address,
        signer,
        signer_files,
        lifetime: seconds(
            "enrollment.certificateLifetimeSeconds",
            lifetime,
            LIFETIME_SECONDS_MIN..=LIFETIME_SECONDS_MAX,
        )?,
        grace: Duration::from_secs(grace * DAY_SECONDS),
    }))
}
