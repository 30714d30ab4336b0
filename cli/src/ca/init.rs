//! `tombolo ca init`: makes the five root CAs, and an intermediate CA for each unless --roots-only is set.
//!
//! To an authority that an earlier version made it adds the root of the role peer.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use proto::spiffe::TRUST_DOMAIN_DEFAULT;
use trust::names::TrustDomain;
use trust::sealed::{SealingKey, SealingKeyError};
use trust::{MakeError, Role, Root};

use super::bundle::{self, BundleFileError};
use super::intermediate::{IntermediateError, sealed_text, sealing_key};
use super::metadata::{self, MetadataError};
use super::paths;
use super::root::{self, RootError};
use crate::args::CaInit;
use crate::files::{self, Existing, NewFile, ReadError, WriteError};
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
    #[error(
        "{directory} holds {found} but no {missing}, so an earlier `tombolo ca init` did not finish; remove {found}, or restore {missing} from a backup"
    )]
    UnfinishedPeer { directory: PathBuf, found: String, missing: String },
    #[error(
        "{directory} is the authority of the trust domain {present}, not of {asked}; leave --trust-domain out, or name another directory"
    )]
    OtherDomain { directory: PathBuf, present: TrustDomain, asked: TrustDomain },
    #[error(
        "the root of the role peer needs a new trust bundle, which the root of servers signs; bring its files back into {0} for this command"
    )]
    Signer(PathBuf, #[source] RootError),
    #[error(transparent)]
    Record(#[from] MetadataError),
    #[error(transparent)]
    Read(#[from] ReadError),
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

/// Makes the certificate authority in its directory, or adds the root of the role peer to the one that is there. Describes the files
/// that it wrote.
pub(crate) fn init(args: &CaInit) -> Result<Vec<String>, InitError> {
    let directory = &args.dir;
    let found = files_of_an_authority(directory);
    if metadata::path(directory).symlink_metadata().is_ok() {
        return add_peer_root(args, found);
    }
    if !found.is_empty() {
        return Err(InitError::Unfinished { directory: directory.to_owned(), found: found.join(", ") });
    }
    files::create_private_directory(directory)?;
    check_private(directory)?;
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

/// Adds the root of the role peer, its intermediate and a new trust bundle to an authority that has none. All other roots stay as
/// they are.
fn add_peer_root(args: &CaInit, mut found: Vec<String>) -> Result<Vec<String>, InitError> {
    const ROLE: Role = Role::Peer;
    let directory = &args.dir;
    let [certificate, key] = [paths::root_certificate(directory, ROLE), paths::root_key(directory, ROLE)];
    let sealed = paths::intermediate(directory, ROLE);
    let [has_certificate, has_key, has_sealed] =
        [&certificate, &key, &sealed].map(|path| path.symlink_metadata().is_ok());
    if has_key && !has_certificate {
        let directory = directory.to_owned();
        let [found, missing] = [&key, &certificate].map(|path| file_name(path));
        return Err(InitError::UnfinishedPeer { directory, found, missing });
    }
    if has_certificate || has_sealed || is_in_bundle(directory, ROLE)? {
        found.push("ca.yaml".to_owned());
        return Err(InitError::AlreadyThere { directory: directory.to_owned(), found: found.join(", ") });
    }
    check_private(directory)?;
    let domain = metadata::trust_domain(directory)?;
    if args.trust_domain != domain && args.trust_domain.as_str() != TRUST_DOMAIN_DEFAULT {
        let (directory, asked) = (directory.to_owned(), args.trust_domain.clone());
        return Err(InitError::OtherDomain { directory, present: domain, asked });
    }
    let signers = root::load_bundle_signers(directory, domain.clone())
        .map_err(|error| InitError::Signer(directory.to_owned(), error))?;
    let now = SystemTime::now();
    let made = Root::generate(ROLE, domain.clone(), now).map_err(|error| InitError::Root(ROLE, error))?;
    let mut files = vec![
        NewFile::private(key, made.key().serialize_pem()),
        NewFile::public(certificate, pem::encode_certificate(made.certificate())),
    ];
    if !args.roots_only {
        let (sealing, new) = sealing_key(&paths::sealing_key(directory))?;
        files.extend(new);
        let intermediate = made.intermediate(now).map_err(|error| InitError::Intermediate(ROLE, error))?;
        files.push(NewFile::private(sealed, sealed_text(&intermediate, &sealing)?));
    }
    let bundle =
        bundle::next_with(directory, domain, (ROLE, std::slice::from_ref(made.certificate())), &signers)?;
    // Written last: until then the present bundle stays valid.
    files.push(NewFile::public(paths::bundle(directory), bundle));
    let mut lines: Vec<_> = files.iter().map(|file| format!("wrote {}", file.path.display())).collect();
    // Only the bundle is there already.
    files::write_all(files, Existing::Replace)?;
    let shown = directory.display();
    lines.push(format!(
        "next: give servers the new trust.bundle, move {shown}/{ROLE}-ca.key offline, and issue certificates with `tombolo ca issue \
         {ROLE} --dir {shown} --id SERVER-ID`"
    ));
    Ok(lines)
}

/// The names of an authority's files that are in the directory, without ca.yaml.
fn files_of_an_authority(directory: &Path) -> Vec<String> {
    Role::ALL
        .into_iter()
        .flat_map(|role| {
            let root = [paths::root_certificate(directory, role), paths::root_key(directory, role)];
            root.into_iter().chain([paths::intermediate(directory, role)])
        })
        .chain([paths::sealing_key(directory), paths::bundle(directory)])
        .filter(|path| path.symlink_metadata().is_ok())
        .map(|path| file_name(&path))
        .collect()
}

/// Tells whether the trust bundle has a root of this role. Its files may be offline.
fn is_in_bundle(directory: &Path, role: Role) -> Result<bool, ReadError> {
    let path = paths::bundle(directory);
    if path.symlink_metadata().is_err() {
        return Ok(false);
    }
    Ok(bundle::read(&path)?.is_some_and(|bundle| !bundle.roots(role).is_empty()))
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Checks that only its owner can enter a directory.
fn check_private(directory: &Path) -> Result<(), InitError> {
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
