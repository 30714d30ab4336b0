//! The operations that a compromised daemon cannot do.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use tests::fake_api::HttpVersion;
use tests::fake_edge::FakeEdge;
use tests::process::{Invocation, Process};
use tests::scratch::Scratch;
use tests::skip::skip;

const CORE: &str = "neither_daemon_leaves_its_memory_in_a_core_dump";
const ENDS_MAX: Duration = Duration::from_secs(60);

/// The calls that the filter refuses are tried in `sys`, on each thread. This test checks that both daemons
/// have the filter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_thread_of_either_daemon_can_start_a_program_or_gain_rights() {
    let mut edge = FakeEdge::start(HttpVersion::Http1).await;
    for process in [edge.rig.server().id(), edge.agent.process.id()].map(|id| id.expect("it runs")) {
        let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
        let statuses: Vec<String> =
            threads.map(|thread| fs::read_to_string(thread.path().join("status")).unwrap()).collect();
        assert!(statuses.len() > 1, "a runtime has threads");
        for status in statuses {
            let has = |line: &str| status.lines().any(|one| one.split_whitespace().eq(line.split(' ')));
            assert!(has("NoNewPrivs: 1") && has("Seccomp: 2"), "{status}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_daemon_leaves_its_memory_in_a_core_dump() {
    // Root may lift a limit that the parent process has set.
    let scratch = Scratch::new("tombolo-core-").unwrap();
    let sleep = Invocation::of("sleep").arguments(["1000"]).in_directory(scratch.path());
    let mut other = Process::start(&sleep, &scratch.path().join("sleep.log")).await.unwrap();
    if unbound(&other).is_err() || !aborted(&mut other).await.core_dumped() {
        return skip(CORE, "this machine writes no core dumps");
    }

    let mut edge = FakeEdge::start(HttpVersion::Http1).await;
    for process in [edge.rig.server(), &mut edge.agent.process] {
        unbound(process).unwrap();
        let ended = aborted(process).await;
        assert!(!ended.core_dumped(), "{ended:?}");
    }
}

/// Takes away the bound on what a core dump may hold.
fn unbound(process: &Process) -> rustix::io::Result<Rlimit> {
    let process = process.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
    prlimit(process, Resource::Core, Rlimit { current: None, maximum: None })
}

async fn aborted(process: &mut Process) -> ExitStatus {
    process.signal(Signal::ABORT).unwrap();
    let ended = process.wait(ENDS_MAX).await.unwrap();
    assert_eq!(ended.signal(), Some(Signal::ABORT.as_raw()), "{ended:?}");
    ended
}
