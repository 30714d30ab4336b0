//! A machine with real systemd, kubelet and containerd becomes a worker by one command, reboots while all but its masters is dark, and
//! stops being a worker.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::binaries::binary;
use tests::lb_cluster::booted_worker::{BootedWorker, NAME};
use tests::lb_cluster::command::Ended;
use tests::lb_cluster::watches::Watches;
use tests::lb_cluster::{LB, MASTERS};
use tests::node::{Image, libraries_of, with_libraries};
use tests::process::{Invocation, Process};
use tests::skip::skip;
use tests::sources::workspace;
use tokio::time::sleep;

/// The image of the static pod, as it is shipped.
const NODE_LB_IMAGE: &str = "tombolo/node-lb:0.1.0";

/// Watches through node-lb while it is reloaded.
const WATCHES: usize = 5;

/// No trace on the machine.
const NOTHING: [String; 0] = [];

/// Pause between two looks at the journal of a join, which is to be killed after a step.
const SHORT_PAUSE: Duration = Duration::from_millis(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_command_makes_a_worker_and_reset_leaves_nothing() {
    let Some(mut worker) = worker("one_command_makes_a_worker_and_reset_leaves_nothing").await else {
        return;
    };
    let before = traces(&worker).await;
    what_does_not_fit_is_refused(&worker).await;
    assert_eq!(left_since(&worker, &before).await, NOTHING, "nothing is half done");

    let killed = join_with_kills(&worker).await;
    assert!(killed > 10, "a join has many steps, and {killed} were interrupted");
    worker.join().await;
    worker.runs_a_pod().await;
    assert!(!worker.machine.on_disk("/etc/kubernetes/bootstrap-kubelet.conf").exists(), "the token is gone");

    a_reload_breaks_no_connection(&worker).await;

    // Also after a loss of power, by what is on its disk.
    worker.reboot().await;

    let reset = worker.tombolo(&["node", "reset"]).await;
    assert!(reset.is_done, "{}", reset.said);
    assert_eq!(left_since(&worker, &before).await, NOTHING, "reset leaves nothing");
    worker.cluster.edge.admin().stdout(&["delete", "node", NAME]).await;

    let begun = Instant::now();
    worker.join().await;
    println!("without a kill: Ready after {:.1} s", begun.elapsed().as_secs_f64());
}

/// Twenty times, with all API servers and with one of them dead in turns. The bars are those of docs/node-lb.md.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: a worker reboots 20 times, a minute"]
async fn a_worker_that_reboots_while_dark_finds_its_control_plane() {
    let Some(mut worker) = worker("a_worker_that_reboots_while_dark_finds_its_control_plane").await else {
        return;
    };
    worker.join().await;
    worker.runs_a_pod().await;
    let (mut answers, mut ready) = (Vec::new(), Vec::new());
    for round in 0..20 {
        let dead = (round % 2 == 1).then_some(MASTERS - 1);
        if let Some(dead) = dead {
            worker.cluster.kill(dead);
        }
        let boot = worker.reboot().await;
        answers.push(boot.first_answer);
        ready.push(boot.at_work);
        if let Some(dead) = dead {
            worker.cluster.start_again(dead).await;
        }
    }
    let longest = |times: &[Duration]| times.iter().max().copied().unwrap_or_default();
    println!("first answers after node-lb's start: {answers:.2?}");
    println!("kubelet Ready and its pod running: {ready:.2?}");
    assert!(longest(&answers) <= Duration::from_secs(1), "{answers:?}");
    assert!(longest(&ready) <= Duration::from_secs(15), "{ready:?}");
}

/// `deploy/node-lb/static-pod.yaml` in place of the unit. kubelet then starts before node-lb, after each loss of power, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: kubelet runs node-lb as a static pod, 30 s"]
async fn kubelet_runs_node_lb_as_a_static_pod_and_comes_by_it() {
    let Some(mut worker) = worker("kubelet_runs_node_lb_as_a_static_pod_and_comes_by_it").await else {
        return;
    };
    worker.join().await;
    worker.runs_a_pod().await;
    runs_node_lb_as_a_static_pod(&worker).await;
    for _ in 0..2 {
        let before = worker.lives().await;
        worker.machine.cut_power().await.expect("it has power");
        let begun = Instant::now();
        worker.machine.power_on().await.expect("it boots");
        worker.is_at_work_again(before).await;
        println!("kubelet Ready and its pod running after {:.1} s", begun.elapsed().as_secs_f64());
    }
    let unit = worker.machine.run("systemctl", &["is-active", "node-lb"]).await.expect("it runs");
    assert!(!unit.status.success(), "the unit does not run");
}

async fn what_does_not_fit_is_refused(worker: &BootedWorker) {
    let refused = async |reason: &str, more: &[&str]| {
        let ended = worker.try_join(more).await;
        assert!(!ended.is_done && ended.said.contains(reason), "{reason}: {}", ended.said);
    };
    let listening = async { tokio::net::TcpListener::bind(LB).await.expect("the port is free") };
    let listener = worker.cluster.on_worker.run(listening).await;
    refused("another program listens at 127.0.0.1:7443", &[]).await;
    drop(listener);

    refused("/nowhere.sock; start the container runtime", &["--cri-socket", "/nowhere.sock"]).await;

    // A kubelet of a later release, in an image.
    let image = worker.machine.on_disk("/var/lib/image");
    fs::create_dir_all(image.join("usr/bin")).expect("a folder");
    let kubelet = image.join("usr/bin/kubelet");
    fs::write(&kubelet, "#!/bin/sh\necho Kubernetes v1.99.0\n").expect("a file");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&kubelet, executable).expect("a mode");
    let root = ["--root", "/var/lib/image", "--no-start"];
    refused("kubelet v1.99.0 is newer than the API server", &root).await;
    fs::remove_dir_all(image).expect("a folder");

    let admin = worker.cluster.edge.admin();
    let file = worker.cluster.edge.directory().join("ready-node.json");
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NAME } });
    fs::write(&file, node.to_string()).expect("a file");
    admin.stdout(&["create", "-f", &file.display().to_string()]).await;
    let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } }).to_string();
    admin.stdout(&["patch", "node", NAME, "--subresource=status", "-p", &ready]).await;
    refused("has a Node \"worker\" that is Ready", &[]).await;
    admin.stdout(&["delete", "node", NAME]).await;

    let shown = worker.try_join(&["--dry-run"]).await;
    let (_, secret) = worker.join.iter().find_map(|word| word.split_once('.')).expect("a token");
    assert!(shown.is_done && shown.said.contains("kind: KubeletConfiguration"), "{}", shown.said);
    assert!(!shown.said.contains(secret), "the secret is not shown");
}

/// `systemctl reload` starts the program on disk, which takes everything over under the restrictions of the unit.
async fn a_reload_breaks_no_connection(worker: &BootedWorker) {
    let main_process = async || {
        let shown = worker.machine.run("systemctl", &["show", "node-lb", "--value", "--property=MainPID"]);
        String::from_utf8(shown.await.expect("it runs").stdout).expect("text").trim().to_owned()
    };
    let mut watches = Watches::start(&worker.cluster, WATCHES).await;
    let before = main_process().await;
    for _ in 0..2 {
        let reloaded = worker.machine.run("systemctl", &["reload", "node-lb"]).await.expect("it runs");
        assert!(
            reloaded.status.success(),
            "{}\n{}",
            String::from_utf8_lossy(&reloaded.stderr),
            worker.machine.log()
        );
        watches.beat(&worker.cluster).await;
    }
    let after = main_process().await;
    assert!(after != before && after != "0", "{before} {after}");
    let active = worker.machine.run("systemctl", &["is-active", "node-lb"]).await.expect("it runs");
    assert_eq!(active.stdout, b"active\n");
}

/// Begins the join again and again, and kills it after each further step. Returns the number of kills.
async fn join_with_kills(worker: &BootedWorker) -> usize {
    let journal = worker.machine.on_disk("/var/lib/tombolo/join.json");
    let steps = || {
        let text = fs::read(&journal).unwrap_or_default();
        serde_json::from_slice::<Value>(&text)
            .map_or(0, |journal| journal["steps"].as_array().map_or(0, Vec::len))
    };
    let words: Vec<&str> = worker.join.iter().map(String::as_str).collect();
    let log = worker.cluster.edge.directory().join("join.log");
    let mut killed = 0;
    loop {
        let before = steps();
        let mut join =
            Process::start(&worker.machine.inside("tombolo", &words), &log).await.expect("it starts");
        while steps() == before {
            if let Some(status) = join.ended() {
                assert!(status.success(), "{}\n{}", join.tail(), worker.machine.log());
                return killed;
            }
            sleep(SHORT_PAUSE).await;
        }
        join.kill();
        killed += 1;
    }
}

/// Puts the static pod as it is shipped in the place of the unit, with an image of this program.
async fn runs_node_lb_as_a_static_pod(worker: &BootedWorker) {
    let program = binary("node-lb");
    let libraries = libraries_of(&program).await.expect("ldd");
    let files = with_libraries((&program, "node-lb"), &libraries);
    let image =
        Image { name: NODE_LB_IMAGE, programs: &files, entrypoint: &["/node-lb"], ..Image::default() };
    worker.machine.load(&image).await.expect("an image");
    let stopped = worker.machine.run("systemctl", &["disable", "--now", "node-lb"]).await.expect("it runs");
    assert!(stopped.status.success(), "{}", String::from_utf8_lossy(&stopped.stderr));
    // kubelet's unit would start it.
    fs::remove_file(worker.machine.on_disk("/etc/systemd/system/node-lb.service")).expect("the unit");
    let shipped = fs::read_to_string(workspace().join("deploy/node-lb/static-pod.yaml")).expect("a file");
    assert!(shipped.contains(NODE_LB_IMAGE), "{shipped}");
    fs::write(worker.machine.on_disk("/etc/kubernetes/manifests/node-lb.yaml"), shipped).expect("a file");
    worker.relays().await;
}

/// The traces that have come or gone since.
async fn left_since(worker: &BootedWorker, before: &BTreeSet<String>) -> Vec<String> {
    traces(worker).await.symmetric_difference(before).cloned().collect()
}

/// All that a join may leave: files, units, rules of the packet filter, and addresses but those of the network plugin.
async fn traces(worker: &BootedWorker) -> BTreeSet<String> {
    let mut traces: BTreeSet<String> =
        worker.machine.paths().into_iter().map(|path| path.display().to_string()).collect();
    for words in [
        &["nft", "list", "ruleset"] as &[&str],
        &["ip", "-o", "addr", "show"],
        &["systemctl", "list-units", "--all", "--no-legend", "--plain", "*.service"],
    ] {
        let output = worker.machine.run(words[0], &words[1..]).await.expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        traces.extend(text.lines().filter(|line| !line.contains("cni0")).map(str::to_owned));
    }
    traces
}

/// Starts a worker, or skips the test.
async fn worker(test: &str) -> Option<BootedWorker> {
    BootedWorker::start().await.map_err(|error| skip(test, &error.to_string())).ok()
}

/// The same as `make demo WORKER=1 CI=1`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: the demo of a worker, 30 s"]
async fn the_demo_of_a_worker_shows_all_that_it_promises() {
    let demo = Invocation::of(binary("tombolo-demo")).arguments(["--once", "--worker"]);

    let ended = Ended::of(&demo).await;

    assert!(ended.is_done, "{}", ended.said);
    for shown in
        ["tombolo node join --token", "the Node worker is Ready", "everything was shown", "nothing is left"]
    {
        assert!(ended.out.contains(shown), "{shown:?} is missing: {}", ended.out);
    }
}
