//! `kubectl logs`: the log of a container, the log of its predecessor, and lines that are still to come.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tests::kube::kubectl::Kubectl;
use tests::node_edge::{IMAGE, NodeEdge, POD, trial};
use tests::process::Process;

use super::kubectls::{Client, SOON, until, wrote};

#[test]
fn logs_are_those_of_the_pod_and_since_leaves_out_what_is_older() {
    trial("logs_are_those_of_the_pod", async |edges| {
        let edge = &edges.edges[0];
        // Kubernetes counts in full seconds: two lines have to be some apart.
        edge.create_pod("talks", "command: [sh, -c, 'echo old; sleep 3; echo new >&2']").await;
        let ended = ["wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/talks", "--timeout=100s"];
        edge.direct.stdout(&ended).await;
        for kubectl in [&edge.direct, &edge.tunneled] {
            assert_eq!(kubectl.stdout(&["logs", "talks"]).await, "old\nnew\n");
            assert_eq!(kubectl.stdout(&["logs", "talks", "--since=1h"]).await, "old\nnew\n");
            assert_eq!(kubectl.stdout(&["logs", "talks", "--tail=1"]).await, "new\n");
            let stamped = kubectl.stdout(&["logs", "talks", "--timestamps"]).await;
            let (second, _) = stamped.lines().last().and_then(|line| line.split_once('.')).expect("a time");
            let since = format!("--since-time={second}Z");
            assert_eq!(kubectl.stdout(&["logs", "talks", &since]).await, "new\n", "{stamped}");
        }
    });
}

#[test]
fn previous_logs_are_those_of_the_container_before() {
    trial("previous_logs_are_those_of_the_container_before", async |edges| {
        let edge = &edges.edges[0];
        let lives = "if [ -e /lives/one ]; then echo second life; exec pod pause; fi; : >/lives/one; echo first life; exit 3";
        let manifest = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{ name: reborn }}\nspec:\n  volumes: [{{ name: lives, emptyDir: {{}} }}]\n  \
             containers:\n  - {{ name: main, image: {IMAGE}, imagePullPolicy: Never, command: [sh, -c, '{lives}'], \
             volumeMounts: [{{ name: lives, mountPath: /lives }}] }}\n"
        );
        edge.apply("reborn", &manifest).await;
        let again = "--for=jsonpath={.status.containerStatuses[0].restartCount}=1";
        edge.direct.stdout(&["wait", again, "pod/reborn", "--timeout=100s"]).await;
        for kubectl in [&edge.direct, &edge.tunneled] {
            assert_eq!(kubectl.stdout(&["logs", "reborn", "--previous"]).await, "first life\n");
        }
        until("the second life", async || {
            (edge.tunneled.stdout(&["logs", "reborn"]).await == "second life\n").then_some(())
        })
        .await;
    });
}

#[test]
fn followed_logs_arrive_and_ctrl_c_ends_the_stream_at_the_kubelet() {
    trial("followed_logs_arrive_and_ctrl_c_ends_the_stream_at_the_kubelet", async |edges| {
        // The one cluster whose logs no other trial follows.
        let edge = &edges.edges[1];
        for (name, kubectl) in [("direct", &edge.direct), ("tunneled", &edge.tunneled)] {
            follows_until_ctrl_c(edge, name, kubectl).await;
        }
    });
}

#[test]
#[ignore = "soak: a time is claimed, for which nothing else may run"]
fn ctrl_c_ends_followed_logs_at_the_kubelet_within_a_second() {
    trial("ctrl_c_ends_followed_logs_within_a_second", async |edges| {
        let edge = &edges.edges[1];
        for n in 0..20 {
            let took = follows_until_ctrl_c(edge, &format!("tunneled-{n}"), &edge.tunneled).await;
            println!("{n}: {took:?}");
            assert!(took < Duration::from_secs(1), "{took:?}");
        }
    });
}

/// Follows the pod's logs, sees what comes and presses Ctrl-C; returns how long it took until the kubelet
/// served nobody.
async fn follows_until_ctrl_c(edge: &NodeEdge, name: &str, kubectl: &Kubectl) -> Duration {
    let client = Client { name: name.to_owned(), kubectl: kubectl.clone() };
    let mut process = what_comes_is_seen(edge, &client).await;
    assert!(followers(edge).await >= 1.0, "{name}: the kubelet does not count them as is thought here");

    process.signal(Signal::INT).expect("kubectl runs");

    let pressed = Instant::now();
    process.wait(SOON).await.expect("kubectl ends");
    until("the kubelet sees it end", async || (followers(edge).await == 0.0).then_some(())).await;
    pressed.elapsed()
}

/// Follows the logs of the pod, and returns the kubectl once it has printed old and new lines.
pub async fn what_comes_is_seen(edge: &NodeEdge, client: &Client) -> Process {
    let output = edge.file(&format!("{}-follow.out", client.name));
    let mut process = client.kubectl.start(&["logs", "-f", POD], &output).await.expect("kubectl starts");
    wrote(&mut process, &format!("serving {}\n", edge.name)).await;
    let says = format!("echo said to {} >/proc/1/fd/1", client.name);
    edge.direct.stdout(&["exec", POD, "--", "sh", "-c", &says]).await;
    wrote(&mut process, &format!("said to {}\n", client.name)).await;
    process
}

/// Number of log streams that the kubelet serves.
async fn followers(edge: &NodeEdge) -> f64 {
    let path = format!("/api/v1/nodes/{}-node/proxy/metrics", edge.name);
    let metrics = edge.direct.stdout(&["get", "--raw", &path]).await;
    let ours = metrics.lines().filter(|line| {
        line.starts_with("kubelet_http_inflight_requests{") && line.contains("path=\"containerLogs\"")
    });
    ours.map(|line| line.rsplit(' ').next().and_then(|count| count.parse::<f64>().ok()).expect("a number"))
        .sum()
}
