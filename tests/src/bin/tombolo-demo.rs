//! `make demo`: kubectl reaches two real edge clusters with one address through one server, in public view.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tests::demo::isolation::Isolation;
use tests::demo::{DemoOptions, run, run_tenant, run_worker};

const EXAMPLES: &str = "\
Examples:
  make demo
  make demo SERVERS=3
  make demo WORKER=1
  make demo TENANT=1
  make demo DEMO_FLAGS=\"--once --without-namespaces\"
  With the archive of a release, and etcd, kube-apiserver and kubectl of
  setup-envtest:
  export KUBEBUILDER_ASSETS=$(setup-envtest use --print path)
  ./tombolo-demo --bin-dir .";

/// Starts a tunnel-server and two edge clusters that both are 192.168.1.10:6443, and shows kubectl reach both
///
/// Then a link goes dark under a watch and a shell, the policy changes, and each cluster's own admin.conf is used
/// unchanged. It ends with an error if something is not as it says.
///
/// Needs `make binaries` and `tests/kube/build` to have run; `make demo` does that. With the programs of a release
/// it needs etcd, kube-apiserver and kubectl alone, in the folder KUBEBUILDER_ASSETS. Nothing of this machine
/// is changed: all files are in one temporary folder, all networks in namespaces of this process, and both go
/// with it.
#[derive(Debug, Parser)]
#[command(name = "tombolo-demo", version, after_help = EXAMPLES)]
struct Flags {
    /// Run through once and exit: 0 if every step succeeded, otherwise with the logs of the failed ones
    #[arg(long)]
    once: bool,

    /// Give each edge cluster a loopback address of its own instead of a network namespace
    #[arg(long)]
    without_namespaces: bool,

    /// Port of 127.0.0.1 where the gateway is to be reached [default: 8443, or any if that is taken]
    #[arg(long, value_name = "PORT")]
    gateway_port: Option<u16>,

    /// Folder with the tunnel-server, tunnel-agent and tombolo of a release [default: those that cargo has built]
    #[arg(long, value_name = "DIR")]
    bin_dir: Option<PathBuf>,

    /// Number of tunnel-servers, 1 to 5; several share their records in an etcd of three members, and one of them is killed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
    servers: u8,

    /// Show a worker instead: a machine joins by one command, and finds its control plane after a loss of power; needs root, Linux with
    /// control groups of version 1, and what `tests/kube/build --node` builds
    #[arg(long, conflicts_with_all = ["servers", "gateway_port", "without_namespaces"])]
    worker: bool,

    /// Show tenants instead: two control planes on one host cluster, a machine that joins, a dark line to the cloud, and a worker that loses
    /// its power; needs what --worker needs, and helm of `tests/kube/build --helm-only`
    #[arg(long, conflicts_with_all = ["servers", "gateway_port", "without_namespaces", "worker"])]
    tenant: bool,

    /// Set when the demo has started itself again in a user namespace
    #[arg(long, hide = true)]
    in_user_namespace: bool,
}

fn main() -> ExitCode {
    let Flags { once, without_namespaces, gateway_port, bin_dir, servers, worker, tenant, in_user_namespace } =
        Flags::parse();
    if tenant {
        return run_tenant(once);
    }
    if worker {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        return runtime.expect("a runtime can be built").block_on(run_worker(once));
    }
    // What differs with several servers is not the network.
    let without_namespaces = without_namespaces || servers > 1;
    let isolation = match (without_namespaces, in_user_namespace) {
        (true, _) => Isolation::Loopback { reason: "--without-namespaces or --servers was given".to_owned() },
        (false, true) => Isolation::UserNamespace,
        // Comes back only if this process can stay what it is.
        (false, false) => Isolation::find(),
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
    runtime.block_on(run(&DemoOptions { once, gateway_port, servers, bin_dir }, &isolation))
}
