//! Forbids this process to execute programs, by a seccomp filter.

use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::io;

use libc::c_long;
use seccompiler::{BackendError, BpfProgram, Error, SeccompAction, SeccompFilter, TargetArch};

/// The system calls that execute a program.
const EXEC_CALLS: [c_long; 2] = [libc::SYS_execve, libc::SYS_execveat];

/// The same two in the table of x32, which a kernel with `CONFIG_X86_X32_ABI` takes from any process of
/// x86-64: bit 30, and numbers of their own (`arch/x86/entry/syscalls/syscall_64.tbl`).
#[cfg(target_arch = "x86_64")]
const EXEC_CALLS_X32: [c_long; 2] = [0x4000_0000 + 520, 0x4000_0000 + 545];
#[cfg(not(target_arch = "x86_64"))]
const EXEC_CALLS_X32: [c_long; 0] = [];

/// Forbids every thread of this process, and every process that it forks, to execute a program: the kernel
/// answers `EPERM`.
///
/// Files that would give it rights (setuid, file capabilities) have no effect any more, either
/// (`no_new_privs`). Neither can be undone. System calls of another architecture's table (32-bit ones) end
/// the process.
///
/// # Errors
/// A kernel without seccomp filters, one for which there is no table here, or one that refuses.
pub fn forbid_exec() -> io::Result<()> {
    let machine = TargetArch::try_from(ARCH).map_err(|error| failed(error.into()))?;
    let calls: BTreeMap<c_long, _> =
        EXEC_CALLS.into_iter().chain(EXEC_CALLS_X32).map(|number| (number, Vec::new())).collect();
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, refuse, machine)
        .and_then(BpfProgram::try_from)
        .map_err(|error: BackendError| failed(error.into()))?;
    seccompiler::apply_filter_all_threads(&filter).map_err(failed)
}

/// The kernel's own error, where the kernel refused.
fn failed(error: Error) -> io::Error {
    match error {
        Error::Prctl(cause) | Error::Seccomp(cause) => cause,
        error @ (Error::Backend(_) | Error::EmptyFilter | Error::ThreadSync(_)) => io::Error::other(error),
    }
}
