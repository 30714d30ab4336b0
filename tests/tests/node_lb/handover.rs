//! Processes of node-lb that hand over to the next one, under connections that must not notice.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tests::dial::dial;
use tests::lb_cluster::callers::Callers;
use tests::lb_cluster::download::Download;
use tests::lb_cluster::watches::Watches;
use tests::lb_cluster::{LB, LbCluster, MASTERS, NodeLb, READY_MAX};
use tests::skip::skip;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// One MiB, in bytes of a download.
const MIB: u64 = 1024 * 1024;

/// Callers that send requests at an even pace.
const CALLERS: usize = 3;

/// The pause between two new connections.
const PACE: Duration = Duration::from_millis(20);

/// Longest wait for the answer on a new connection.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// The amount of work of a trial.
struct Amount {
    handovers: u64,
    watches: usize,
    bytes: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_notices_that_another_process_of_node_lb_serves() {
    let amount = Amount { handovers: 5, watches: 20, bytes: 64 * MIB };
    trial("nobody_notices_that_another_process_of_node_lb_serves", amount).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: fifty handovers under a hundred watches and a download of 1 GiB"]
async fn nobody_notices_fifty_handovers_under_much_work() {
    let amount = Amount { handovers: 50, watches: 100, bytes: 1024 * MIB };
    trial("nobody_notices_fifty_handovers_under_much_work", amount).await;
}

async fn trial(name: &str, amount: Amount) {
    let cluster = match LbCluster::start().await {
        Ok(cluster) => cluster,
        Err(error) => return skip(name, &error.to_string()),
    };
    let mut lb = NodeLb::start(&cluster, &[cluster.socket(0)]).await;
    for master in 0..MASTERS {
        lb.until_state(&cluster, cluster.socket(master), "ready", READY_MAX).await;
    }
    let mode = std::fs::metadata(lb.state().join("handover.sock")).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    no_connection_is_broken(&cluster, &mut lb, amount).await;
    one_that_cannot_start_changes_nothing(&cluster, &mut lb).await;
    the_next_configuration_decides(&cluster, &mut lb).await;
}

async fn no_connection_is_broken(cluster: &LbCluster, lb: &mut NodeLb, amount: Amount) {
    let Amount { handovers, watches, bytes } = amount;
    let mut watches = Watches::start(cluster, watches).await;
    let mut download = Download::start(cluster, bytes).await;
    let callers =
        Callers::start(&cluster.on_worker, CALLERS, cluster.edge.ca_pem(), &cluster.administrator()).await;
    let dialing = Dialing::start(cluster).await;
    let (began, mut longest, mut frozen) = (Instant::now(), Duration::ZERO, Vec::new());

    for number in 1..=handovers {
        download.permit(number, handovers + 1).await;
        let asked = Instant::now();
        frozen.push(lb.hand_over().await);
        longest = longest.max(asked.elapsed());
        watches.beat(cluster).await;
    }

    let took = began.elapsed();
    assert!(download.is_whole().await, "bytes of the download are others");
    let (callers, (connections, refused)) = (callers.stop().await, dialing.stop().await);
    eprintln!(
        "{handovers} handovers in {took:?}, the longest with its start {longest:?}: {} requests, {} failed, longest gap {:?}; \
         {connections} new connections, {} failed",
        callers.answered,
        callers.failed.len(),
        callers.longest,
        refused.len(),
    );
    eprintln!("nothing moved for {}", frozen.join(", "));
    assert_eq!((callers.failed, refused), (Vec::new(), Vec::new()));
    let metrics = lb.metrics(cluster).await;
    assert!(metrics.contains("tombolo_lb_handovers_total{result=\"taken\"} 1\n"), "{metrics}");
    assert!(!metrics.contains("tombolo_lb_connections_taken_over_total 0\n"), "{metrics}");
}

/// One of its addresses is taken, so the process that runs goes on.
async fn one_that_cannot_start_changes_nothing(cluster: &LbCluster, lb: &mut NodeLb) {
    let before = Kept::start(cluster).await;
    let taken = cluster.on_worker.run(TcpListener::bind("127.0.0.1:7444")).await.expect("it is free");
    lb.configure_more(&[cluster.socket(0)], "listen: [\"127.0.0.1:7443\", \"127.0.0.1:7444\"]\n");

    let (code, said) = lb.fail_to_hand_over().await;

    assert!(code == Some(1) && said.contains("127.0.0.1:7444 is already in use"), "{code:?} {said}");
    assert!(before.answers(cluster).await);
    let metrics = lb.metrics(cluster).await;
    assert!(metrics.contains("tombolo_lb_handovers_total{result=\"resumed\"} 1\n"), "{metrics}");
    drop(taken);
}

/// A listener that the configuration does not have any more is closed, and one that it adds is bound.
async fn the_next_configuration_decides(cluster: &LbCluster, lb: &mut NodeLb) {
    let before = Kept::start(cluster).await;
    assert!(connects(cluster, "[::1]:7443").await && !connects(cluster, "127.0.0.1:7445").await);
    lb.configure_more(&[cluster.socket(0)], "listen: [\"127.0.0.1:7443\", \"127.0.0.1:7445\"]\n");

    lb.hand_over().await;

    assert!(before.answers(cluster).await);
    assert!(!connects(cluster, "[::1]:7443").await && connects(cluster, "127.0.0.1:7445").await);
}

async fn connects(cluster: &LbCluster, address: &str) -> bool {
    let address: SocketAddr = address.parse().expect("an address");
    cluster.on_worker.run(async move { TcpStream::connect(address).await.is_ok() }).await
}

/// A connection on which one request is sent at the end.
struct Kept(tokio_rustls::client::TlsStream<TcpStream>);

impl Kept {
    async fn start(cluster: &LbCluster) -> Self {
        let (address, ca_pem) = (LB.parse().expect("an address"), cluster.edge.ca_pem().to_owned());
        let dialed = async move { dial(address, &ca_pem, &["http/1.1"], None).await };
        Self(cluster.on_worker.run(dialed).await.expect("node-lb serves"))
    }

    async fn answers(self, cluster: &LbCluster) -> bool {
        cluster.on_worker.run(timeout(ANSWER_MAX, get(self.0))).await.is_ok_and(|answer| answer.is_ok())
    }
}

async fn get(mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin) -> io::Result<()> {
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    if answer.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(io::Error::other(answer)) }
}

/// A caller that makes a new connection for each request.
struct Dialing {
    stop: Arc<AtomicBool>,
    calling: JoinHandle<(usize, Vec<String>)>,
}

impl Dialing {
    async fn start(cluster: &LbCluster) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, ca_pem) = (Arc::clone(&stop), cluster.edge.ca_pem().to_owned());
        let calling = async move {
            let (mut connections, mut failed) = (0, Vec::new());
            while !stopped.load(Ordering::Relaxed) {
                connections += 1;
                let address = LB.parse().expect("an address");
                let asking = async { get(dial(address, &ca_pem, &["http/1.1"], None).await?).await };
                match timeout(ANSWER_MAX, asking).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => failed.push(error.to_string()),
                    Err(_) => failed.push("no answer in time".to_owned()),
                }
                sleep(PACE).await;
            }
            (connections, failed)
        };
        // Not alone, because a future of a future is seldom meant.
        let (calling,) = cluster.on_worker.run(async { (tokio::spawn(calling),) }).await;
        Self { stop, calling }
    }

    async fn stop(self) -> (usize, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        self.calling.await.expect("it does not panic")
    }
}
