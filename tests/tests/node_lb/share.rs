//! A fourth API server that joins three others, under the connections of many workers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tests::balancers::{Balancer, BalancerKind};
use tests::dial::dial;
use tests::lb_cluster::{LbCluster, MASTERS, READY_MAX, until};
use tests::skip::skip;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Workers, each with a node-lb.
const WORKERS: u16 = 60;

/// Long connections of each worker. Its node-lb has one more, by which it watches the list.
const CONNECTIONS: usize = 3;

/// Older connections than this may move.
const AGE: Duration = Duration::from_secs(65);

/// The API server has its share of new connections after this time.
const NEW_WITHIN: Duration = Duration::from_secs(5);

/// The least share of new connections of the API server that has joined.
const NEW_SHARE_MIN: f64 = 0.15;

/// New connections by way of each node-lb.
const NEW_EACH: usize = 5;

/// Old connections are evenly distributed after this time.
const EVEN_WITHIN: Duration = Duration::from_secs(180);

/// The difference to an even distribution that is allowed.
const UNEVEN_MAX: f64 = 0.5;

/// The pause between two requests over a long connection. It is long enough for a quiet moment.
const PAUSE: Duration = Duration::from_secs(2);

/// The pause after a connection that failed.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: five minutes, since only connections older than a minute move"]
async fn an_api_server_that_joins_gets_its_share_of_sixty_workers() {
    const NAME: &str = "an_api_server_that_joins_gets_its_share_of_sixty_workers";
    let _alone = crate::ALONE.lock().await;
    let mut cluster = match LbCluster::start().await {
        Ok(cluster) => cluster,
        Err(error) => return skip(NAME, &error.to_string()),
    };
    cluster.until_all_serve().await;
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        workers.push(cluster.start_balancer(BalancerKind::NodeLb, number).await.expect("node-lb starts"));
    }
    for worker in &workers {
        until_ready(&cluster, worker, MASTERS).await;
    }
    let addresses: Vec<SocketAddr> =
        workers.iter().flat_map(|worker| [worker.address; CONNECTIONS]).collect();
    let ca_pem = cluster.edge.ca_pem().to_owned();
    let keeping = async move { tokio::spawn(keep_all(addresses, ca_pem)).abort_handle() };
    let keeping = cluster.on_worker.run(keeping).await;
    sleep(AGE).await;
    eprintln!("before: {:?}", open_connections(&cluster, &workers).await);

    let fourth = cluster.add_master().await;
    let address = cluster.socket(fourth);
    cluster.until_serves(address).await;
    until("the list has the fourth API server", READY_MAX, async || {
        let words = ["get", "-n", "default", "endpointslice", "kubernetes", "-o", "yaml"];
        cluster.edge.admin().stdout(&words).await.contains(&address.ip().to_string()).then_some(())
    })
    .await;
    let joined = Instant::now();

    sleep(NEW_WITHIN).await;
    new_connections_go_there(&cluster, &workers, address).await;
    let soon = open_connections(&cluster, &workers).await;
    eprintln!("after {:?}: {soon:?}", joined.elapsed());
    // So what the end shows is the moves' doing.
    let even = f64::from(WORKERS) * (CONNECTIONS + 1) as f64 / (MASTERS + 1) as f64;
    assert!(f64::from(*soon.get(&address).unwrap_or(&0)) < even * UNEVEN_MAX, "{soon:?}");

    sleep(EVEN_WITHIN.saturating_sub(joined.elapsed())).await;
    let end = open_connections(&cluster, &workers).await;
    eprintln!("after {:?}: {end:?}, {even} each would be even", joined.elapsed());
    assert_eq!(end.len(), MASTERS + 1);
    for (api_server, connections) in &end {
        let share = f64::from(*connections) / even;
        assert!((1.0 - UNEVEN_MAX..=1.0 + UNEVEN_MAX).contains(&share), "{api_server}: {end:?}");
    }
    keeping.abort();
}

/// Opens new connections by way of every node-lb, and counts those at the API server that has joined.
async fn new_connections_go_there(cluster: &LbCluster, workers: &[Balancer], address: SocketAddr) {
    let closed = async || sums(cluster, workers, "tombolo_lb_connections_total{", "result=\"closed\"").await;
    let before = closed().await;
    let (addresses, ca_pem) = (workers.iter().map(|worker| worker.address), cluster.edge.ca_pem().to_owned());
    cluster.on_worker.run(ask_all(addresses.collect(), ca_pem)).await;
    let wanted = u32::from(WORKERS) * NEW_EACH as u32;
    let news = until("all new connections have ended", READY_MAX, async || {
        let after = closed().await;
        let new = |(api_server, count): (&SocketAddr, &u32)| {
            (*api_server, count - before.get(api_server).unwrap_or(&0))
        };
        let news: BTreeMap<SocketAddr, u32> = after.iter().map(new).collect();
        (news.values().sum::<u32>() >= wanted).then_some(news)
    })
    .await;
    let share = f64::from(*news.get(&address).unwrap_or(&0)) / f64::from(news.values().sum::<u32>());
    eprintln!("{:.0} % of new connections: {news:?}", share * 100.0);
    assert!(share >= NEW_SHARE_MIN, "{share}: {news:?}");
}

/// Sends requests by way of all balancers at once, each over a connection of its own.
async fn ask_all(addresses: Vec<SocketAddr>, ca_pem: String) {
    let mut asking = JoinSet::new();
    for address in addresses {
        let ca_pem = ca_pem.clone();
        asking.spawn(async move {
            for _ in 0..NEW_EACH {
                ask(address, &ca_pem, "close").await.expect("an answer");
            }
        });
    }
    asking.join_all().await;
}

/// Keeps a connection by way of each of these addresses, and makes it anew whenever it ends, as clients do.
async fn keep_all(addresses: Vec<SocketAddr>, ca_pem: String) {
    let mut keeping = JoinSet::new();
    for address in addresses {
        let ca_pem = ca_pem.clone();
        keeping.spawn(async move {
            loop {
                if ask(address, &ca_pem, "keep-alive").await.is_err() {
                    sleep(AGAIN_AFTER).await;
                }
            }
        });
    }
    keeping.join_all().await;
}

/// Sends a request over a new connection and, if it is to be kept, further ones until it ends.
async fn ask(address: SocketAddr, ca_pem: &str, connection: &str) -> std::io::Result<()> {
    let mut tls = timeout(ANSWER_MAX, dial(address, ca_pem, &["http/1.1"], None)).await??;
    let request = format!("GET /livez HTTP/1.1\r\nhost: x\r\nconnection: {connection}\r\n\r\n");
    loop {
        tls.write_all(request.as_bytes()).await?;
        let mut answer = [0; 4096];
        if timeout(ANSWER_MAX, tls.read(&mut answer)).await?? == 0 || connection == "close" {
            return Ok(());
        }
        // Both arms are cancel-safe: nothing is read but the end of the connection.
        tokio::select! {
            _ = tls.read(&mut answer) => return Ok(()),
            () = sleep(PAUSE) => {}
        }
    }
}

/// The open connections of all node-lbs at each API server.
async fn open_connections(cluster: &LbCluster, workers: &[Balancer]) -> BTreeMap<SocketAddr, u32> {
    sums(cluster, workers, "tombolo_lb_connections{", "").await
}

/// The sums of a metric over all node-lbs, by API server. `label` is one that has to be there.
async fn sums(
    cluster: &LbCluster,
    workers: &[Balancer],
    metric: &str,
    label: &str,
) -> BTreeMap<SocketAddr, u32> {
    let mut sums = BTreeMap::new();
    for worker in workers {
        let metrics = cluster.scrape(worker.probes).await;
        assert!(!metrics.is_empty(), "{}", worker.log());
        for line in metrics.lines().filter(|line| line.starts_with(metric) && line.contains(label)) {
            let (_, rest) = line.split_once("api_server=\"").expect("each has this label");
            let (api_server, _) = rest.split_once('"').expect("a label ends");
            let (_, value) = line.rsplit_once(' ').expect("a value");
            let value: u32 = value.parse().expect("a count");
            *sums.entry(api_server.parse().expect("an address")).or_default() += value;
        }
    }
    sums
}

async fn until_ready(cluster: &LbCluster, worker: &Balancer, count: usize) {
    let line = format!("tombolo_lb_api_servers{{state=\"ready\"}} {count}\n");
    until(&format!("{count} are ready\n{}", worker.log()), READY_MAX, async || {
        cluster.scrape(worker.probes).await.contains(&line).then_some(())
    })
    .await;
}
