//! The policy file, which is read at the start and reloaded whenever it may have changed.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use daemon::config::{self, LoadError};
use daemon::{Failure, FileWatch, error_chain};
use policy::{Document, DocumentError, KIND, Rules};
use proto::peering::FileDigest;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use super::Policy;
use crate::config::file_digest;
use crate::metrics;

/// The reason why a policy file was not taken.
#[derive(Debug, thiserror::Error)]
pub enum PolicyFileError {
    /// There is no file at the configured path.
    #[error("there is no policy {}, create it or name another file in policy.file", .0.display())]
    Missing(PathBuf),
    /// The file cannot be read, or it is not a document of the expected kind.
    #[error(transparent)]
    Load(LoadError),
    /// A rule in the file is not valid.
    #[error("{}:{fault}", path.display())]
    Rule {
        /// The path of the policy file.
        path: PathBuf,
        /// The fault in the rule, and its position.
        fault: DocumentError,
    },
}

/// The text of the file, or the text of the error if it could not be read.
type FileContents = Result<String, String>;

/// A policy file, and its contents when it was last read.
#[derive(Debug)]
pub(crate) struct PolicyFile {
    path: PathBuf,
    found: FileContents,
    /// The digest of the text whose rules are in force.
    in_force: watch::Sender<FileDigest>,
}

impl PolicyFile {
    /// Reads the file at `path`. Blocks.
    ///
    /// # Errors
    ///
    /// [`PolicyFileError`], which names the file and, for an invalid rule, line, column and key.
    pub(crate) fn open(path: PathBuf) -> Result<(Self, Rules), PolicyFileError> {
        let text = read(&path)?;
        let rules = rules(&text, &path)?;
        let in_force = watch::Sender::new(file_digest(text.as_bytes()));
        Ok((Self { path, found: Ok(text), in_force }, rules))
    }

    /// The digest of the file as it was when its rules were put in force.
    pub(crate) fn digest(&self) -> watch::Receiver<FileDigest> {
        self.in_force.subscribe()
    }

    /// Puts the file's policy in force whenever the file has changed and is valid. Otherwise the last valid
    /// policy stays in force.
    pub(crate) async fn follow(mut self, policy: Policy) {
        let mut watch = FileWatch::new(&self.path);
        loop {
            watch.changed().await;
            let Ok((this, rules)) = spawn_blocking(move || self.reread()).await else {
                return; // The process ends.
            };
            self = this;
            match rules {
                None => {}
                Some(Ok(rules)) => {
                    let count = rules.count();
                    let generation = policy.replace(rules);
                    self.note_in_force();
                    metrics::policy_in_force(generation, SystemTime::now());
                    info!(file = %self.path.display(), generation, rules = count, "another policy is in force");
                }
                Some(Err(error)) => {
                    metrics::policy_refused();
                    let generation = policy.snapshot().generation();
                    warn!(error = %error_chain(&error), generation, "the policy was not taken, the last good one stays in force");
                }
            }
        }
    }

    /// Notes the digest of what was found last, whose rules are in force now.
    fn note_in_force(&self) {
        if let Ok(text) = &self.found {
            self.in_force.send_replace(file_digest(text.as_bytes()));
        }
    }

    /// Reads the file again. Returns its rules if the contents have changed. Blocks.
    fn reread(mut self) -> (Self, Option<Result<Rules, PolicyFileError>>) {
        let text = read(&self.path);
        let found = text.as_ref().map(String::clone).map_err(|error| error_chain(error).to_string());
        if found == self.found {
            return (self, None);
        }
        self.found = found;
        let rules = text.and_then(|text| rules(&text, &self.path));
        (self, Some(rules))
    }
}

fn read(path: &Path) -> Result<String, PolicyFileError> {
    config::read(path).map_err(|error| match error {
        LoadError::Missing(path) => PolicyFileError::Missing(path),
        error @ (LoadError::Unreadable { .. }
        | LoadError::TooLarge(_)
        | LoadError::NoServerId { .. }
        | LoadError::MissingHead { .. }
        | LoadError::WrongHead { .. }
        | LoadError::Invalid { .. }) => PolicyFileError::Load(error),
    })
}

fn rules(text: &str, path: &Path) -> Result<Rules, PolicyFileError> {
    let document: Document = config::parse(text, path, KIND).map_err(PolicyFileError::Load)?;
    Rules::from_document(&document).map_err(|fault| PolicyFileError::Rule { path: path.to_owned(), fault })
}

impl From<PolicyFileError> for Failure {
    fn from(error: PolicyFileError) -> Self {
        Self::misconfigured(error)
    }
}

#[cfg(test)]
mod tests;
