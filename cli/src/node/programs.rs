//! Programs of the machine that a join and a reset run.

use std::io::{self, Write as _};
use std::process::{Command, Stdio};

/// A program of the machine failed, or cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("`{command}` failed: {output}")]
pub(crate) struct ProgramError {
    command: String,
    output: String,
}

/// Runs a program to its end, and returns its output.
pub(super) fn run(program: &str, words: &[&str]) -> Result<String, ProgramError> {
    feed(program, words, "")
}

/// Runs a program with this text at its standard input.
pub(super) fn feed(program: &str, words: &[&str], text: &str) -> Result<String, ProgramError> {
    let failed = |output: String| ProgramError { command: [&[program], words].concat().join(" "), output };
    let output = || -> io::Result<_> {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(text.as_bytes())?;
        }
        child.wait_with_output()
    };
    match output() {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// Returns true if a folder of `PATH` has the program.
pub(super) fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(program).exists())
}
