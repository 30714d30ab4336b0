//! A worker that is far too busy, while all API servers are well.
//!
//! Balancers, API servers and the other load compete at the same priority.

use std::fs;
use std::time::{Duration, Instant};

use tests::balancers::{Balancer, BalancerKind};
use tests::lb_cluster::LbCluster;
use tests::lb_cluster::callers::Callers;
use tests::process::{Invocation, Process};
use tests::scratch::Scratch;
use tests::skip::skip;
use tokio::time::sleep;

/// Callers that each balancer has at once.
const CALLERS: usize = 9;

/// Processes that want a core each.
const BURNERS: usize = 30;

/// The load average that is kept up while callers run.
const LOAD_MIN: f64 = 25.0;

/// The time for which callers run.
const DURATION: Duration = Duration::from_secs(600);

/// Longest wait for the load average.
const LOADED_MAX: Duration = Duration::from_secs(300);

/// Pause between two looks at the load average.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Peers that are installed run beside node-lb with callers of their own, and are reported. They are not judged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: ten minutes in which the machine does nothing else"]
async fn no_connection_of_a_living_api_server_ends_on_a_busy_worker() {
    const NAME: &str = "no_connection_of_a_living_api_server_ends_on_a_busy_worker";
    let _alone = crate::ALONE.lock().await;
    let cluster = match LbCluster::start().await {
        Ok(cluster) => cluster,
        Err(error) => return skip(NAME, &error.to_string()),
    };
    cluster.until_all_serve().await;
    let (kinds, missing) = BalancerKind::installed();
    missing.iter().for_each(|sentence| eprintln!("{sentence}"));
    let mut balancers = Vec::new();
    for (number, kind) in (0..).zip(kinds) {
        let balancer = cluster.start_balancer(kind, number).await.expect("a balancer starts");
        cluster.until_serves(balancer.address).await;
        balancers.push(balancer);
    }
    let scratch = Scratch::new("tombolo-burners-").expect("a folder");
    let mut burners = Vec::new();
    for _ in 0..BURNERS {
        let burner = Invocation::of("/bin/sh").arguments(["-c", "while :; do :; done"]);
        burners.push(Process::start(&burner, &scratch.path().join("burners.log")).await.expect("a shell"));
    }
    let loaded_by = Instant::now() + LOADED_MAX;
    while load_average() <= LOAD_MIN {
        assert!(Instant::now() < loaded_by, "the load average is only {}", load_average());
        sleep(LOOK_EVERY).await;
    }

    let mut callers = Vec::new();
    for balancer in &balancers {
        let (ca_pem, administrator) = (cluster.edge.ca_pem(), cluster.administrator());
        callers.push(
            Callers::start_at(&cluster.on_worker, balancer.address, CALLERS, ca_pem, &administrator).await,
        );
    }
    let (began, mut lowest, mut highest) = (Instant::now(), f64::MAX, 0.0_f64);
    while began.elapsed() < DURATION {
        sleep(LOOK_EVERY).await;
        (lowest, highest) = (lowest.min(load_average()), highest.max(load_average()));
    }

    let metrics = cluster.scrape(balancers[0].probes).await;
    drop(burners);
    eprintln!("load average {lowest} to {highest} for {:?}", began.elapsed());
    report(&balancers, callers).await;
    let ended = ended_by_node_lb(&metrics);
    eprintln!("node-lb has ended {ended} connections");
    assert!(lowest > LOAD_MIN, "the load average fell to {lowest}");
    assert_eq!(ended, 0, "{metrics}\n{}", balancers[0].log());
}

async fn report(balancers: &[Balancer], callers: Vec<Callers>) {
    for (balancer, callers) in balancers.iter().zip(callers) {
        let report = callers.stop().await;
        let failed = report.failed.len();
        eprintln!(
            "{}: {} answered, {failed} failed, longest gap {:?}; {:?}",
            balancer.kind.name(),
            report.answered,
            report.longest,
            report.failed.first()
        );
    }
}

/// Connections that node-lb has ended by itself: because it took their API server for down, or to move them.
fn ended_by_node_lb(metrics: &str) -> u64 {
    let cut =
        |line: &&str| line.starts_with("tombolo_lb_connections_total{") && line.contains("result=\"cut\"");
    let moved = |line: &&str| line.starts_with("tombolo_lb_moves_total ");
    let lines: Vec<&str> = metrics.lines().filter(|line| cut(line) || moved(line)).collect();
    assert!(lines.len() > 1, "{metrics}");
    lines.iter().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
}

/// Processes that are ready to run, averaged over the last minute.
fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").expect("proc_loadavg(5)");
    text.split(' ').next().and_then(|first| first.parse().ok()).expect("proc_loadavg(5)")
}
