//! `tombolo man`: the manual pages of all commands.

use std::io;

use clap_mangen::Man;

use crate::args::{self, ManArgs, Program};
use crate::files::{self, Existing, NewFile, WriteError};

/// The error if no pages were written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManError {
    #[error("a manual page could not be generated")]
    Generate(#[source] io::Error),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Writes a page for each command that is not hidden, such as `tombolo-ca-init.1`.
pub(crate) fn write(args: &ManArgs) -> Result<Vec<String>, ManError> {
    // `help` has no page, so that no page may refer to one.
    let mut command = args::command(Program::Tombolo).disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    render(&command, args, &mut pages)?;
    files::create_directory(&args.directory)?;
    let count = pages.len();
    files::write_all(pages, Existing::Replace)?;
    Ok(vec![format!("{} has {count} manual pages", args.directory.display())])
}

fn render(command: &clap::Command, args: &ManArgs, pages: &mut Vec<NewFile>) -> Result<(), ManError> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let mut page = Vec::new();
    Man::new(command.clone().name(name.clone())).render(&mut page).map_err(ManError::Generate)?;
    pages.push(NewFile::public(args.directory.join(format!("{name}.1")), page));
    command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .try_for_each(|command| render(command, args, pages))
}
