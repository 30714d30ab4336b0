//! Memory and open files of a process, from `/proc`.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use tokio::time::sleep;

/// Memory counts as settled if it changes by less than this over several samples.
const SETTLED_WITHIN_BYTES: u64 = 128 * 1024;
/// Number of samples over which memory has to be settled.
const SETTLED_SAMPLES: usize = 6;
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Longest wait for memory to settle.
const SETTLE_MAX: Duration = Duration::from_secs(20);

/// Resident memory (`VmRSS`) in bytes.
///
/// # Errors
/// The process has ended.
pub fn resident_bytes(process: u32) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    resident(&status).ok_or_else(|| io::Error::other("no VmRSS in its status"))
}

/// Resident memory once it has settled, or after 20 s.
///
/// # Errors
/// The process has ended.
pub async fn settled_bytes(process: u32) -> io::Result<u64> {
    let deadline = Instant::now() + SETTLE_MAX;
    let mut last = vec![resident_bytes(process)?];
    loop {
        sleep(LOOK_EVERY).await;
        last.push(resident_bytes(process)?);
        let recent = &last[last.len().saturating_sub(SETTLED_SAMPLES)..];
        let (low, high) = (recent.iter().min().copied(), recent.iter().max().copied());
        let moved = high.unwrap_or_default() - low.unwrap_or_default();
        if (recent.len() == SETTLED_SAMPLES && moved < SETTLED_WITHIN_BYTES) || Instant::now() >= deadline {
            return Ok(recent[recent.len() - 1]);
        }
    }
}

/// The number of open file descriptors.
///
/// # Errors
/// The process has ended; or it is a daemon and this process is not root, because daemons deny others access to their
/// `/proc` files.
pub fn open_files(process: u32) -> io::Result<usize> {
    Ok(fs::read_dir(format!("/proc/{process}/fd"))?.count())
}

/// Parses `VmRSS` in bytes, proc_pid_status(5).
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_files() {
        let this = std::process::id();
        assert!(resident_bytes(this).expect("it runs") > 100 * 1024);
        assert_eq!(resident("VmHWM:\t 9 kB\nVmRSS:\t    12 kB\n"), Some(12 * 1024));
        assert!(open_files(this).expect("it runs") > 2);
    }
}
