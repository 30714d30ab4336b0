//! The resources that a process holds: memory, descriptors, threads and its own metrics; and whether it
//! released them.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// The pause between two measurements.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The resources of a process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Memory in RAM, in bytes.
    pub resident_bytes: u64,
    /// Number of open file descriptors.
    pub descriptors: u64,
    /// Number of threads of the process.
    pub threads: u64,
    /// Tasks, as the daemon's metrics count them.
    pub tasks: u64,
    /// Streams that are open, as the daemon's metrics count them.
    pub streams: u64,
}

/// The growth over the first measurement that is allowed.
#[derive(Debug, Clone, Copy)]
pub struct Slack {
    /// Of memory, in bytes: allocators give back late.
    pub resident_bytes: u64,
    /// Descriptors, for connections that stay open in a pool.
    pub descriptors: u64,
    /// Tasks of the async runtime.
    pub tasks: u64,
}

/// Something is held that was not held at first.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} went from {before} to {after}, and at most {slack} more are borne")]
pub struct Leak {
    /// The name of the resource.
    pub what: &'static str,
    /// Its value in the first measurement.
    pub before: u64,
    /// Its value in the last measurement.
    pub after: u64,
    /// The growth that was allowed.
    pub slack: u64,
}

impl Usage {
    /// Measures a process, with the values of its `/metrics`.
    ///
    /// # Errors
    /// The process has ended.
    pub fn of(process: u32, metrics: &str) -> io::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        let line = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        let counted = |end: &str| {
            let named = metrics.lines().filter(|line| {
                let name = line.split(['{', ' ']).next().unwrap_or_default();
                name.ends_with(end)
            });
            named.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64
        };
        Ok(Self {
            resident_bytes: line("VmRSS:") * 1024,
            descriptors: fs::read_dir(format!("/proc/{process}/fd"))?.count() as u64,
            threads: line("Threads:"),
            tasks: counted("_tasks"),
            streams: counted("_streams_active"),
        })
    }

    /// The resources that grew beyond the allowed growth since `before`.
    pub fn leaks_since(&self, before: &Self, slack: Slack) -> Vec<Leak> {
        [
            ("resident bytes", before.resident_bytes, self.resident_bytes, slack.resident_bytes),
            ("descriptors", before.descriptors, self.descriptors, slack.descriptors),
            ("tasks", before.tasks, self.tasks, slack.tasks),
            ("streams", before.streams, self.streams, 0),
        ]
        .into_iter()
        .filter(|(_, before, after, slack)| *after > before + slack)
        .map(|(what, before, after, slack)| Leak { what, before, after, slack })
        .collect()
    }
}

/// Measures until nothing is held beyond the slack, for at most `limit`, and returns the resources that are
/// still held then.
pub async fn returned<F>(
    before: &Usage,
    slack: Slack,
    limit: Duration,
    mut look: impl FnMut() -> F,
) -> Vec<Leak>
where
    F: Future<Output = io::Result<Usage>>,
{
    let deadline = Instant::now() + limit;
    loop {
        // A process that has ended holds nothing.
        let Ok(now) = look().await else { return Vec::new() };
        let kept = now.leaks_since(before, slack);
        if kept.is_empty() || Instant::now() >= deadline {
            return kept;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs::File;

    use super::*;

    const SLACK: Slack = Slack { resident_bytes: 1000, descriptors: 2, tasks: 1 };

    #[test]
    fn descriptors_of_this_process_are_seen() {
        let before = Usage::of(std::process::id(), "").unwrap();
        let files: Vec<File> = (0..50).map(|_| File::open("/dev/null").unwrap()).collect();
        let after = Usage::of(std::process::id(), "").unwrap();
        // Other tests of this process open and close some beside.
        assert!(after.descriptors >= before.descriptors + 25, "{before:?} {after:?}");
        assert!(after.threads > 0 && after.resident_bytes > 1_000_000);
        drop(files);
    }

    #[test]
    fn what_metrics_count_is_summed_over_labels() {
        let metrics = "# TYPE x gauge\ntombolo_server_tasks{kind=\"work\"} 3\ntombolo_server_tasks{kind=\"background\"} 4\n\
                       tombolo_server_cluster_streams_active{cluster=\"a\"} 5\ntombolo_server_tasks_other 9\n";
        let usage = Usage::of(std::process::id(), metrics).unwrap();
        assert_eq!((usage.tasks, usage.streams), (7, 5));
    }

    #[test]
    fn each_bound_is_kept_to_its_slack_and_not_one_beyond() {
        let before = Usage { resident_bytes: 10, descriptors: 10, threads: 1, tasks: 10, streams: 0 };
        let at = Usage { resident_bytes: 1010, descriptors: 12, threads: 9, tasks: 11, streams: 0 };
        assert_eq!(at.leaks_since(&before, SLACK), []);
        for (what, more) in [
            ("resident bytes", Usage { resident_bytes: 1011, ..at }),
            ("descriptors", Usage { descriptors: 13, ..at }),
            ("tasks", Usage { tasks: 12, ..at }),
            ("streams", Usage { streams: 1, ..at }),
        ] {
            let kept = more.leaks_since(&before, SLACK);
            assert_eq!(kept.iter().map(|kept| kept.what).collect::<Vec<_>>(), [what]);
        }
    }

    #[tokio::test]
    async fn late_returns_are_waited_for_and_missing_ones_reported() {
        let before = Usage::default();
        let looks = Cell::new(0);
        let look = || {
            looks.set(looks.get() + 1);
            let streams = if looks.get() < 3 { 1 } else { 0 };
            std::future::ready(Ok(Usage { streams, ..before }))
        };
        assert_eq!(returned(&before, SLACK, Duration::from_secs(30), look).await, []);
        let never = || std::future::ready(Ok(Usage { streams: 1, ..before }));
        assert_eq!(returned(&before, SLACK, Duration::ZERO, never).await.len(), 1);
    }
}
