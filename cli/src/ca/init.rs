//! `tombolo ca init`: makes the four roots, and for a trial what issues certificates below them.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use trust::sealed::{SealingKey, SealingKeyError};
use trust::{MakeError, Role, Root};

use super::bundle::{self, BundleFault};
use super::intermediate::{IntermediateError, sealed_text};
use super::{place, record};
use crate::args::CaInit;
use crate::files::{self, Audience, Existing, WriteError};
use crate::pem;

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
    Root(Role, #[source] MakeError),
    #[error("the {0} intermediate could not be made")]
    Intermediate(Role, #[source] MakeError),
    #[error(transparent)]
    Sealed(#[from] IntermediateError),
    #[error(transparent)]
    SealingKey(#[from] SealingKeyError),
    #[error(transparent)]
    Bundle(#[from] BundleFault),
    #[error("ca.yaml could not be written as YAML")]
    Record(#[source] serde_saphyr::SerializeError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Makes roots and intermediates, and says what they are for.
pub(crate) fn init(order: &CaInit) -> Result<Vec<String>, InitError> {
    let directory = &order.dir;
    prepare(directory)?;
    let record = record::text(&order.trust_domain).map_err(InitError::Record)?;
    let now = SystemTime::now();
    let roots: Vec<Root> = Role::ALL
        .into_iter()
        .map(|role| {
            Root::generate(role, order.trust_domain.clone(), now)
                .map_err(|error| InitError::Root(role, error))
        })
        .collect::<Result<_, _>>()?;
    let mut files = Vec::new();
    for root in &roots {
        let certificate = pem::certificate_text(root.certificate());
        files.push((
            place::root_key(directory, root.role()),
            root.key().serialize_pem().into_bytes(),
            Audience::Owner,
        ));
        files.push((
            place::root_certificate(directory, root.role()),
            certificate.into_bytes(),
            Audience::Everyone,
        ));
    }
    if !order.roots_only {
        let sealing = SealingKey::generate()?;
        files.push((place::sealing_key(directory), sealing.to_text().into_bytes(), Audience::Owner));
        for root in &roots {
            let made = root.intermediate(now).map_err(|error| InitError::Intermediate(root.role(), error))?;
            let text = sealed_text(&made, &sealing)?;
            files.push((place::intermediate(directory, root.role()), text.into_bytes(), Audience::Owner));
        }
    }
    let certificates = roots.iter().map(|root| (root.role(), root.certificate().clone())).collect();
    let servers: Vec<_> = roots.iter().filter(|root| root.role() == Role::Server).collect();
    let bundle = bundle::next(directory, order.trust_domain.clone(), certificates, &servers)?;
    files.push((place::bundle(directory), bundle, Audience::Everyone));
    // Last, so that an authority without it is known to be unfinished.
    files.push((record::path(directory), record.into_bytes(), Audience::Everyone));
    let files =
        files.iter().map(|(path, bytes, audience)| (path.clone(), bytes.as_slice(), *audience)).collect();
    files::write_all(files, Existing::Keep)?;
    Ok(told(directory, order.roots_only))
}

/// Creates the directory, or makes sure that the one which is there can take an authority.
fn prepare(directory: &Path) -> Result<(), InitError> {
    let mut found: Vec<_> = Role::ALL
        .into_iter()
        .flat_map(|role| {
            let root = [place::root_certificate(directory, role), place::root_key(directory, role)];
            root.into_iter().chain([place::intermediate(directory, role)])
        })
        .chain([place::sealing_key(directory), place::bundle(directory)])
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

/// One line for each file, with who needs it.
fn told(directory: &Path, roots_only: bool) -> Vec<String> {
    let shown = directory.display();
    let mut lines: Vec<_> = Role::ALL
        .into_iter()
        .map(|role| {
            let path = place::root_certificate(directory, role);
            format!("wrote {} (for {})", path.display(), place::of_root(role))
        })
        .collect();
    lines
        .push(format!("wrote {shown}/trust.bundle (all roots, signed; for trust.bundleFile in server.yaml)"));
    let keys = Role::ALL.map(|role| format!("{role}-ca.key")).join(", ");
    lines.push(format!("wrote {shown}/{keys} (whoever reads them can be anyone: keep them offline)"));
    if roots_only {
        lines.push(format!("next: tombolo ca intermediate --dir {shown} --role server"));
        return lines;
    }
    let sealed = Role::ALL.map(|role| format!("{role}-intermediate.sealed")).join(", ");
    lines.push(format!("wrote {shown}/{sealed} (they issue certificates)"));
    lines.push(format!("wrote {shown}/sealing.key (it opens them: never keep it where they are copied to)"));
    lines.push(format!("next: tombolo ca issue server --dir {shown} --name HOST"));
    lines
}
