//! `tombolo audit verify`: checks whether an audit log is as its server wrote it.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use audit::verify::{Fault, Report, Sources, VerifyError, VerifyKeys, verify};
use audit::{ChainKey, NotAKey, PublicKey};
use serde_json::{Value, json};

use crate::args::{AuditOutput, AuditVerify};
use crate::files::{self, ReadError};
use crate::print;

/// The exit code for a log that was changed since it was written.
const CHANGED: u8 = 1;

/// The exit code if the log could not be verified.
const NOT_VERIFIED: u8 = 2;

/// The error if a log could not be verified.
#[derive(Debug, thiserror::Error)]
enum AuditVerifyError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{}", .0.display())]
    Key(PathBuf, #[source] NotAKey),
    #[error(transparent)]
    VerifyError(#[from] VerifyError),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

/// Verifies a log, and prints the result. The exit code tells a good log, a changed one and an unverified one apart.
pub(crate) fn verify_and_print(args: AuditVerify) -> ExitCode {
    let output = args.output;
    let printed = match verify_log(args) {
        Ok(report) => {
            print_report(&report, output).map(|()| ExitCode::SUCCESS).map_err(AuditVerifyError::from)
        }
        Err(AuditVerifyError::VerifyError(VerifyError::Fault(fault))) => {
            print_fault(&fault, output).map(|()| CHANGED.into()).map_err(AuditVerifyError::from)
        }
        Err(error) => Err(error),
    };
    printed.unwrap_or_else(|error| {
        print::failure(&error);
        NOT_VERIFIED.into()
    })
}

fn verify_log(args: AuditVerify) -> Result<Report, AuditVerifyError> {
    let AuditVerify { paths, key, checkpoints, public_key, output: _ } = args;
    let chain = key.map(|path| {
        let bytes = files::read_bytes(&path)?;
        ChainKey::from_bytes(&bytes).map_err(|error| AuditVerifyError::Key(path, error))
    });
    let public = public_key.map(|path| {
        let text = files::read(&path)?;
        PublicKey::from_pem(&text).map_err(|error| AuditVerifyError::Key(path, error))
    });
    let trust = VerifyKeys { chain: chain.transpose()?, public: public.transpose()? };
    Ok(verify(&Sources::from_paths(&paths, checkpoints)?, &trust)?)
}

fn print_report(report: &Report, output: Option<AuditOutput>) -> io::Result<()> {
    if output == Some(AuditOutput::Json) {
        return print::lines(&[report_json(report).to_string()]);
    }
    print::lines(&report_lines(report))
}

/// A report in words: what was verified, and by which file or key more would be.
fn report_lines(report: &Report) -> Vec<String> {
    let Report { files, lines, first, last, .. } = report;
    let Report { checkpoints, covered_up_to, is_signature_verified, is_chain_verified, open, .. } = report;
    let mut printed =
        vec![format!("{lines} lines in {files} files, from {first} to {last}: as they were written")];
    if *is_chain_verified {
        printed.push("every line fits the code of the line before it".to_owned());
    }
    match (*checkpoints, *is_signature_verified) {
        (0, _) => printed.push(
            "there are no checkpoints, so a cut end is not noticed: name a copy of them with --checkpoints"
                .to_owned(),
        ),
        (_, true) => {
            printed.push(format!("{checkpoints} checkpoints vouch for them up to line {covered_up_to}"));
        }
        (_, false) => printed.push(format!(
            "{checkpoints} checkpoints agree with them up to line {covered_up_to}, and their signatures were not verified: \
             name the public key with --public-key"
        )),
    }
    if *covered_up_to < *last && !is_chain_verified {
        printed.push(format!(
            "nothing vouches for the {} lines after it: name the chain's key with --key",
            last - covered_up_to
        ));
    }
    if *open > 0 {
        printed.push(format!(
            "{open} requests have begun and not ended: they are running, or the server was killed"
        ));
    }
    printed
}

fn print_fault(fault: &Fault, output: Option<AuditOutput>) -> io::Result<()> {
    match output {
        None => {
            print::failure(fault);
            Ok(())
        }
        Some(AuditOutput::Json) => {
            let object = json!({ "verified": false, "file": fault.file, "line": fault.line, "reason": fault.kind.to_string() });
            print::lines(&[object.to_string()])
        }
    }
}

fn report_json(report: &Report) -> Value {
    let Report { files, lines, first, last, .. } = report;
    let Report { checkpoints, covered_up_to, is_signature_verified, is_chain_verified, open, .. } = report;
    // A line counts as signed only if its checkpoint's signature was verified.
    let signed = if *is_signature_verified { *covered_up_to } else { 0 };
    json!({
        "verified": true, "files": files, "lines": lines, "first": first, "last": last, "checkpoints": checkpoints,
        "covered": covered_up_to, "signed": signed, "chained": is_chain_verified, "open": open,
    })
}
