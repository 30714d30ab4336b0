//! `tombolo server export`: the records of a running server, in a file or at standard output.

use std::io::{self, IsTerminal as _};
use std::path::Path;

use records::export::{ExportReader, NotAnExport, Summary};

use crate::admin::{Admin, AdminError};
use crate::args::ServerExport;
use crate::files::{self, Existing, StagedFile, WriteError};
use crate::print;
use crate::runtime::{self, RuntimeError};

/// The argument that stands for standard output, and for standard input of the import.
pub(crate) const STANDARD_STREAM: &str = "-";

/// The error if no export was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExportError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("the server has not sent a complete export; try again")]
    NotAnExport(#[from] NotAnExport),
    #[error(
        "an export is no text for a terminal: redirect it, as in `tombolo server export --out - > records.jsonl`"
    )]
    Terminal,
    #[error("the export was not written completely to standard output; do not use it")]
    Output(#[source] io::Error),
}

/// The place where an export is written to, piece by piece.
enum Sink {
    File(StagedFile),
    StandardOutput,
}

/// Writes the export, and returns lines about it. A file is written completely or not at all.
pub(crate) fn write(args: &ServerExport) -> Result<Vec<String>, ExportError> {
    if args.out == Path::new(STANDARD_STREAM) {
        return to_standard_output(args, io::stdout().is_terminal());
    }
    let ServerExport { out, force, server: _ } = args;
    let existing = if *force { Existing::Replace } else { Existing::Keep };
    // Before the server is asked, which would note an export in its audit log.
    files::check_absent(out, existing)?;
    let (Summary { records, sha256 }, sink) = receive(args, Sink::File(StagedFile::begin(out.clone())?))?;
    if let Sink::File(file) = sink {
        file.complete(existing)?;
    }
    Ok(vec![
        format!("{} has {records} records (sha256 {sha256})", out.display()),
        "the audit log and its keys are not in it; copy them from the state directory".to_owned(),
        format!("to put it into an empty store: tombolo server import {}", out.display()),
    ])
}

/// A reader that stops is an error, because its export is not complete.
fn to_standard_output(args: &ServerExport, is_terminal: bool) -> Result<Vec<String>, ExportError> {
    if is_terminal {
        return Err(ExportError::Terminal);
    }
    let (Summary { records, sha256 }, _) = receive(args, Sink::StandardOutput)?;
    print::note(&format!("{records} records were written (sha256 {sha256})")).map_err(ExportError::Output)?;
    Ok(Vec::new())
}

/// Writes an export to `sink` while it comes, and checks that it is complete.
fn receive(args: &ServerExport, mut sink: Sink) -> Result<(Summary, Sink), ExportError> {
    runtime::run(async |scope| {
        let mut pieces = Admin::connect(args.server.endpoint(), scope).await?.export().await?;
        let mut reader = ExportReader::default();
        while let Some(piece) = pieces.next().await? {
            reader.read(&piece, |_, _| Ok::<_, NotAnExport>(()))?;
            match &mut sink {
                Sink::File(file) => file.write(&piece)?,
                Sink::StandardOutput => print::bytes(&piece).map_err(ExportError::Output)?,
            }
        }
        let (_, summary) = reader.end()?;
        Ok((summary, sink))
    })?
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches as _};

    use super::*;

    #[test]
    fn an_export_is_not_written_to_a_terminal() {
        let command = ServerExport::augment_args(clap::Command::new("export"));
        let matches =
            command.try_get_matches_from(["export", "--out", "-", "--socket", "none.sock"]).unwrap();
        let args = ServerExport::from_arg_matches(&matches).unwrap();

        assert!(matches!(to_standard_output(&args, true), Err(ExportError::Terminal)));
        assert!(matches!(to_standard_output(&args, false), Err(ExportError::Admin(_))));
    }
}
