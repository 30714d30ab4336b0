//! The agent as it ships for Kubernetes: restricted pods of a DaemonSet, of an image without a shell, that enroll by themselves.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, fs};

use rustix::process::Signal;
use tests::enroll;
use tests::lab::{Uplink, run};
use tests::node;
use tests::node_edge::{NAMES, NodeEdge, POD};
use tests::rig::Rig;
use tests::skip::skip;

/// Where `.ci/agent-image` has left the image, and what it calls it.
const ARCHIVE: &str = "TOMBOLO_AGENT_IMAGE";
const IMAGE: &str = "tombolo.test/tunnel-agent";
const TAG: &str = "1";

const DAEMON_SET: &str = "daemonset/tunnel-agent";

/// A line each 50 ms, for 20 s: it begins before the old agent is told to finish and ends behind it.
const SLOW: &str = "seq 1 400 | while read n; do echo $n; sleep 0.05; done";
const SLOW_LINES: u32 = 400;

#[test]
#[ignore = "soak: its image is built for four minutes first, by .ci/agent-image"]
fn agents_of_the_daemon_set_enroll_serve_and_are_replaced_while_no_read_fails_and_a_shell_goes_on() {
    let test = "agents_of_the_daemon_set";
    if let Err(unable) = node::assets() {
        return skip(test, &unable.to_string());
    }
    let Some(archive) = env::var_os(ARCHIVE).map(PathBuf::from) else {
        return skip(test, &format!("{ARCHIVE} does not say where the image is, run: .ci/agent-image"));
    };
    let done = run(async |lab| {
        let mut rig = lab.rig("").await;
        enroll::open(&mut rig).await;
        let mut edge = NodeEdge::start(lab, &rig, NAMES[0], Uplink::Cable).await;
        // The agent beside the cluster goes before one in it comes.
        assert_eq!(Rig::ends_with(&mut edge.agent.process, Signal::TERM).await, Some(0));
        rig.disconnected(edge.name).await;

        edge.node.load_archive(&archive).await.expect("an image");
        deploy(&edge, &rig).await;
        let secret = enroll::at(&rig, &["token", "create", "--cluster", edge.name, "-o", "manifest"]).await;
        edge.apply("enrollment", &secret).await;
        rolled_out(&edge).await;

        let first = uids(&edge).await;
        assert_eq!(agents(&rig, edge.name).await.intersection(&first).count(), 1, "{first:?}");
        let shown = edge.tunneled.stdout(&["exec", POD, "--", "cat", "/proc/1/cmdline"]).await;
        assert_eq!(shown.replace('\0', " "), format!("pod serve {} ", edge.name));
        let shell = ["exec", "--namespace", "tombolo", DAEMON_SET, "--", "sh"];
        let shell = edge.tunneled.run(&shell).await.expect("kubectl");
        let said = String::from_utf8_lossy(&shell.stderr);
        assert!(!shell.status.success() && said.contains("executable file not found"), "{said}");

        replaced(&edge).await;

        let second = uids(&edge).await;
        assert_eq!((second.len(), second.intersection(&first).count()), (1, 0), "{first:?} {second:?}");
        // The token was used up by the first pod: this one proved itself by its ServiceAccount.
        assert_eq!(agents(&rig, edge.name).await.intersection(&second).count(), 1, "{second:?}");
    });
    done.expect("a lab");
}

/// Replaces the agents, and reads meanwhile.
async fn replaced(edge: &NodeEdge) {
    let is_done = AtomicBool::new(false);
    let slow = edge.tunneled.run(&["exec", POD, "--", "sh", "-c", SLOW]);
    let update = async {
        let old = pods(edge, "{.items[*].metadata.name}").await;
        edge.direct.stdout(&["rollout", "restart", DAEMON_SET, "--namespace", "tombolo"]).await;
        rolled_out(edge).await;
        let old = format!("pod/{old}");
        edge.direct.stdout(&["wait", "--for=delete", &old, "--namespace", "tombolo", "--timeout=100s"]).await;
        is_done.store(true, Ordering::Relaxed);
    };
    let reads = async {
        let mut reads = 0;
        while !is_done.load(Ordering::Relaxed) {
            let read = edge.tunneled.stdout(&["get", "pod", POD, "-o", "jsonpath={.metadata.name}"]).await;
            assert_eq!(read, POD);
            reads += 1;
        }
        reads
    };
    let (slow, (), reads) = tokio::join!(slow, update, reads);
    let slow = slow.expect("kubectl");
    let lines: String = (1..=SLOW_LINES).map(|n| format!("{n}\n")).collect();
    assert!(slow.status.success(), "{}", String::from_utf8_lossy(&slow.stderr));
    assert_eq!(String::from_utf8_lossy(&slow.stdout), lines);
    assert!(reads > 10, "{reads}");
}

/// Applies the example as a person would who has copied it, with the trial's server and image.
async fn deploy(edge: &NodeEdge, rig: &Rig) {
    let copy = edge.file("deploy");
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    for folder in ["agent", "examples/edge-a"] {
        fs::create_dir_all(copy.join(folder)).expect("a folder");
        for file in fs::read_dir(deploy.join(folder)).expect("a folder").flatten() {
            fs::copy(file.path(), copy.join(folder).join(file.file_name())).expect("a file can be copied");
        }
    }
    let site = copy.join("examples/edge-a");
    change(&site.join("agent.yaml"), "gateway.example:8443", &rig.dialed().to_string());
    change(&site.join("kustomization.yaml"), "registry.example/tombolo/tunnel-agent", IMAGE);
    change(&site.join("kustomization.yaml"), "newTag: 0.1.0", &format!("newTag: \"{TAG}\""));
    edge.direct.stdout(&["apply", "--kustomize", site.to_str().expect("a path")]).await;
}

fn change(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).expect("a file");
    assert!(text.contains(from), "{from}: {text}");
    fs::write(file, text.replace(from, to)).expect("it is ours");
}

async fn rolled_out(edge: &NodeEdge) {
    let status = ["rollout", "status", DAEMON_SET, "--namespace", "tombolo", "--timeout=100s"];
    let output = edge.direct.run(&status).await.expect("kubectl");
    if !output.status.success() {
        let pods = edge.direct.stdout(&["describe", "pods", "--namespace", "tombolo"]).await;
        let log = ["logs", DAEMON_SET, "--namespace", "tombolo", "--tail=50"];
        let log = edge.direct.run(&log).await.expect("kubectl");
        panic!(
            "{}\n{pods}\n{}",
            String::from_utf8_lossy(&output.stderr),
            String::from_utf8_lossy(&log.stdout)
        );
    }
}

/// Who the agents in pods are.
async fn uids(edge: &NodeEdge) -> BTreeSet<String> {
    pods(edge, "{.items[*].metadata.uid}").await.split_whitespace().map(str::to_owned).collect()
}

async fn pods(edge: &NodeEdge, what: &str) -> String {
    let path = format!("jsonpath={what}");
    edge.direct.stdout(&["get", "pods", "--namespace", "tombolo", "-o", &path]).await
}

/// The agents that the server has on record for a cluster.
async fn agents(rig: &Rig, cluster: &str) -> BTreeSet<String> {
    let listed = enroll::at(rig, &["agent", "list"]).await;
    let prefix = format!("{cluster}/");
    listed.split_whitespace().filter_map(|word| word.strip_prefix(&prefix)).map(str::to_owned).collect()
}
