//! `tombolo ca intermediate`: makes an intermediate CA, so that the root can stay offline.

use std::path::Path;
use std::time::SystemTime;

use trust::sealed::{self, LoadError, SealingKey, SealingKeyError};
use trust::{Intermediate, MakeError};

use super::metadata::{self, MetadataError};
use super::paths;
use super::root::{self, RootError};
use crate::args::CaIntermediate;
use crate::files::{self, Existing, NewFile, WriteError};

/// The error if no intermediate was made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IntermediateError {
    #[error(transparent)]
    Record(#[from] MetadataError),
    #[error(transparent)]
    Root(#[from] RootError),
    #[error("the intermediate could not be made")]
    Make(#[from] MakeError),
    #[error("the intermediate could not be sealed")]
    Seal,
    #[error(transparent)]
    SealingKey(#[from] SealingKeyError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Makes a new intermediate for a role, and describes the files that it wrote.
pub(crate) fn intermediate(args: &CaIntermediate) -> Result<Vec<String>, IntermediateError> {
    let directory = &args.dir;
    let domain = metadata::trust_domain(directory)?;
    let root = root::load(directory, args.role, domain)?;
    let made = root.intermediate(SystemTime::now())?;
    let key_path = args.sealing_key.clone().unwrap_or_else(|| paths::sealing_key(directory));
    let (sealing, mut files) = sealing_key(&key_path)?;
    let path = args.out.clone().unwrap_or_else(|| paths::intermediate(directory, args.role));
    let text = sealed_text(&made, &sealing)?;
    files.push(NewFile::private(path.clone(), text));
    let existing = if args.force { Existing::Replace } else { Existing::Keep };
    files::write_all(files, existing)?;
    Ok(vec![
        format!(
            "wrote {} (ends {}; opened by {})",
            path.display(),
            made.not_after().date(),
            key_path.display()
        ),
        format!(
            "next: certificates of the previous intermediate stay valid; move {} offline again",
            paths::root_key(directory, args.role).display()
        ),
    ])
}

/// The contents of a `.sealed` file: the intermediate, encrypted with the sealing key.
pub(super) fn sealed_text(made: &Intermediate, sealing: &SealingKey) -> Result<String, IntermediateError> {
    sealed::seal(made, sealing).ok_or(IntermediateError::Seal)
}

/// The sealing key at `path`, or a new key with the file that is to be written there.
pub(super) fn sealing_key(path: &Path) -> Result<(SealingKey, Vec<NewFile>), IntermediateError> {
    if path.symlink_metadata().is_ok() {
        return Ok((sealed::load_key(path)?, Vec::new()));
    }
    let key = SealingKey::generate()?;
    let file = NewFile::private(path.to_owned(), key.to_text());
    Ok((key, vec![file]))
}
