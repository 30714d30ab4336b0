//! What a daemon can never do, whoever has taken it over: start a program, gain rights, or leave its memory in a file.

use std::io;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::Failure;

/// The kernel did not take a rule.
#[derive(Debug, thiserror::Error)]
pub enum NotConfined {
    /// Programs could still be started.
    #[error(
        "cannot forbid this process to start programs: run it on a Linux kernel with seccomp filters (CONFIG_SECCOMP_FILTER), \
         and where a sandbox stands around it, let that pass prctl and seccomp"
    )]
    Programs(#[source] io::Error),
    /// Memory could still be written to a core dump, or read by another process of the same user.
    #[error("cannot keep this process's memory out of core dumps")]
    Memory(#[source] io::Error),
}

/// Confines this process for good, on all its threads: it starts no program and gains no rights by one, and neither a core dump
/// nor another process of its user gets at its memory, where keys and tokens are. Called before anything of a stranger's is read.
///
/// # Errors
/// The kernel refuses; the process must not go on then.
pub fn confine() -> Result<(), NotConfined> {
    sys::refuse_programs().map_err(NotConfined::Programs)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| NotConfined::Memory(error.into()))
}

impl From<NotConfined> for Failure {
    fn from(error: NotConfined) -> Self {
        Self::could_not_go_on(error)
    }
}
