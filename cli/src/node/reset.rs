//! `tombolo node reset`: takes back exactly what `tombolo node join` did.

use std::path::Path;

use super::cri::{CriError, Runtime};
use super::journal::{self, Journal, JournalError, Step};
use super::programs::ProgramError;
use super::systemd::systemctl;
use super::traces;
use crate::args::NodeReset;
use crate::runtime::{self, RuntimeError};

/// A step of the join is not taken back yet. The same command goes on with it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeResetError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("pods of this machine cannot be removed")]
    Pods(#[from] CriError),
    #[error(transparent)]
    Program(#[from] ProgramError),
}

/// Takes every step back, the last one first. Returns a line for each.
pub(crate) fn reset(args: &NodeReset) -> Result<Vec<String>, NodeResetError> {
    let mut journal = Journal::open(&args.root)?;
    if journal.steps().is_empty() {
        return Ok(vec!["nothing to take back: no join was begun here".to_owned()]);
    }
    // Nothing of an image runs.
    let runs = args.root == Path::new("/");
    let mut lines = Vec::new();
    let mut had_unit = false;
    while let Some(step) = journal.steps().last().cloned() {
        match &step {
            Step::Unit { name } if runs => {
                systemctl(&["disable", "--now", name])?;
                had_unit = true;
                lines.push(format!("stopped {name}"));
            }
            Step::Pods { socket } if runs => {
                let removed =
                    runtime::run(async |scope| Runtime::connect(socket, scope).await?.remove_pods().await)??;
                traces::unmount_volumes(&args.root)?;
                lines.push(format!("removed {removed} pods"));
            }
            Step::Rules if runs => {
                traces::remove_rules()?;
                lines.push("removed the rules of kubelet and kube-proxy".to_owned());
            }
            Step::Unit { .. } | Step::Pods { .. } | Step::Rules => {}
            Step::Folder { path } | Step::File { path } | Step::State { path } | Step::Contents { path } => {
                let was_there = path.exists();
                journal::undo(&step)?;
                if was_there {
                    lines.push(format!("removed {}", path.display()));
                }
            }
        }
        journal.forget_last()?;
    }
    if had_unit {
        systemctl(&["daemon-reload"])?;
    }
    Ok(lines)
}
