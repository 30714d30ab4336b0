//! `tombolo ca init`: makes the three roots.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256,
};
use time::{Duration, OffsetDateTime};

use super::{BACKDATED, Role, place, record};
use crate::args::CaInit;
use crate::files::{self, Audience, Existing, WriteError};
use crate::names::TrustDomain;

/// A root outlives everything that it issues; its key can stay offline.
const ROOT_VALIDITY: Duration = Duration::days(10 * 365);
/// A root may sign leaves, and intermediates that sign leaves: so its key can go offline without being replaced.
const INTERMEDIATES_MAX: u8 = 1;

/// Why no authority was made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InitError {
    #[error(
        "{directory} already holds {found}, and roots are never overwritten; issue from it with `tombolo ca issue`, or name another directory"
    )]
    AlreadyThere { directory: PathBuf, found: String },
    #[error(
        "{directory} holds {found} but no ca.yaml, so an earlier `tombolo ca init` did not finish; remove what it left or name another directory"
    )]
    Unfinished { directory: PathBuf, found: String },
    #[error("{0} can be entered by others; run `chmod 700 {0}` or name a new directory")]
    OpenDirectory(PathBuf),
    #[error("cannot look at {0}")]
    Look(PathBuf, #[source] std::io::Error),
    #[error("the {0} root could not be made")]
    Root(&'static str, #[source] rcgen::Error),
    #[error("ca.yaml could not be written as YAML")]
    Record(#[source] serde_saphyr::SerializeError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// A root's files.
struct Root {
    role: Role,
    certificate: String,
    key: String,
}

/// Makes the roots and says what they are for.
pub(crate) fn init(order: &CaInit) -> Result<Vec<String>, InitError> {
    let directory = &order.dir;
    prepare(directory)?;
    let record = record::text(&order.trust_domain).map_err(InitError::Record)?;
    let roots: Vec<Root> = Role::ALL
        .into_iter()
        .map(|role| root(role, &order.trust_domain).map_err(|error| InitError::Root(role.name(), error)))
        .collect::<Result<_, _>>()?;

    let mut files = Vec::new();
    for root in &roots {
        files.push((root.role.root_key(directory), root.key.as_str(), Audience::Owner));
        files.push((root.role.root_certificate(directory), root.certificate.as_str(), Audience::Everyone));
    }
    // Last, so that an authority without it is known to be unfinished.
    files.push((record::path(directory), record.as_str(), Audience::Everyone));
    files::write_all(files, Existing::Keep)?;
    Ok(told(directory))
}

/// Creates the directory, or makes sure that the one which is there can take an authority.
fn prepare(directory: &Path) -> Result<(), InitError> {
    let mut found: Vec<_> = Role::ALL
        .into_iter()
        .flat_map(|role| [role.root_certificate(directory), role.root_key(directory)])
        .filter(|path| path.symlink_metadata().is_ok())
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .collect();
    if record::path(directory).symlink_metadata().is_ok() {
        found.push("ca.yaml".to_owned());
        return Err(InitError::AlreadyThere { directory: directory.to_owned(), found: found.join(", ") });
    }
    if !found.is_empty() {
        return Err(InitError::Unfinished { directory: directory.to_owned(), found: found.join(", ") });
    }
    files::create_private_directory(directory)?;
    match files::is_open_to_others(directory) {
        Ok(false) => Ok(()),
        Ok(true) => Err(InitError::OpenDirectory(directory.to_owned())),
        Err(error) => Err(InitError::Look(directory.to_owned(), error)),
    }
}

fn root(role: Role, trust_domain: &TrustDomain) -> Result<Root, rcgen::Error> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let now = OffsetDateTime::now_utc();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, trust_domain.to_string());
    params.distinguished_name.push(DnType::CommonName, format!("tombolo {} root", role.name()));
    params.not_before = now - BACKDATED;
    params.not_after = now + ROOT_VALIDITY;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(INTERMEDIATES_MAX));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(Root { role, certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
}

/// One line for each file, with who needs it.
fn told(directory: &Path) -> Vec<String> {
    let mut lines: Vec<_> = Role::ALL
        .into_iter()
        .map(|role| {
            let path = role.root_certificate(directory);
            format!("wrote {} (for {})", path.display(), place::of_root(role))
        })
        .collect();
    lines.push(format!(
        "wrote {0}/server-ca.key, agent-ca.key, caller-ca.key (whoever reads them can be anyone: keep {0} offline)",
        directory.display()
    ));
    lines.push(format!("next: tombolo ca issue server --dir {} --name HOST", directory.display()));
    lines
}
