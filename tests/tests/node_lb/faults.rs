//! API servers that die, freeze, restart and move, under callers that must not notice much.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use tests::lb_cluster::callers::{Callers, Report};
use tests::lb_cluster::{LbCluster, MASTERS, NodeLb, READY_MAX, until};
use tests::skip::skip;
use tests::sources::workspace;
use tokio::time::sleep;

/// Callers that run beside each other.
const CALLERS: usize = 9;

/// The time for which callers run before a fault and after it.
const AROUND: Duration = Duration::from_secs(2);

/// Longest time for which callers may be without an answer, where haproxy's default checks take over 10 s.
const GAP_MAX: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_go_on_while_api_servers_die_freeze_restart_and_move() {
    const NAME: &str = "callers_go_on_while_api_servers_die_freeze_restart_and_move";
    let mut cluster = match LbCluster::start().await {
        Ok(cluster) => cluster,
        Err(error) => return skip(NAME, &error.to_string()),
    };
    // The others are found by the cluster's own list.
    let lb = NodeLb::start(&cluster, &[cluster.socket(0)]).await;
    until_all_ready(&cluster, &lb).await;
    let first = lb.metrics(&cluster).await;
    assert!(first.contains("tombolo_lb_api_servers{state=\"ready\"} 3"), "{first}");
    assert_documented(&first);
    let names = cluster.kubectl().stdout(&["get", "namespaces", "-o", "name"]).await;
    assert!(names.contains("namespace/default"), "{names}");

    killed(&mut cluster, &lb).await;
    frozen(&mut cluster, &lb).await;
    without_power(&cluster, &lb).await;
    restarted_in_turn(&mut cluster, &lb).await;
    without_events(&mut cluster, &lb).await;

    eprintln!("node-lb has {} KiB in RAM", lb.resident_bytes() / 1024);
}

/// At most one request fails for each caller that was on it.
async fn killed(cluster: &mut LbCluster, lb: &NodeLb) {
    let callers = start(cluster).await;
    sleep(AROUND).await;

    let busiest = busiest(cluster, lb).await;
    cluster.kill(busiest);

    lb.until_state(cluster, cluster.socket(busiest), "down", READY_MAX).await;
    sleep(AROUND).await;
    let report = report("killed", callers).await;
    assert!(report.failed.len() <= CALLERS, "{report:?}");
    assert!(report.longest < GAP_MAX, "{report:?}");
    cluster.start_again(busiest).await;
    lb.until_state(cluster, cluster.socket(busiest), "ready", READY_MAX).await;
}

/// Its kernel goes on to accept connections, and nobody answers.
async fn frozen(cluster: &mut LbCluster, lb: &NodeLb) {
    let callers = start(cluster).await;
    sleep(AROUND).await;

    let busiest = busiest(cluster, lb).await;
    cluster.signal(busiest, Signal::STOP);

    lb.until_state(cluster, cluster.socket(busiest), "down", READY_MAX).await;
    sleep(AROUND).await;
    let report = report("frozen", callers).await;
    // The requests that were under way on it fail, and no other.
    assert!(report.failed.len() <= CALLERS, "{report:?}");
    assert!(report.longest < GAP_MAX, "{report:?}");
    let metrics = lb.metrics(cluster).await;
    let cut =
        format!("tombolo_lb_connections_total{{api_server=\"{}\",result=\"cut\"}} ", cluster.socket(busiest));
    assert!(metrics.contains(&cut) && !metrics.contains(&format!("{cut}0\n")), "{metrics}");
    cluster.signal(busiest, Signal::CONT);
    lb.until_state(cluster, cluster.socket(busiest), "ready", READY_MAX).await;
}

/// The cable of its machine is pulled: no answer, no RST, no FIN.
async fn without_power(cluster: &LbCluster, lb: &NodeLb) {
    let callers = start(cluster).await;
    sleep(AROUND).await;

    let busiest = busiest(cluster, lb).await;
    cluster.masters[busiest].ip("link set eth0 down").await.expect("a cable can be pulled");

    lb.until_state(cluster, cluster.socket(busiest), "down", READY_MAX).await;
    sleep(AROUND).await;
    let report = report("without power", callers).await;
    assert!(report.failed.len() <= CALLERS, "{report:?}");
    assert!(report.longest < GAP_MAX, "{report:?}");
    cluster.masters[busiest].ip("link set eth0 up").await.expect("and put in again");
    lb.until_state(cluster, cluster.socket(busiest), "ready", READY_MAX).await;
}

/// Every API server says at `/readyz` that it is not ready, and serves all that callers ask for.
async fn without_events(cluster: &mut LbCluster, lb: &NodeLb) {
    let callers = start(cluster).await;
    sleep(AROUND).await;

    cluster.edge.kill_events_etcd();

    until("the API server is not ready", READY_MAX, async || {
        let said = cluster.edge.kubectl(&["get", "--raw", "/readyz"]).await.expect("kubectl runs");
        (!said.status.success()).then_some(())
    })
    .await;
    // Probes have their time to notice, and new connections are served.
    sleep(AROUND * 2).await;
    until_all_ready(cluster, lb).await;
    let names = cluster.kubectl().stdout(&["get", "namespaces", "-o", "name"]).await;
    assert!(names.contains("namespace/default"), "{names}");
    sleep(AROUND).await;
    let report = report("without the etcd of events", callers).await;
    assert_eq!(report.failed, Vec::<String>::new());
}

/// No request fails, although the last one comes back with another address.
async fn restarted_in_turn(cluster: &mut LbCluster, lb: &NodeLb) {
    let callers = start(cluster).await;
    sleep(AROUND).await;

    for master in 0..MASTERS {
        cluster.terminate(master).await;
        let before = cluster.socket(master);
        if master == MASTERS - 1 {
            cluster.move_master(master, 3).await;
            assert_ne!(cluster.socket(master), before);
        }
        cluster.start_again(master).await;
        lb.until_state(cluster, cluster.socket(master), "ready", READY_MAX).await;
    }

    sleep(AROUND).await;
    let report = report("restarted in turn", callers).await;
    assert_eq!(report.failed, Vec::<String>::new());
    assert!(report.answered > 500, "{report:?}");
}

/// The master with the most connections.
async fn busiest(cluster: &LbCluster, lb: &NodeLb) -> usize {
    let metrics = lb.metrics(cluster).await;
    let connections = |master: &usize| {
        let name = format!("tombolo_lb_connections{{api_server=\"{}\"}} ", cluster.socket(*master));
        let value = metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse::<usize>().ok());
        value.expect("each has this metric")
    };
    let masters: Vec<usize> = (0..MASTERS).map(|master| connections(&master)).collect();
    eprintln!("connections of each master: {masters:?}");
    (0..MASTERS).max_by_key(connections).expect("there are some")
}

async fn start(cluster: &LbCluster) -> Callers {
    let administrator = cluster.administrator();
    Callers::start(&cluster.on_worker, CALLERS, cluster.edge.ca_pem(), &administrator).await
}

async fn report(what: &str, callers: Callers) -> Report {
    let report = callers.stop().await;
    let Report { answered, failed, longest, times: _ } = &report;
    eprintln!("{what}: {answered} answered, {} failed, longest gap {longest:?}; {failed:?}", failed.len());
    report
}

/// The page of metrics has those of node-lb, and no other of that name.
fn assert_documented(metrics: &str) {
    let page = fs::read_to_string(workspace().join("docs/metrics.md")).expect("the page");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let documented: BTreeSet<&str> = rows.filter(|name| name.starts_with("tombolo_lb_")).collect();
    let types = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let found: BTreeSet<&str> = types.filter(|name| name.starts_with("tombolo_lb_")).collect();
    assert_eq!(found, documented);
}

async fn until_all_ready(cluster: &LbCluster, lb: &NodeLb) {
    for master in 0..MASTERS {
        lb.until_state(cluster, cluster.socket(master), "ready", READY_MAX).await;
    }
}
