//! `tombolo server backup`: a copy of a running server's records, in a file.

use crate::admin::{Admin, AdminError};
use crate::args::ServerBackup;
use crate::files::{self, Existing, NewFile, WriteError};
use crate::runtime::{self, RuntimeError};

/// The error if no backup was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackupError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Writes the backup, completely or not at all.
pub(crate) fn take(args: &ServerBackup) -> Result<Vec<String>, BackupError> {
    let ServerBackup { out, force, server } = args;
    let existing = if *force { Existing::Replace } else { Existing::Keep };
    // Before the server is asked, which would note a copy in its audit log.
    files::check_absent(out, existing)?;
    let bytes = runtime::run(async |scope| Admin::connect(server.endpoint(), scope).await?.backup().await)??;
    let count = bytes.len();
    files::write_all(vec![NewFile::private(out.clone(), bytes)], existing)?;
    Ok(vec![
        format!("{} has the records of the server ({count} bytes)", out.display()),
        "the audit log and its keys are not in it; copy them from the state directory".to_owned(),
        format!("to restore it where no server runs: tombolo server restore {}", out.display()),
    ])
}
