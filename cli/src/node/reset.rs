//! `tombolo node reset`: takes back exactly what `tombolo node join` did.

use super::join::{NodeJoinError, is_this_machine, systemctl};
use super::journal::{self, Journal, Step};
use crate::args::NodeReset;

/// Takes every step back, the last one first. Returns a line for each.
pub(crate) fn reset(args: &NodeReset) -> Result<Vec<String>, NodeJoinError> {
    let mut journal = Journal::open(&args.root)?;
    if journal.steps().is_empty() {
        return Ok(vec!["nothing to take back: no join was begun here".to_owned()]);
    }
    let mut lines = Vec::new();
    let mut had_unit = false;
    while let Some(step) = journal.steps().last().cloned() {
        match &step {
            Step::Unit { name } if is_this_machine(&args.root) => {
                systemctl(&["disable", "--now", name])?;
                had_unit = true;
                lines.push(format!("stopped {name}"));
            }
            // The units of an image do not run.
            Step::Unit { .. } => {}
            Step::Folder { path } | Step::File { path } | Step::State { path } => {
                journal::undo(&step)?;
                lines.push(format!("removed {}", path.display()));
            }
        }
        journal.forget_last()?;
    }
    if had_unit {
        systemctl(&["daemon-reload"])?;
    }
    Ok(lines)
}
