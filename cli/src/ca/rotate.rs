//! `tombolo ca rotate`: replaces a root CA. Peers that trust only the old root keep working until the rotation is finished.

use std::path::Path;
use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;
use trust::names::TrustDomain;
use trust::sealed::{self, LoadError};
use trust::{MakeError, Role, Root};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::bundle::{self, BundleFileError};
use super::intermediate::{IntermediateError, sealed_text};
use super::metadata::{self, MetadataError};
use super::paths;
use super::root::{self, RootError};
use crate::args::CaRotate;
use crate::files::{self, Existing, NewFile, WriteError};
use crate::pem::{self, PemError};

/// Days in which both server roots are trusted. Agents that were off may still renew within the default grace of as many
/// days, and learn the new root then.
const OVERLAP_DAYS_MIN: u64 = 90;

/// The error if a root was not rotated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RotateError {
    #[error(
        "the rotation of the {0} root has begun already; end it with --finish when everybody has the new root"
    )]
    UnderWay(Role),
    #[error("no rotation of the {0} root has begun; begin it without --finish")]
    NotUnderWay(Role),
    #[error(
        "this rotation began less than {OVERLAP_DAYS_MIN} days ago, and agents that were off since then trust only the old root: \
         wait, or end it with --finish --early if every agent has been connected since, or if your renewal grace is shorter"
    )]
    Early,
    #[error("the {0} root could not be made")]
    Make(Role, #[source] MakeError),
    #[error(transparent)]
    Record(#[from] MetadataError),
    #[error(transparent)]
    Root(#[from] RootError),
    #[error(transparent)]
    Pem(#[from] PemError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Intermediate(#[from] IntermediateError),
    #[error(transparent)]
    Bundle(#[from] BundleFileError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Begins the rotation of a root, or finishes it.
pub(crate) fn rotate(args: &CaRotate) -> Result<Vec<String>, RotateError> {
    let (directory, role) = (&args.dir, args.role);
    let domain = metadata::trust_domain(directory)?;
    root::check_is_there(directory, role).map_err(RootError::from)?;
    let known = pem::read_certificates(&paths::root_certificate(directory, role))?.ders;
    match (known.len() > 1, args.finish) {
        (false, false) => begin(directory, role, domain),
        (true, true) if !args.early && is_early(role, &known, SystemTime::now()) => Err(RotateError::Early),
        (true, true) => finish(directory, role, domain),
        (true, false) => Err(RotateError::UnderWay(role)),
        (false, true) => Err(RotateError::NotUnderWay(role)),
    }
}

/// Makes a new root beside the old one, and an intermediate that both roots have signed.
fn begin(directory: &Path, role: Role, domain: TrustDomain) -> Result<Vec<String>, RotateError> {
    let now = SystemTime::now();
    let old = root::load(directory, role, domain.clone())?;
    let new = Root::generate(role, domain.clone(), now).map_err(|error| RotateError::Make(role, error))?;
    let mut made = new.intermediate(now).map_err(|error| RotateError::Make(role, error))?;
    old.cross_sign(&mut made, now).map_err(|error| RotateError::Make(role, error))?;
    let sealing = sealed::load_key(&paths::sealing_key(directory))?;
    let certificates = [new.certificate().clone(), old.certificate().clone()];
    let keys = [old.key().serialize_pem(), new.key().serialize_pem()];
    let signers = match role {
        // The old root signs for agents that trust it, the new root for agents that enroll later.
        Role::Server => vec![old, new],
        Role::Agent | Role::Caller | Role::Admin | Role::Peer => {
            root::load_bundle_signers(directory, domain.clone())?
        }
    };
    let bundle = bundle::next_with(directory, domain, (role, &certificates), &signers)?;
    // Keys first, so that an interrupted write loses none.
    let [old_key, new_key] = keys;
    let files = vec![
        NewFile::private(paths::old_root_key(directory, role), old_key),
        NewFile::private(paths::root_key(directory, role), new_key),
        NewFile::public(paths::root_certificate(directory, role), encode_all(&certificates)),
        NewFile::private(paths::intermediate(directory, role), sealed_text(&made, &sealing)?),
        NewFile::public(paths::bundle(directory), bundle),
    ];
    let mut lines = summary(&files);
    files::write_all(files, Existing::Replace)?;
    lines.push(match role {
        Role::Server => format!(
            "next: issue servers' certificates anew (--force), and name {} as trust.bundleFile in server.yaml; when every \
             agent has been connected since, at the earliest after the longest time that an agent may be off: \
             `tombolo ca rotate --role server --finish`",
            paths::bundle(directory).display()
        ),
        Role::Agent | Role::Caller | Role::Admin | Role::Peer => format!(
            "next: give {} to {}; when all certificates of the old root have been replaced: `tombolo ca rotate --role \
             {role} --finish`",
            paths::root_certificate(directory, role).display(),
            paths::root_use(role)
        ),
    });
    Ok(lines)
}

/// Tells whether an agent may still come back that trusts only the old root. Only server roots are learned by agents; the others
/// are handed out by people.
fn is_early(role: Role, roots: &[CertificateDer<'_>], now: SystemTime) -> bool {
    // The first is the new root. One that cannot be parsed is reported when it is loaded.
    let began = roots.first().and_then(|root| X509Certificate::from_der(root).ok());
    let began = began.map(|(_, root)| SystemTime::from(root.validity().not_before.to_datetime()));
    let overlap = Duration::from_secs(OVERLAP_DAYS_MIN * 24 * 60 * 60);
    role == Role::Server && began.is_some_and(|began| now < began + overlap)
}

/// Drops the old root, and makes an intermediate that the new root alone has signed.
fn finish(directory: &Path, role: Role, domain: TrustDomain) -> Result<Vec<String>, RotateError> {
    let new = root::load(directory, role, domain.clone())?;
    let made = new.intermediate(SystemTime::now()).map_err(|error| RotateError::Make(role, error))?;
    let sealing = sealed::load_key(&paths::sealing_key(directory))?;
    let certificates = [new.certificate().clone()];
    let signers = match role {
        // The old root is dropped, so it signs nothing any more.
        Role::Server => vec![new],
        Role::Agent | Role::Caller | Role::Admin | Role::Peer => {
            root::load_bundle_signers(directory, domain.clone())?
        }
    };
    let bundle = bundle::next_with(directory, domain, (role, &certificates), &signers)?;
    let files = vec![
        NewFile::public(paths::root_certificate(directory, role), encode_all(&certificates)),
        NewFile::private(paths::intermediate(directory, role), sealed_text(&made, &sealing)?),
        NewFile::public(paths::bundle(directory), bundle),
    ];
    let mut lines = summary(&files);
    files::write_all(files, Existing::Replace)?;
    lines.push(format!("next: destroy {}", paths::old_root_key(directory, role).display()));
    Ok(lines)
}

fn encode_all(certificates: &[CertificateDer<'static>]) -> String {
    certificates.iter().map(pem::encode_certificate).collect()
}

fn summary(files: &[NewFile]) -> Vec<String> {
    files.iter().map(|file| format!("wrote {}", file.path.display())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_server_root_is_kept_for_ninety_days() {
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
        assert!(!is_early(Role::Caller, &roots, day(0)), "callers get the new root from people");
    }
}
