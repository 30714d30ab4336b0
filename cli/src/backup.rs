//! `tombolo server backup`: a copy of a running server's records, in a file or at standard output.

use std::io::{self, IsTerminal as _};
use std::path::Path;

use crate::admin::{Admin, AdminError};
use crate::args::ServerBackup;
use crate::files::{self, Existing, NewFile, WriteError};
use crate::print;
use crate::runtime::{self, RuntimeError};

/// The argument that stands for standard output, and for standard input of the restore.
pub(crate) const STANDARD_STREAM: &str = "-";

/// The error if no backup was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackupError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(
        "a backup is no text for a terminal: redirect it, as in `tombolo server backup --out - > backup.redb`"
    )]
    Terminal,
    #[error("the backup was not written completely to standard output; do not use it")]
    Output(#[source] io::Error),
}

/// Writes the backup, completely or not at all, and returns lines about it.
pub(crate) fn take(args: &ServerBackup) -> Result<Vec<String>, BackupError> {
    if args.out == Path::new(STANDARD_STREAM) {
        return to_standard_output(args, io::stdout().is_terminal());
    }
    let ServerBackup { out, force, server: _ } = args;
    let existing = if *force { Existing::Replace } else { Existing::Keep };
    // Before the server is asked, which would note a copy in its audit log.
    files::check_absent(out, existing)?;
    let bytes = copy(args)?;
    let count = bytes.len();
    files::write_all(vec![NewFile::private(out.clone(), bytes)], existing)?;
    Ok(vec![
        format!("{} has the records of the server ({count} bytes)", out.display()),
        "the audit log and its keys are not in it; copy them from the state directory".to_owned(),
        format!("to restore it where no server runs: tombolo server restore {}", out.display()),
    ])
}

/// The copy is complete before its first byte is written. A reader that stops is an error, because its copy is not complete.
fn to_standard_output(args: &ServerBackup, is_terminal: bool) -> Result<Vec<String>, BackupError> {
    if is_terminal {
        return Err(BackupError::Terminal);
    }
    let bytes = copy(args)?;
    print::bytes(&bytes).map_err(BackupError::Output)?;
    print::note(&format!("the records of the server were written ({} bytes)", bytes.len()))
        .map_err(BackupError::Output)?;
    Ok(Vec::new())
}

fn copy(args: &ServerBackup) -> Result<Vec<u8>, BackupError> {
    let copied =
        runtime::run(async |scope| Admin::connect(args.server.endpoint(), scope).await?.backup().await);
    Ok(copied??)
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches as _};

    use super::*;

    #[test]
    fn a_backup_is_not_written_to_a_terminal() {
        let command = ServerBackup::augment_args(clap::Command::new("backup"));
        let matches =
            command.try_get_matches_from(["backup", "--out", "-", "--socket", "none.sock"]).unwrap();
        let args = ServerBackup::from_arg_matches(&matches).unwrap();

        assert!(matches!(to_standard_output(&args, true), Err(BackupError::Terminal)));
        assert!(matches!(to_standard_output(&args, false), Err(BackupError::Admin(_))));
    }
}
