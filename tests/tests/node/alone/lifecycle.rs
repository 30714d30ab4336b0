//! A node comes up with real pods, beside another one at the same addresses, and leaves nothing behind.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use tests::lab::{Uplink, run};
use tests::node;
use tests::node_edge::{IMAGE, NAMES, NodeEdge, POD, trial};
use tests::skip::skip;

/// The file to which the process that will be killed writes what it has started.
const REPORT: &str = "TOMBOLO_REPORT_NODE";
/// The limit for a node to come up, or to be gone. Builds of other tests may run beside.
const SOON: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Each command reaches the right one.
#[test]
fn two_nodes_at_once_run_pods_of_the_same_name() {
    trial("two_nodes_at_once_run_pods_of_the_same_name", async |edges| {
        for (edge, name) in edges.edges.iter().zip(NAMES) {
            for kubectl in [&edge.direct, &edge.tunneled] {
                let command = ["exec", POD, "--", "cat", "/proc/1/cmdline"];
                assert_eq!(kubectl.stdout(&command).await.replace('\0', " "), format!("pod serve {name} "));
                let node = ["get", "pod", POD, "-o", "jsonpath={.spec.nodeName} {.status.hostIP}"];
                assert_eq!(kubectl.stdout(&node).await, format!("{name}-node 192.168.1.10"));
            }
        }
    });
}

#[test]
fn a_daemon_sets_pods_get_a_token_that_the_api_server_accepts() {
    trial("a_daemon_sets_pods_get_a_token_that_the_api_server_accepts", async |edges| {
        let edge = &edges.edges[0];
        let manifest = format!(
            "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{ name: daemons }}\nspec:\n  selector: {{ matchLabels: {{ app: daemons }} }}\n  \
             template:\n    metadata: {{ labels: {{ app: daemons }} }}\n    spec:\n      \
             containers: [{{ name: main, image: {IMAGE}, imagePullPolicy: Never, command: [pod, serve, daemon] }}]\n"
        );
        edge.apply("daemons", &manifest).await;

        edge.direct.stdout(&["rollout", "status", "daemonset/daemons", "--timeout=100s"]).await;

        let files = ["exec", "daemonset/daemons", "--", "sh", "-c"];
        let read = "cd /var/run/secrets/kubernetes.io/serviceaccount && cat namespace && echo && cat token";
        let message = edge.direct.stdout(&[files.as_slice(), &[read]].concat()).await;
        let (namespace, token) = message.split_once('\n').expect("two lines");
        assert_eq!(namespace, "default");
        let whoami = ["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"];
        let token = tests::kube::kubeconfig::Credential::Token(token.trim().to_owned());
        let kubeconfig = edge.cluster.write_kubeconfig("daemon.conf", token).expect("a file can be written");
        let kubectl = edge
            .cluster
            .kubectl_with(kubeconfig)
            .in_network_namespace(Some(edge.site.pod().path().to_owned()));
        assert_eq!(kubectl.stdout(&whoami).await, "system:serviceaccount:default:default");
    });
}

/// Runs itself as a process of its own, kills that, and looks for what it had started.
#[test]
fn nothing_of_a_node_is_left_after_a_drop_or_a_killed_test_process() {
    const TEST: &str = "alone::lifecycle::nothing_of_a_node_is_left_after_a_drop_or_a_killed_test_process";
    if let Some(report) = std::env::var_os(REPORT) {
        return come_and_go_and_hang(Path::new(&report));
    }
    if let Err(unable) = node::assets() {
        return skip("nothing_of_a_node_is_left_after_a_drop_or_a_killed_test_process", &unable.to_string());
    }
    let folder = tempfile::tempdir().expect("a folder");
    let report = folder.path().join("report");
    let mut child = std::process::Command::new(std::env::current_exe().expect("a test has a program"))
        .args(["--exact", TEST])
        .env(REPORT, &report)
        .spawn()
        .expect("it can be run");
    let written = wait_until(|| {
        assert!(child.try_wait().expect("a child").is_none(), "it has failed, see its output above");
        fs::read_to_string(&report).ok().filter(|text| text.ends_with('\n'))
    });
    let (space, cgroups) = written.trim().split_once(' ').expect("two words");
    assert!(!in_namespace(space).is_empty() && !cgroups_of(cgroups).is_empty(), "{written}");

    child.kill().expect("it runs");
    child.wait().expect("a child");

    wait_until(|| in_namespace(space).is_empty().then_some(()));
    // Folders take no process with them: the next node removes them.
    comes_up();
    assert_eq!(cgroups_of(cgroups), Vec::<String>::new());
}

/// Starts a node and drops it, starts another one, writes its process namespace and its control groups, and
/// then does not end.
fn come_and_go_and_hang(report: &Path) {
    comes_up();
    let hung = run(async |lab| {
        let rig = lab.rig("").await;
        let edge = NodeEdge::start(lab, &rig, NAMES[0], Uplink::Cable).await;
        let space = fs::read_link(edge.node.processes()).expect("a namespace");
        let text = format!("{} {}\n", space.display(), edge.node.cgroups());
        fs::write(report, text).expect("a file can be written");
        std::future::pending::<()>().await;
    });
    hung.expect("a lab");
}

/// A node with its pod comes up. After its drop nothing is left of it.
fn comes_up() {
    let (space, cgroups) = run(async |lab| {
        let rig = lab.rig("").await;
        let edge = NodeEdge::start(lab, &rig, NAMES[0], Uplink::Cable).await;
        let space = fs::read_link(edge.node.processes()).expect("a namespace").display().to_string();
        let cgroups = edge.node.cgroups().to_owned();
        assert!(!in_namespace(&space).is_empty() && !cgroups_of(&cgroups).is_empty());
        (space, cgroups)
    })
    .expect("a lab");
    assert_eq!(cgroups_of(&cgroups), Vec::<String>::new());
    // The kernel ends what is in the box with its first process, and nobody waits for that.
    wait_until(|| in_namespace(&space).is_empty().then_some(()));
}

/// The processes in a process namespace.
fn in_namespace(space: &str) -> Vec<String> {
    let all = fs::read_dir("/proc").expect("procfs").flatten().map(|entry| entry.path());
    let inside = |folder: &std::path::PathBuf| {
        fs::read_link(folder.join("ns/pid")).is_ok_and(|theirs| theirs == Path::new(space))
    };
    all.filter(inside).map(|folder| fs::read_to_string(folder.join("comm")).unwrap_or_default()).collect()
}

/// The folders of control groups by this name.
fn cgroups_of(name: &str) -> Vec<String> {
    let left = node::cgroups_left().into_iter().filter(|folder| folder.ends_with(name));
    left.map(|folder| folder.display().to_string()).collect()
}

fn wait_until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "what was waited for did not happen within {SOON:?}");
        std::thread::sleep(LOOK_EVERY);
    }
}
