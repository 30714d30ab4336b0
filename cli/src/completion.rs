//! `tombolo completion`: completion scripts for shells, and candidates for kubectl.

mod candidates;

use clap_complete::{Generator, Shell};

use crate::args::{self, Program};
pub(crate) use candidates::candidates;

/// The error if no completion script was generated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompletionError {
    #[error("the completion script could not be generated")]
    Generate(#[source] std::io::Error),
    #[error("the generated completion script is not text")]
    NotText(#[source] std::string::FromUtf8Error),
}

/// Generates the script with which `shell` completes this command.
pub(crate) fn script(shell: Shell, program: Program) -> Result<String, CompletionError> {
    let mut command = args::command(program);
    command.set_bin_name(program.file_name());
    command.build();
    let mut script = Vec::new();
    // Not `clap_complete::generate`, which panics if writing fails.
    shell.try_generate(&command, &mut script).map_err(CompletionError::Generate)?;
    String::from_utf8(script).map_err(CompletionError::NotText)
}
