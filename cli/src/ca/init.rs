//! `tombolo ca init`: makes the four root CAs, and an intermediate CA for each unless --roots-only is set.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use trust::sealed::{SealingKey, SealingKeyError};
use trust::{MakeError, Role, Root};

use super::bundle::{self, BundleFileError};
use super::intermediate::{IntermediateError, sealed_text};
use super::{metadata, paths};
use crate::args::CaInit;
use crate::files::{self, Existing, NewFile, WriteError};
use crate::pem;

/// The error if no certificate authority was made.
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
    Bundle(#[from] BundleFileError),
    #[error("ca.yaml could not be written as YAML")]
    Metadata(#[source] serde_saphyr::SerializeError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Makes the certificate authority in its directory, and describes the files that it wrote.
pub(crate) fn init(args: &CaInit) -> Result<Vec<String>, InitError> {
    let directory = &args.dir;
    prepare(directory)?;
    let metadata = metadata::text(&args.trust_domain).map_err(InitError::Metadata)?;
    let now = SystemTime::now();
    let roots: Vec<Root> = Role::ALL
        .into_iter()
        .map(|role| {
            Root::generate(role, args.trust_domain.clone(), now).map_err(|error| InitError::Root(role, error))
        })
        .collect::<Result<_, _>>()?;
    let mut files = Vec::new();
    for root in &roots {
        let certificate = pem::encode_certificate(root.certificate());
        files.push(NewFile::private(paths::root_key(directory, root.role()), root.key().serialize_pem()));
        files.push(NewFile::public(paths::root_certificate(directory, root.role()), certificate));
    }
    if !args.roots_only {
        let sealing = SealingKey::generate()?;
        files.push(NewFile::private(paths::sealing_key(directory), sealing.to_text()));
        for root in &roots {
            let made = root.intermediate(now).map_err(|error| InitError::Intermediate(root.role(), error))?;
            let text = sealed_text(&made, &sealing)?;
            files.push(NewFile::private(paths::intermediate(directory, root.role()), text));
        }
    }
    let certificates = roots.iter().map(|root| (root.role(), root.certificate().clone())).collect();
    let servers: Vec<_> = roots.iter().filter(|root| root.role() == Role::Server).collect();
    let bundle = bundle::next(directory, args.trust_domain.clone(), certificates, &servers)?;
    files.push(NewFile::public(paths::bundle(directory), bundle));
    // Written last: a directory without it is known to be unfinished.
    files.push(NewFile::public(metadata::path(directory), metadata));
    files::write_all(files, Existing::Keep)?;
    Ok(summary(directory, args.roots_only))
}

/// Creates the directory, or checks that an existing one is private and holds no certificate authority.
fn prepare(directory: &Path) -> Result<(), InitError> {
    let mut found: Vec<_> = Role::ALL
        .into_iter()
        .flat_map(|role| {
            let root = [paths::root_certificate(directory, role), paths::root_key(directory, role)];
            root.into_iter().chain([paths::intermediate(directory, role)])
        })
        .chain([paths::sealing_key(directory), paths::bundle(directory)])
        .filter(|path| path.symlink_metadata().is_ok())
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .collect();
    if metadata::path(directory).symlink_metadata().is_ok() {
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

/// One line for each file that was written, with its use.
fn summary(directory: &Path, roots_only: bool) -> Vec<String> {
    let shown = directory.display();
    let mut lines: Vec<_> = Role::ALL
        .into_iter()
        .map(|role| {
            let path = paths::root_certificate(directory, role);
            format!("wrote {} (for {})", path.display(), paths::root_use(role))
        })
        .collect();
    lines
        .push(format!("wrote {shown}/trust.bundle (all roots, signed; for trust.bundleFile in server.yaml)"));
    let keys = Role::ALL.map(|role| format!("{role}-ca.key")).join(", ");
    lines.push(format!("wrote {shown}/{keys} (with them anybody can be impersonated: keep them offline)"));
    if roots_only {
        lines.push(format!("next: tombolo ca intermediate --dir {shown} --role server"));
        return lines;
    }
    let sealed = Role::ALL.map(|role| format!("{role}-intermediate.sealed")).join(", ");
    lines.push(format!("wrote {shown}/{sealed} (they issue certificates)"));
    lines.push(format!(
        "wrote {shown}/sealing.key (it decrypts them: never keep it where they are copied to)"
    ));
    lines.push(format!("next: tombolo ca issue server --dir {shown} --name HOST"));
    lines
}
