//! Less of something for a running process: by control groups, by `prlimit`, by `strace`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::NotMade;
use crate::matrix::fault::Scarcity;

/// Where version 1 of control groups has its controllers.
const GROUPS: &str = "/sys/fs/cgroup";
/// The share is granted anew so often, in µs.
const PERIOD_MICROS: u64 = 100_000;
/// How long a tracer may take to attach.
const ATTACHED_MAX: Duration = Duration::from_secs(20);
/// Descriptors that a process keeps from the kernel's view of its own bound: none.
const NOFILE_WIDE: &str = "1048576";

/// What a process is held by; it is let go when this is dropped.
#[derive(Debug)]
pub(super) enum Held {
    Group { folder: PathBuf, parent: PathBuf },
    Descriptors(u32),
}

impl Held {
    pub(super) fn take(process: u32, scarcity: Scarcity) -> Result<Self, NotMade> {
        match scarcity {
            Scarcity::Processor(per_cent) => {
                let quota = PERIOD_MICROS * u64::from(per_cent) / 100;
                let files = [("cpu.cfs_period_us", PERIOD_MICROS), ("cpu.cfs_quota_us", quota)];
                Self::group("cpu", process, &files)
            }
            Scarcity::Memory(bytes) => Self::group("memory", process, &[("memory.limit_in_bytes", bytes)]),
            Scarcity::Threads => Self::group("pids", process, &[("pids.max", count(process, "task"))]),
            Scarcity::Descriptors => {
                let most = (count(process, "fd")).to_string();
                limit(process, &most)?;
                Ok(Self::Descriptors(process))
            }
        }
    }

    fn group(controller: &str, process: u32, files: &[(&str, u64)]) -> Result<Self, NotMade> {
        let root = Path::new(GROUPS).join(controller);
        if !root.is_dir() {
            return Err(NotMade(format!("{} is not mounted", root.display())));
        }
        let folder = root.join(format!("tombolo-{process}"));
        let failed = |error: std::io::Error| NotMade(format!("{}: {error}", folder.display()));
        fs::create_dir(&folder).map_err(failed)?;
        let held = Self::Group { folder: folder.clone(), parent: root };
        // The memory that a process has already stays where it was charged; the bound is of what it takes from now on.
        for (file, value) in files {
            fs::write(folder.join(file), value.to_string()).map_err(failed)?;
        }
        fs::write(folder.join("cgroup.procs"), process.to_string()).map_err(failed)?;
        Ok(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        match self {
            Self::Group { folder, parent } => {
                let members = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
                for process in members.lines() {
                    let _ = fs::write(parent.join("cgroup.procs"), process); // Gone already is as good.
                }
                let _ = fs::remove_dir(folder); // One that is left holds nobody.
            }
            Self::Descriptors(process) => drop(limit(*process, NOFILE_WIDE)),
        }
    }
}

/// Waits until a process is traced.
pub(super) async fn traced(process: u32) -> Result<(), NotMade> {
    let deadline = Instant::now() + ATTACHED_MAX;
    loop {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:")).unwrap_or("0");
        if tracer.trim() != "0" {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(NotMade(
                "strace did not attach; is it installed, and is tracing permitted?".to_owned(),
            ));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// How many descriptors or tasks a process has.
fn count(process: u32, folder: &str) -> u64 {
    fs::read_dir(format!("/proc/{process}/{folder}")).map_or(0, |entries| entries.count() as u64)
}

fn limit(process: u32, descriptors: &str) -> Result<(), NotMade> {
    // The hard bound stays, so that the soft one can be raised again.
    let words = [format!("--pid={process}"), format!("--nofile={descriptors}:")];
    let output =
        Command::new("prlimit").args(words).output().map_err(|error| NotMade(format!("prlimit: {error}")))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(NotMade(said)) }
}
