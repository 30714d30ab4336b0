//! The command line of `loadtest`.

use clap::{Parser, Subcommand};

use crate::report::Output;
use crate::{
    all, bulk, fairness, get, hop, idle, keystrokes, layout, leak, link, node_lb, outage, restart, servers,
    slow_readers, target, watches,
};

const EXAMPLES: &str = "\
Build everything in release first, in one go; loadtest runs what lies beside it:
  cargo build --release -p tunnel-server -p tunnel-agent -p cli -p loadtest

Examples:
  The cost of a small GET through the tunnel to a real API server, for 1 to 1,000 callers, and at half load:
  target/release/loadtest get --json get.json --plots plots
  The cost of an idle tunnel at the server, and whether anything is leaked (exit code 1 if so):
  target/release/loadtest idle
  target/release/loadtest leak --plots plots
  Whether a greedy caller delays a modest one or gets its requests refused, by the gateway's limits, and by the queues of
  the server or of the agent alone:
  target/release/loadtest fairness
  Everything, for a record of half an hour, or for a look of some minutes:
  target/release/loadtest all --json all.json --plots plots
  target/release/loadtest all --quick
  A comparison of the daemons' runtime layouts, for two clusters:
  target/release/loadtest layout --clusters 2 --callers 1,64,1000
  Congestion controllers under loss, ours beside quinn's and the kernel's (build -p linksim with the others):
  target/release/loadtest link --loss 0,1,5
  The echo time of typed lines beside downloads and uploads through the same tunnel:
  target/release/loadtest keystrokes
  The load balancer of a worker beside Debian's haproxy and nginx, as far as they are installed (build -p node-lb):
  target/release/loadtest node-lb --parts rates,rest

All routes take turns within each round, in a random order, so that other load of the
machine affects all of them alike. Trust ratios of one run and medians over rounds, never
a single timing, and compare only figures of the same run.
docs/measuring.md says what each scenario measures, and what not to conclude from it.

Exit codes: 0 all bounds hold; 1 a bound was missed, or the run failed; 2 usage;
130 interrupted. Every process that it has started ends with it.";

/// Compare callers through gateway and tunnel with callers who connect directly
///
/// Starts everything it measures on loopback, from certificates to processes, and removes it. Any failed request ends
/// the run: figures of a run with errors say nothing.
#[derive(Debug, Parser)]
#[command(name = "loadtest", version, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    pub scenario: Scenario,

    #[command(flatten)]
    pub output: Output,
}

/// The scenarios that can be measured.
#[derive(Debug, Subcommand)]
pub enum Scenario {
    /// Run get, bulk, watches, slow-readers, idle, leak and node-lb, one after the other
    All(all::AllFlags),
    /// Compare a small GET through gateway and tunnel with the same GET at the same real kube-apiserver
    Get(get::GetFlags),
    /// Compare requests at the server that has the tunnel with the same at another server, one hop away
    Hop(hop::HopFlags),
    /// Compare the load balancer of a worker with haproxy and nginx: rates, memory, CPU time, faults of real API
    /// servers, and the cost of probes (faults and probes need root)
    NodeLb(node_lb::NodeLbFlags),
    /// Compare downloads and uploads through gateway and tunnel with the same at the same plain TLS server
    Bulk(bulk::BulkFlags),
    /// Keep many idle watches open at a real kube-apiserver: memory of both daemons for each, and when events
    /// arrive
    Watches(watches::WatchesFlags),
    /// Compare small GETs beside slow readers of large responses with the same GETs without them; memory of
    /// both daemons
    #[command(alias = "stalled")]
    SlowReaders(slow_readers::SlowReadersFlags),
    /// Measure a modest caller beside a greedy one that asks for too much, does not read, and fails to log
    /// in: p99 of both cases
    Fairness(fairness::FairnessFlags),
    /// Keep many idle tunnels open: memory and CPU of the server for each
    Idle(idle::IdleFlags),
    /// Keep many idle agents, each with tunnels to two of several servers: memory and CPU of each server, and
    /// changes in etcd
    Servers(servers::ServersFlags),
    /// Cancel requests at random moments and lose tunnels, many times, and report what is leaked
    Leak(leak::LeakFlags),
    /// Compare runtime layouts of both daemons on the shortest path: gateway, tunnel, and an API server that
    /// does nothing
    Layout(layout::LayoutFlags),
    /// Interrupt links under traffic: when it is noticed, what resumes, and how soon the first byte arrives
    /// (needs root; `make chaos`)
    Outage(outage::OutageFlags),
    /// Compare congestion controllers and carriers on a lossy link: a bulk transfer, and small requests
    /// beside it (needs root)
    Link(link::LinkScenarioFlags),
    /// Type in twenty shells beside bulk transfers over the same tunnel: p50 and p99 of the echo (needs root)
    Keystrokes(keystrokes::KeystrokesFlags),
    /// Kill the server of many idle agents, start it again, and measure how soon all have reconnected
    Restart(restart::RestartFlags),
    /// Serve as the API server of the other scenarios until killed
    #[command(hide = true)]
    Target(target::TargetFlags),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_fit_together() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
