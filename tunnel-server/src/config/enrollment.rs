//! The door at which agents enroll, as it is configured.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use daemon::config::{KeyError, bounded, seconds};
use trust::{Role, Signer as _, TrustBundle, sealed};

use super::value::{NOTHING, file, said_listen};
use super::{Enrollment, written};

/// How long an agent's certificate holds: a stolen one is of no use the day after.
const LIFETIME_DEFAULT_SECONDS: u64 = 24 * 60 * 60;

/// The bounds of it: renewals need room for outages, and revocations need not be remembered for ever.
const LIFETIME_SECONDS_MIN: u64 = 60 * 60;
const LIFETIME_SECONDS_MAX: u64 = 7 * 24 * 60 * 60;

/// How long a site may be dark or switched off, and come back untouched.
const GRACE_DEFAULT_DAYS: u64 = 90;

/// The longest that may be configured.
pub const GRACE_DAYS_MAX: u64 = 365;

const DAY_SECONDS: u64 = 24 * 60 * 60;

pub(super) fn enrollment(
    written: Option<written::Enrollment>,
    trust_domain: &str,
    trust_bundle: &[u8],
    directory: &Path,
) -> Result<Option<Enrollment>, KeyError> {
    let Some(written) = written else { return Ok(None) };
    let written::Enrollment {
        listen,
        address,
        signer_file,
        sealing_key_file,
        certificate_lifetime_seconds,
        renewal_grace_days,
    } = written;
    let listen = said_listen("enrollment.listen", listen)?;
    let allowed = "HOST:PORT, by which agents reach enrollment.listen";
    let address = address.ok_or_else(|| KeyError::new("enrollment.address", NOTHING, allowed))?;
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    if !address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && is_port(port)) {
        return Err(KeyError::new("enrollment.address", address, allowed));
    }
    let signer_path = file("enrollment.signerFile", signer_file, directory)?;
    let key = file("enrollment.sealingKeyFile", sealing_key_file, directory)?;
    let signer = sealed::load(&signer_path, &key).map_err(|error| {
        let allowed = format!("a sealed signer for agents ({})", daemon::chain(&error));
        KeyError::new("enrollment.signerFile", signer_path.display(), allowed)
    })?;
    if signer.role() != Role::Agent || signer.trust_domain().as_str() != trust_domain {
        let found = format!("one for the role {} of {}", signer.role(), signer.trust_domain());
        let allowed = format!("one for the role agent of {trust_domain}");
        return Err(KeyError::new("enrollment.signerFile", found, allowed));
    }
    let allowed = "the bundle that `tombolo ca init` writes, for agents to know servers by";
    let bundle =
        TrustBundle::look(trust_bundle).map_err(|_| KeyError::new("trust.bundleFile", NOTHING, allowed))?;
    let lifetime = certificate_lifetime_seconds.unwrap_or(LIFETIME_DEFAULT_SECONDS);
    let grace = renewal_grace_days.unwrap_or(GRACE_DEFAULT_DAYS);
    let grace = bounded("enrollment.renewalGraceDays", grace, 1..=GRACE_DAYS_MAX)?;
    Ok(Some(Enrollment {
        listen,
        address,
        signer: Arc::new(signer),
        server_roots: bundle.roots(Role::Server).to_vec(),
        lifetime: seconds(
            "enrollment.certificateLifetimeSeconds",
            lifetime,
            LIFETIME_SECONDS_MIN..=LIFETIME_SECONDS_MAX,
        )?,
        grace: Duration::from_secs(grace * DAY_SECONDS),
    }))
}
