//! What a person types.

use clap::{Parser, Subcommand};

use crate::report::Output;
use crate::{
    all, bulk, fairness, get, idle, keystrokes, layout, leak, link, outage, restart, slow_readers, target,
    watches,
};

const EXAMPLES: &str = "\
Build everything in release first, in one go; loadtest runs what lies beside it:
  cargo build --release -p tunnel-server -p tunnel-agent -p cli -p loadtest

Examples:
  What a small GET pays on its route to a real API server, for 1 to 1,000 callers, and at half load:
  target/release/loadtest get --json get.json --plots plots
  What an idle tunnel costs the server, and whether anything is leaked (exit code 1 if so):
  target/release/loadtest idle
  target/release/loadtest leak --plots plots
  Whether a caller who asks for far too much costs another one its time, or an answer, by the gateway's limits, and by the
  queues of the server and of the agent alone:
  target/release/loadtest fairness
  Everything, for a record of half an hour, or for a look of some minutes:
  target/release/loadtest all --json all.json --plots plots
  target/release/loadtest all --quick
  Which runtime layout the daemons should have, for two clusters:
  target/release/loadtest layout --clusters 2 --callers 1,64,1000
  How congestion controllers bear loss, ours beside quinn's and the kernel's (build -p linksim with the others):
  target/release/loadtest link --loss 0,1,5
  How long what is typed takes to come back beside downloads and uploads through the same tunnel:
  target/release/loadtest keystrokes

All routes take turns within each round, in an order drawn anew, so that what else the
machine does meets all of them alike. Believe ratios of one run and medians over rounds,
never one timing, and no figure that was not taken beside the one it is compared with.
docs/measuring.md says what each scenario measures, and what not to conclude from it.

Exit codes: 0 all bounds hold; 1 a bound was missed, or something stood in the route; 2 usage;
130 interrupted. However it ends, everything that it has started ends with it.";

/// Callers through gateway and tunnel beside callers who go direct
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

/// What is measured.
#[derive(Debug, Subcommand)]
pub enum Scenario {
    /// Run all the following but `fairness`, `keystrokes`, `layout`, `link`, `outage` and `restart`, one after the other
    All(all::AllFlags),
    /// Compare a small GET through gateway and tunnel with the same GET at the same real kube-apiserver
    Get(get::GetFlags),
    /// Compare downloads and uploads through gateway and tunnel with the same at the same plain TLS server
    Bulk(bulk::BulkFlags),
    /// Hold many idle watches at a real kube-apiserver: memory of both daemons for each, and when events arrive
    Watches(watches::WatchesFlags),
    /// Compare small GETs beside callers who do not read a large answer with the same without them; memory of both daemons
    #[command(alias = "stalled")]
    SlowReaders(slow_readers::SlowReadersFlags),
    /// Ask modestly beside a caller who asks for far too much, does not read, and fails to log in: p99 with and without it
    Fairness(fairness::FairnessFlags),
    /// Hold many idle tunnels: memory and CPU of the server for each
    Idle(idle::IdleFlags),
    /// Give requests up at any moment and lose tunnels, many times, and see what is not given back
    Leak(leak::LeakFlags),
    /// Compare runtime layouts of both daemons on the thinnest path: gateway, tunnel, an API server that does nothing
    Layout(layout::LayoutFlags),
    /// Let links go dark while everything flows: who notices, who goes on, how soon the first byte comes (root; `make chaos`)
    Outage(outage::OutageFlags),
    /// Compare congestion controllers and carriers on a link that loses packets: bulk, and small requests beside it (takes root)
    Link(link::LinkScenarioFlags),
    /// Type in twenty shells beside bulk out of the cluster and into it, over one tunnel: p50 and p99 of the echo (takes root)
    Keystrokes(keystrokes::KeystrokesFlags),
    /// Kill the server of many idle agents, start it again, and see how soon all are back
    Restart(restart::RestartFlags),
    /// Serve as the API server of the others, by itself, until killed
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
