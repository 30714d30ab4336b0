//! CPU time of a process, from `/proc`.

use std::fs;
use std::io;
use std::time::Duration;

/// User and system time of all threads, in steps of a clock tick (10 ms).
///
/// # Errors
/// The process has ended.
pub fn cpu_time(process: u32) -> io::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let ticks = cpu_ticks(&stat).ok_or_else(|| io::Error::other(format!("cannot read {stat:?}")))?;
    Ok(Duration::from_secs(ticks) / u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100))
}

/// The same of several processes together.
///
/// # Errors
/// One of the processes has ended.
pub fn cpu_time_of(processes: &[u32]) -> io::Result<Duration> {
    processes.iter().map(|process| cpu_time(*process)).sum()
}

/// `utime` and `stime`, proc_pid_stat(5). The second field is a name in parentheses, which may hold spaces.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_parsed_after_a_name_with_spaces_and_parentheses() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194304 110 0 0 0 150 25 9 9 20 0 3 0 100 1000 10";
        assert_eq!(cpu_ticks(stat), Some(175));
    }
}
