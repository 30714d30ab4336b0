//! `tombolo ca rotate`: exchanges a root without touching whoever trusts the old one.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;
use trust::names::TrustDomain;
use trust::sealed::{self, LoadError};
use trust::{MakeError, Role, Root};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::bundle::{self, BundleFault};
use super::intermediate::{IntermediateError, sealed_text};
use super::place;
use super::record::{self, RecordError};
use super::root::{self, RootError};
use crate::args::CaRotate;
use crate::files::{self, Audience, Existing, WriteError};
use crate::pem::{self, PemError};

/// Both roots of servers are trusted for so long: within the grace of renewal, where nobody says otherwise, whoever was off
/// comes back, and learns the new one then.
const OVERLAP_DAYS_MIN: u64 = 90;

/// Why a root was not exchanged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RotateError {
    #[error(
        "the exchange of the {0} root has begun already; end it with --finish when everybody has the new one"
    )]
    UnderWay(Role),
    #[error("no exchange of the {0} root has begun; begin it without --finish")]
    NotUnderWay(Role),
    #[error(
        "this exchange began less than {OVERLAP_DAYS_MIN} days ago, and agents that were off since then know the old root alone: \
         wait, or end it with --finish --early where every agent has been connected since, or may renew for a shorter time"
    )]
    Early,
    #[error("the {0} root could not be made")]
    Make(Role, #[source] MakeError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Root(#[from] RootError),
    #[error(transparent)]
    Pem(#[from] PemError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Intermediate(#[from] IntermediateError),
    #[error(transparent)]
    Bundle(#[from] BundleFault),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// What stands in the authority's directory when a step is done, in the order of writing: keys first.
type Files = Vec<(PathBuf, Vec<u8>, Audience)>;

/// Begins the exchange of a root, or ends it.
pub(crate) fn rotate(order: &CaRotate) -> Result<Vec<String>, RotateError> {
    let (directory, role) = (&order.dir, order.role);
    let domain = record::trust_domain(directory)?;
    let known = pem::certificates(&place::root_certificate(directory, role))?.ders;
    match (known.len() > 1, order.finish) {
        (false, false) => begin(directory, role, domain),
        (true, true) if !order.early && is_early(role, &known, SystemTime::now()) => Err(RotateError::Early),
        (true, true) => finish(directory, role, domain),
        (true, false) => Err(RotateError::UnderWay(role)),
        (false, true) => Err(RotateError::NotUnderWay(role)),
    }
}

/// A new root beside the old one, and an intermediate for which both vouch.
fn begin(directory: &Path, role: Role, domain: TrustDomain) -> Result<Vec<String>, RotateError> {
    let now = SystemTime::now();
    let old = root::load(directory, role, domain.clone())?;
    let new = Root::generate(role, domain.clone(), now).map_err(|error| RotateError::Make(role, error))?;
    let mut made = new.intermediate(now).map_err(|error| RotateError::Make(role, error))?;
    old.vouch_for(&mut made, now).map_err(|error| RotateError::Make(role, error))?;
    let sealing = sealed::load_key(&place::sealing_key(directory))?;
    let certificates = [new.certificate().clone(), old.certificate().clone()];

    let bundle = match role {
        // The old one vouches for the new one; the new one signs for those who come later.
        Role::Server => bundle(directory, domain, role, &certificates, &[&old, &new])?,
        Role::Agent | Role::Caller | Role::Admin => {
            let servers = root::load(directory, Role::Server, domain.clone())?;
            bundle(directory, domain, role, &certificates, &[&servers])?
        }
    };
    let files: Files = vec![
        (place::old_root_key(directory, role), old.key().serialize_pem().into_bytes(), Audience::Owner),
        (place::root_key(directory, role), new.key().serialize_pem().into_bytes(), Audience::Owner),
        (place::root_certificate(directory, role), text(&certificates), Audience::Everyone),
        (place::intermediate(directory, role), sealed_text(&made, &sealing)?.into_bytes(), Audience::Owner),
        (place::bundle(directory), bundle, Audience::Everyone),
    ];
    write(&files)?;
    let mut lines = told(&files);
    lines.push(match role {
        Role::Server => format!(
            "next: issue servers' certificates anew (--force), and name {} as trust.bundleFile in server.yaml; when every \
             agent has been connected since, at the earliest after the longest time that one may be off: \
             `tombolo ca rotate --role server --finish`",
            place::bundle(directory).display()
        ),
        Role::Agent | Role::Caller | Role::Admin => format!(
            "next: give {} to {}; when all certificates of the old root have been replaced: `tombolo ca rotate --role \
             {role} --finish`",
            place::root_certificate(directory, role).display(),
            place::of_root(role)
        ),
    });
    Ok(lines)
}

/// Whether somebody may still come who trusts the old root alone. Others than agents are given roots by hand.
fn is_early(role: Role, roots: &[CertificateDer<'_>], now: SystemTime) -> bool {
    // The first is the new one; one that cannot be read is said to be so when it is loaded.
    let began = roots.first().and_then(|root| X509Certificate::from_der(root).ok());
    let began = began.map(|(_, root)| SystemTime::from(root.validity().not_before.to_datetime()));
    let overlap = Duration::from_secs(OVERLAP_DAYS_MIN * 24 * 60 * 60);
    role == Role::Server && began.is_some_and(|began| now < began + overlap)
}

/// The new root alone.
fn finish(directory: &Path, role: Role, domain: TrustDomain) -> Result<Vec<String>, RotateError> {
    let new = root::load(directory, role, domain.clone())?;
    let made = new.intermediate(SystemTime::now()).map_err(|error| RotateError::Make(role, error))?;
    let sealing = sealed::load_key(&place::sealing_key(directory))?;
    let certificates = [new.certificate().clone()];
    let servers = root::load(directory, Role::Server, domain.clone())?;
    let bundle = bundle(directory, domain, role, &certificates, &[&servers])?;
    let files: Files = vec![
        (place::root_certificate(directory, role), text(&certificates), Audience::Everyone),
        (place::intermediate(directory, role), sealed_text(&made, &sealing)?.into_bytes(), Audience::Owner),
        (place::bundle(directory), bundle, Audience::Everyone),
    ];
    write(&files)?;
    let mut lines = told(&files);
    lines.push(format!("next: destroy {}", place::old_root_key(directory, role).display()));
    Ok(lines)
}

/// The next bundle, in which these are the roots of `role`, and all others' roots as they are.
fn bundle(
    directory: &Path,
    domain: TrustDomain,
    role: Role,
    certificates: &[CertificateDer<'static>],
    by: &[&Root],
) -> Result<Vec<u8>, RotateError> {
    let mut roots = Vec::new();
    for other in Role::ALL {
        let of_role = if other == role {
            certificates.to_vec()
        } else {
            pem::certificates(&place::root_certificate(directory, other))?.ders
        };
        roots.extend(of_role.into_iter().map(|root| (other, root)));
    }
    Ok(bundle::next(directory, domain, roots, by)?)
}

fn text(certificates: &[CertificateDer<'static>]) -> Vec<u8> {
    certificates.iter().map(pem::certificate_text).collect::<String>().into_bytes()
}

fn write(files: &Files) -> Result<(), WriteError> {
    let files = files.iter().map(|(path, bytes, audience)| (path.clone(), bytes.as_slice(), *audience));
    files::write_all(files.collect(), Existing::Replace)
}

fn told(files: &Files) -> Vec<String> {
    files.iter().map(|(path, ..)| format!("wrote {}", path.display())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_root_of_servers_is_needed_for_ninety_days_and_not_a_day_longer() {
        let domain: TrustDomain = "tombolo".parse().unwrap();
        let began = SystemTime::now();
        let (new, old) = (
            Root::generate(Role::Server, domain.clone(), began).unwrap(),
            Root::generate(Role::Server, domain, began - Duration::from_secs(400 * 24 * 60 * 60)).unwrap(),
        );
        let roots = [new.certificate().clone(), old.certificate().clone()];
        let day = |days: u64| began + Duration::from_secs(days * 24 * 60 * 60);
        assert!(is_early(Role::Server, &roots, day(0)) && is_early(Role::Server, &roots, day(89)));
        assert!(!is_early(Role::Server, &roots, day(90)));
        assert!(!is_early(Role::Caller, &roots, day(0)), "these learn of it by hand");
    }
}
