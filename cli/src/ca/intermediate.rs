//! `tombolo ca intermediate`: makes what issues certificates, so that the roots can go offline.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use trust::sealed::{self, LoadError, SealingKey, SealingKeyError};
use trust::{Intermediate, MakeError};

use super::place;
use super::record::{self, RecordError};
use super::root::{self, RootError};
use crate::args::CaIntermediate;
use crate::files::{self, Audience, Existing, WriteError};

/// Why there is no intermediate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IntermediateError {
    #[error(transparent)]
    Record(#[from] RecordError),
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

/// What is to be written.
type Files = Vec<(PathBuf, String, Audience)>;

/// Makes the intermediate of a role anew.
pub(crate) fn intermediate(order: &CaIntermediate) -> Result<Vec<String>, IntermediateError> {
    let directory = &order.dir;
    let domain = record::trust_domain(directory)?;
    let root = root::load(directory, order.role, domain)?;
    let made = root.intermediate(SystemTime::now())?;
    let key_path = order.sealing_key.clone().unwrap_or_else(|| place::sealing_key(directory));
    let (sealing, mut files) = sealing_key(&key_path)?;
    let path = order.out.clone().unwrap_or_else(|| place::intermediate(directory, order.role));
    let text = sealed_text(&made, &sealing)?;
    files.push((path.clone(), text, Audience::Owner));
    let existing = if order.force { Existing::Replace } else { Existing::Keep };
    let files = files.iter().map(|(path, text, audience)| (path.clone(), text.as_str(), *audience)).collect();
    files::write_all(files, existing)?;
    Ok(vec![
        format!(
            "wrote {} (ends {}; opened by {})",
            path.display(),
            made.not_after().date(),
            key_path.display()
        ),
        format!(
            "next: certificates that the former one issued stay valid; {} can go offline again",
            place::root_key(directory, order.role).display()
        ),
    ])
}

/// The file that holds an intermediate.
pub(super) fn sealed_text(made: &Intermediate, sealing: &SealingKey) -> Result<String, IntermediateError> {
    sealed::seal(made, sealing).ok_or(IntermediateError::Seal)
}

/// The sealing key at `path`, or a new one that is to be written there.
fn sealing_key(path: &Path) -> Result<(SealingKey, Files), IntermediateError> {
    if path.symlink_metadata().is_ok() {
        return Ok((sealed::load_key(path)?, Vec::new()));
    }
    let key = SealingKey::generate()?;
    let file = (path.to_owned(), key.to_text(), Audience::Owner);
    Ok((key, vec![file]))
}
