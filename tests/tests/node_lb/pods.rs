//! Pods that use the Service's address, by node-lb while it runs and by kube-proxy when it does not.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tests::dial::dial;
use tests::lab::NamespaceRuntime;
use tests::lb_cluster::kube_proxy::{KubeProxy, ruleset};
use tests::lb_cluster::pod::{POD_NETWORK, PodNetwork};
use tests::lb_cluster::{LbCluster, MASTERS, NodeLb, READY_MAX, until};
use tests::process::{Invocation, Process, run};
use tests::skip::skip;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The address of the Service `kubernetes`.
const SERVICE: &str = "10.96.0.1:443";

/// The address of node-lb for pods.
const FOR_PODS: &str = "169.254.10.21:7443";

/// The table of nftables that node-lb makes.
const TABLE: &str = "table ip tombolo-node-lb";

/// Longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Longest time of a new connection after the dead API server was noticed. kube-proxy alone takes 13 s.
const STALL_MAX: Duration = Duration::from_secs(3);

/// New connections after a master has lost its power. Each third one of kube-proxy's goes to it.
const CONNECTIONS: usize = 20;

/// Handovers while every event of a table is seen.
const HANDOVERS: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_reach_a_healthy_api_server_by_the_services_address() {
    const NAME: &str = "pods_reach_a_healthy_api_server_by_the_services_address";
    let cluster = match LbCluster::start().await {
        Ok(cluster) => cluster,
        Err(error) => return skip(NAME, &error.to_string()),
    };
    let _kube_proxy = match KubeProxy::start(&cluster).await {
        Ok(kube_proxy) => kube_proxy,
        Err(error) => return skip(NAME, &error.to_string()),
    };
    // Without a route the kernel refuses to send to the Service before any rule sees the packet.
    cluster.worker.ip("route add default via 10.7.1.2").await.expect("a route can be added");
    let pod = PodNetwork::start(&cluster, 1).await;
    let outside = PodNetwork::outside(&cluster).await;
    answered("by kube-proxy alone", &pod.inside, SERVICE, &cluster).await;

    let mut lb = NodeLb::start_for_pods(&cluster, &[cluster.socket(0)], POD_NETWORK, SERVICE).await;
    for master in 0..MASTERS {
        lb.until_state(&cluster, cluster.socket(master), "ready", READY_MAX).await;
    }
    until("the table is there", READY_MAX, async || ruleset(&cluster).await.contains(TABLE).then_some(()))
        .await;

    everyone_who_may_is_served(&cluster, &lb, &pod, &outside).await;
    no_new_connection_stalls(&cluster, &lb, &pod).await;
    the_table_is_there_over_handovers(&cluster, &mut lb, &pod).await;
    the_end_leaves_nothing(&cluster, &mut lb, &pod).await;
}

async fn everyone_who_may_is_served(
    cluster: &LbCluster,
    lb: &NodeLb,
    pod: &PodNetwork,
    outside: &PodNetwork,
) {
    let before = closed(cluster, lb).await;
    answered("a pod by the Service", &pod.inside, SERVICE, cluster).await;
    answered("a process of the worker by the Service", &cluster.on_worker, SERVICE, cluster).await;
    // Its certificate does not bear this address, so it is not verified here.
    let marker = pod.inside.run(timeout(ANSWER_MAX, is_accepted())).await;
    assert!(marker.expect("in time"), "a pod by the address of node-lb");
    until("all three went by node-lb", READY_MAX, async || {
        (closed(cluster, lb).await >= before + 3).then_some(())
    })
    .await;

    let refused = outside.inside.run(timeout(ANSWER_MAX, is_accepted())).await;

    assert!(!refused.expect("in time"), "somebody else was served");
    let metrics = lb.metrics(cluster).await;
    assert!(metrics.contains("tombolo_lb_connections_refused_total 1\n"), "{metrics}");
}

/// The cable of a master is pulled, so nothing there answers, and no RST comes.
async fn no_new_connection_stalls(cluster: &LbCluster, lb: &NodeLb, pod: &PodNetwork) {
    cluster.masters[2].ip("link set eth0 down").await.expect("a cable can be pulled");
    lb.until_state(cluster, cluster.socket(2), "down", READY_MAX).await;

    for number in 0..CONNECTIONS {
        let began = Instant::now();
        answered(&format!("connection {number}"), &pod.inside, SERVICE, cluster).await;
        assert!(began.elapsed() < STALL_MAX, "connection {number} took {:?}", began.elapsed());
    }

    cluster.masters[2].ip("link set eth0 up").await.expect("and put in again");
    lb.until_state(cluster, cluster.socket(2), "ready", READY_MAX).await;
}

/// Another process owns the table and the address after each handover, and both were never away. A connection goes on.
async fn the_table_is_there_over_handovers(cluster: &LbCluster, lb: &mut NodeLb, pod: &PodNetwork) {
    let (service, ca_pem): (SocketAddr, _) = (SERVICE.parse().unwrap(), cluster.edge.ca_pem().to_owned());
    let dialed = async move { dial(service, &ca_pem, &["http/1.1"], None).await };
    let mut kept = pod.inside.run(dialed).await.expect("node-lb serves");
    let log = lb.home().join("monitor.log");
    let monitor = Invocation::of("nft")
        .arguments(["monitor", "tables"])
        .in_network_namespace(Some(cluster.worker.path().to_owned()));
    let _monitor = Process::start(&monitor, &log).await.expect("nft runs");
    let events = || std::fs::read_to_string(&log).expect("a file");
    until("nft sees events", READY_MAX, async || {
        nft(cluster, &["add", "table", "ip", "seen"]).await;
        nft(cluster, &["delete", "table", "ip", "seen"]).await;
        events().contains("delete table ip seen").then_some(())
    })
    .await;

    for _ in 0..HANDOVERS {
        lb.hand_over().await;
        assert!(ruleset(cluster).await.contains(TABLE));
        answered("a pod by the Service after a handover", &pod.inside, SERVICE, cluster).await;
    }

    nft(cluster, &["add", "table", "ip", "last"]).await;
    until("nft has seen all events", READY_MAX, async || events().contains("table ip last").then_some(()))
        .await;
    assert!(!events().contains(TABLE), "{}", events());
    let asking = async move {
        kept.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        kept.read_to_string(&mut answer).await.map(|_| answer)
    };
    let answer = pod.inside.run(timeout(ANSWER_MAX, asking)).await.expect("in time").expect("not broken");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let addresses = cluster.worker.ip("addr show dev lo").await.expect("ip runs");
    assert!(addresses.contains("169.254.10.21"), "{addresses}");
    for master in 0..MASTERS {
        lb.until_state(cluster, cluster.socket(master), "ready", READY_MAX).await;
    }
}

/// After `kill -9` the table is gone, and kube-proxy serves the next connection. After SIGTERM the address is gone, too.
async fn the_end_leaves_nothing(cluster: &LbCluster, lb: &mut NodeLb, pod: &PodNetwork) {
    lb.kill();
    until("the table is gone", ANSWER_MAX, async || (!ruleset(cluster).await.contains(TABLE)).then_some(()))
        .await;
    answered("by kube-proxy after node-lb was killed", &pod.inside, SERVICE, cluster).await;

    lb.start_again().await;
    until("the table is there again", READY_MAX, async || {
        ruleset(cluster).await.contains(TABLE).then_some(())
    })
    .await;
    until("a pod is served by node-lb again", READY_MAX, async || {
        pod.inside.run(timeout(ANSWER_MAX, is_accepted())).await.is_ok_and(|accepted| accepted).then_some(())
    })
    .await;
    assert_eq!(lb.stop(Duration::from_secs(20)).await, Some(0), "{}", lb.log());

    assert!(!ruleset(cluster).await.contains(TABLE));
    let addresses = cluster.worker.ip("addr show dev lo").await.expect("ip runs");
    assert!(!addresses.contains("169.254.10.21"), "{addresses}");
    answered("by kube-proxy after node-lb has stopped", &pod.inside, SERVICE, cluster).await;
}

/// Runs `nft` on the worker.
async fn nft(cluster: &LbCluster, words: &[&str]) {
    let nft = Invocation::of("nft")
        .arguments(words.iter().copied())
        .in_network_namespace(Some(cluster.worker.path().to_owned()));
    let output = run(&nft, ANSWER_MAX).await.expect("nft runs");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Asks an API server by this address, with its certificate verified.
async fn answered(what: &str, from: &NamespaceRuntime, address: &str, cluster: &LbCluster) {
    let (address, ca_pem): (SocketAddr, _) = (address.parse().unwrap(), cluster.edge.ca_pem().to_owned());
    let asking = async move {
        let mut tls = dial(address, &ca_pem, &["http/1.1"], None).await?;
        tls.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        tls.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = from.run(timeout(ANSWER_MAX, asking)).await;
    let answer = answer
        .unwrap_or_else(|_| panic!("{what}: not in time"))
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(answer.starts_with("HTTP/1.1 200"), "{what}: {answer}");
}

/// Sends bytes that are no TLS to the address for pods. An API server answers those with HTTP 400.
async fn is_accepted() -> bool {
    let Ok(mut stream) = TcpStream::connect(FOR_PODS).await else { return false };
    let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    !answer.is_empty()
}

/// The connections by node-lb that have ended.
async fn closed(cluster: &LbCluster, lb: &NodeLb) -> u64 {
    let metrics = lb.metrics(cluster).await;
    let of_line = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        let counts = name.starts_with("tombolo_lb_connections_total{") && name.contains("result=\"closed\"");
        counts.then(|| value.parse::<u64>().ok()).flatten()
    };
    metrics.lines().filter_map(of_line).sum()
}
