//! Takes resources away from a running process: by control groups, `prlimit`, `strace`, or its own sockets.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::net::{ipproto, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::FaultUnavailable;
use crate::matrix::fault::Shortage;

/// The folder in which control groups of version 1 have their controllers.
const GROUPS: &str = "/sys/fs/cgroup";
/// The period after which the CPU share is granted again, in µs.
const PERIOD_MICROS: u64 = 100_000;
/// The limit for a tracer to attach.
const ATTACHED_MAX: Duration = Duration::from_secs(20);
/// Descriptors that a process keeps from the kernel's view of its own bound: none.
const NOFILE_WIDE: &str = "1048576";

/// A restriction of a process. It is lifted when this is dropped.
#[derive(Debug)]
pub(super) enum ShortageGuard {
    Group { folder: PathBuf, parent: PathBuf },
    Descriptors(u32),
    Buffers { process: u32, sockets: Vec<(OwnedFd, usize)>, overflowed: u64 },
}

impl ShortageGuard {
    pub(super) fn take(process: u32, scarcity: Shortage) -> Result<Self, FaultUnavailable> {
        match scarcity {
            Shortage::Processor(per_cent) => {
                let quota = PERIOD_MICROS * u64::from(per_cent) / 100;
                let files = [("cpu.cfs_period_us", PERIOD_MICROS), ("cpu.cfs_quota_us", quota)];
                Self::group("cpu", process, &files)
            }
            Shortage::Memory(bytes) => Self::group("memory", process, &[("memory.limit_in_bytes", bytes)]),
            Shortage::Threads => Self::group("pids", process, &[("pids.max", count(process, "task"))]),
            Shortage::Descriptors => {
                let most = (count(process, "fd")).to_string();
                limit(process, &most)?;
                Ok(Self::Descriptors(process))
            }
        }
    }

    /// Lets the kernel keep no more than so many bytes for each UDP socket of a process. The sockets are the
    /// process's own, taken over from it for as long as that lasts.
    pub(super) fn buffers(process: u32, bytes: usize) -> Result<Self, FaultUnavailable> {
        let failed =
            |error: rustix::io::Errno| FaultUnavailable(format!("the sockets of {process}: {error}"));
        let id = Pid::from_raw(process as i32)
            .ok_or_else(|| FaultUnavailable("there is no process 0".to_owned()))?;
        let process_fd = pidfd_open(id, PidfdFlags::empty()).map_err(failed)?;
        let mut sockets = Vec::new();
        for number in sockets_of(process) {
            // One that was closed meanwhile has no buffer.
            let Ok(socket) = pidfd_getfd(&process_fd, number, PidfdGetfdFlags::empty()) else { continue };
            let is_udp =
                sockopt::socket_protocol(&socket).is_ok_and(|protocol| protocol == Some(ipproto::UDP));
            if is_udp {
                let before = sockopt::socket_recv_buffer_size(&socket).map_err(failed)?;
                sockopt::set_socket_recv_buffer_size(&socket, bytes).map_err(failed)?;
                sockets.push((socket, before));
            }
        }
        if sockets.is_empty() {
            return Err(FaultUnavailable(format!("process {process} has no UDP socket")));
        }
        Ok(Self::Buffers { process, sockets, overflowed: overflowed(process) })
    }

    /// The reason why there was no fault, where that can be seen.
    pub(super) fn unmade(&self) -> Option<String> {
        match self {
            Self::Buffers { process, overflowed: before, .. } if overflowed(*process) == *before => {
                Some("no receive buffer ever overflowed".to_owned())
            }
            _ => None,
        }
    }

    fn group(controller: &str, process: u32, files: &[(&str, u64)]) -> Result<Self, FaultUnavailable> {
        let root = Path::new(GROUPS).join(controller);
        if !root.is_dir() {
            return Err(FaultUnavailable(format!("{} is not mounted", root.display())));
        }
        let folder = root.join(format!("tombolo-{process}"));
        let failed = |error: std::io::Error| FaultUnavailable(format!("{}: {error}", folder.display()));
        fs::create_dir(&folder).map_err(failed)?;
        let held = Self::Group { folder: folder.clone(), parent: root };
        // The memory that a process has already stays where it was charged; the bound is of what it takes
        // from now on.
        for (file, value) in files {
            fs::write(folder.join(file), value.to_string()).map_err(failed)?;
        }
        fs::write(folder.join("cgroup.procs"), process.to_string()).map_err(failed)?;
        Ok(held)
    }
}

impl Drop for ShortageGuard {
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
            Self::Buffers { sockets, .. } => {
                for (socket, before) in sockets {
                    // The kernel doubles the given value, and reports the double.
                    let _ = sockopt::set_socket_recv_buffer_size(socket, *before / 2); // A smaller one is only slower.
                }
            }
        }
    }
}

/// Waits until a process is traced.
pub(super) async fn traced(process: u32) -> Result<(), FaultUnavailable> {
    let deadline = Instant::now() + ATTACHED_MAX;
    loop {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:")).unwrap_or("0");
        if tracer.trim() != "0" {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(FaultUnavailable(
                "strace did not attach; is it installed, and is tracing permitted?".to_owned(),
            ));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The numbers of a process's descriptors that are sockets.
fn sockets_of(process: u32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/fd")) else { return Vec::new() };
    let is_socket =
        |path: &Path| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
    let sockets = entries.flatten().filter(|entry| is_socket(&entry.path()));
    sockets.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Datagrams that found no room in a receive buffer, in the network namespace of a process.
fn overflowed(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/net/snmp")).unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: ")).map(str::split_whitespace);
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    names
        .zip(values)
        .find(|(name, _)| *name == "RcvbufErrors")
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(0)
}

/// Number of a process's descriptors or tasks.
fn count(process: u32, folder: &str) -> u64 {
    fs::read_dir(format!("/proc/{process}/{folder}")).map_or(0, |entries| entries.count() as u64)
}

fn limit(process: u32, descriptors: &str) -> Result<(), FaultUnavailable> {
    // The hard bound stays, so that the soft one can be raised again.
    let words = [format!("--pid={process}"), format!("--nofile={descriptors}:")];
    let output = Command::new("prlimit")
        .args(words)
        .output()
        .map_err(|error| FaultUnavailable(format!("prlimit: {error}")))?;
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(FaultUnavailable(message)) }
}
