//! Sandboxes the process: even an attacker who controls it can neither start programs, gain privileges, nor
//! dump its memory.

use std::io;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::Failure;

/// The reason why the sandbox could not be entered.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The kernel refused to forbid starting programs.
    #[error(
        "cannot forbid this process to start programs: run it on a Linux kernel with seccomp filters (CONFIG_SECCOMP_FILTER), \
         and where a sandbox stands around it, let that pass prctl and seccomp"
    )]
    Programs(#[source] io::Error),
    /// The kernel refused to hide memory from core dumps and other processes of the same user.
    #[error("cannot keep this process's memory out of core dumps")]
    Memory(#[source] io::Error),
}

/// Sandboxes this process for good, on all its threads. It can start no program and gain no privileges. Its
/// memory, which holds keys and tokens, is hidden from core dumps and from other processes of its user. Call
/// this before any input from the network is read.
///
/// # Errors
/// The kernel refuses; the process must not continue then.
pub fn enter_sandbox() -> Result<(), SandboxError> {
    sys::forbid_exec().map_err(SandboxError::Programs)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| SandboxError::Memory(error.into()))
}

impl From<SandboxError> for Failure {
    fn from(error: SandboxError) -> Self {
        Self::could_not_go_on(error)
    }
}
