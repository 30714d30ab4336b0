//! `tombolo audit`: whether an audit log is as its server wrote it.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use audit::verify::{Fault, NotVerified, Report, Sources, Trust, verify};
use audit::{ChainKey, NotAKey, PublicKey};
use serde_json::{Value, json};

use crate::args::{AuditOutput, AuditVerify};
use crate::files::{self, ReadError};
use crate::print;

/// The exit code for a log that was changed.
const CHANGED: u8 = 1;

/// The exit code where nothing can be said.
const NOT_VERIFIED: u8 = 2;

/// Why nothing can be said of a log.
#[derive(Debug, thiserror::Error)]
enum VerifyError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{}", .0.display())]
    Key(PathBuf, #[source] NotAKey),
    #[error(transparent)]
    NotVerified(#[from] NotVerified),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

/// Looks at a log, and says what it found. Never fails: the exit code says what is to be thought of the log.
pub(crate) fn say(order: AuditVerify) -> ExitCode {
    let output = order.output;
    let said = match looked(order) {
        Ok(report) => print_report(&report, output).map(|()| ExitCode::SUCCESS).map_err(VerifyError::from),
        Err(VerifyError::NotVerified(NotVerified::Fault(fault))) => {
            print_fault(&fault, output).map(|()| CHANGED.into()).map_err(VerifyError::from)
        }
        Err(error) => Err(error),
    };
    said.unwrap_or_else(|error| {
        print::failure(&error);
        NOT_VERIFIED.into()
    })
}

fn looked(order: AuditVerify) -> Result<Report, VerifyError> {
    let AuditVerify { paths, key, checkpoints, public_key, output: _ } = order;
    let chain = key.map(|path| {
        let bytes = files::read_bytes(&path)?;
        ChainKey::from_bytes(&bytes).map_err(|error| VerifyError::Key(path, error))
    });
    let public = public_key.map(|path| {
        let text = files::read(&path)?;
        PublicKey::from_pem(&text).map_err(|error| VerifyError::Key(path, error))
    });
    let trust = Trust { chain: chain.transpose()?, public: public.transpose()? };
    Ok(verify(&Sources::of(&paths, checkpoints)?, &trust)?)
}

fn print_report(report: &Report, output: Option<AuditOutput>) -> io::Result<()> {
    if output == Some(AuditOutput::Json) {
        return print::lines(&[json_of(report).to_string()]);
    }
    let Report { files, lines, first, last, checkpoints, signed, is_chained, open } = report;
    let mut said =
        vec![format!("{lines} lines in {files} files, from {first} to {last}: as they were written")];
    if *is_chained {
        said.push("every line fits the code of the line before it".to_owned());
    }
    if *checkpoints > 0 {
        said.push(format!("{checkpoints} checkpoints vouch for them up to line {signed}"));
    }
    if *signed < *last && !is_chained {
        said.push(format!("nothing vouches for the {} lines behind it: name the chain's key", last - signed));
    }
    if *open > 0 {
        said.push(format!("{open} exchanges have begun and not ended: they run, or the server was killed"));
    }
    print::lines(&said)
}

fn print_fault(fault: &Fault, output: Option<AuditOutput>) -> io::Result<()> {
    match output {
        None => {
            print::failure(fault);
            Ok(())
        }
        Some(AuditOutput::Json) => {
            let said = json!({ "verified": false, "file": fault.file, "line": fault.line, "reason": fault.what.to_string() });
            print::lines(&[said.to_string()])
        }
    }
}

fn json_of(report: &Report) -> Value {
    let Report { files, lines, first, last, checkpoints, signed, is_chained, open } = report;
    json!({
        "verified": true, "files": files, "lines": lines, "first": first, "last": last,
        "checkpoints": checkpoints, "signed": signed, "chained": is_chained, "open": open,
    })
}
