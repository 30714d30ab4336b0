//! The machine and the kernel on which the figures were measured.

use std::fs;
use std::thread::available_parallelism;

use serde::Serialize;

/// A description of the machine and its kernel.
#[derive(Debug, Serialize)]
pub struct Machine {
    /// Cores that this process may use.
    pub cores: usize,
    /// The model name of the first core.
    pub cpu: String,
    /// The release of the Linux kernel.
    pub kernel: String,
    /// The kernel's congestion control of TCP.
    pub tcp_congestion_control: String,
    /// Largest receive buffer of a socket, in bytes.
    pub net_core_rmem_max: String,
    /// Processes ready to run, averaged over the last 1, 5 and 15 minutes, at the end of the run: what else ran.
    pub load_average: String,
}

impl Machine {
    /// Describes this machine as it is now.
    pub fn here() -> Self {
        Self {
            cores: available_parallelism().map_or(0, usize::from),
            cpu: cpu(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            tcp_congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control"),
            net_core_rmem_max: read("/proc/sys/net/core/rmem_max"),
            load_average: read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" "),
        }
    }
}

fn cpu() -> String {
    let text = read("/proc/cpuinfo");
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| "unknown".to_owned(), |(_, model)| model.trim().to_owned())
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}
