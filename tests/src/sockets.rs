//! The TCP connections of a process, as the kernel counts them.

use std::collections::HashSet;
use std::fs;
use std::net::SocketAddr;

/// The state of a connection that is open in both directions, in `/proc/net/tcp`.
const ESTABLISHED: &str = "01";

/// Number of connections from a process of this network namespace to an IPv4 address.
pub fn established(process: u32, to: SocketAddr) -> usize {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).expect("the process runs").flatten();
    let own: HashSet<String> = descriptors
        .filter_map(|descriptor| fs::read_link(descriptor.path()).ok())
        .filter_map(|target| Some(target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let SocketAddr::V4(to) = to else { panic!("{to} is no IPv4 address") };
    // The address as it lies in memory, read as a number; the port as people write it, in hexadecimal.
    let remote = format!("{:08X}:{:04X}", u32::from_ne_bytes(to.ip().octets()), to.port());
    let table = fs::read_to_string("/proc/net/tcp").expect("the kernel has TCP");
    let fields = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields
        .filter(|fields| fields.get(2) == Some(&remote.as_str()) && fields.get(3) == Some(&ESTABLISHED))
        .filter(|fields| fields.get(9).is_some_and(|inode| own.contains(*inode)))
        .count()
}
