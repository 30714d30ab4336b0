//! A worker that restarts while its configured API servers are away, or its state file is bad.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tests::dial::{acceptor, dial};
use tests::lab::NamespaceRuntime;
use tests::lb_cluster::{LB, LbCluster, MASTERS, NodeLb, READY_MAX, until};
use tests::pki::Authority;
use tests::skip::skip;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Longest time for the first answer after a start. The bar is 1 s on a machine with nothing else to do.
const FIRST_ANSWER_MAX: Duration = Duration::from_secs(5);

/// Longest time for a connection without an API server to be ended.
const ENDED_MAX: Duration = Duration::from_secs(15);

const STATE_FILE: &str = "api-servers.json";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_finds_its_api_servers_after_a_restart_in_the_dark() {
    const NAME: &str = "a_worker_finds_its_api_servers_after_a_restart_in_the_dark";
    let mut cluster = match LbCluster::start().await {
        Ok(cluster) => cluster,
        Err(error) => return skip(NAME, &error.to_string()),
    };
    let mut lb = NodeLb::start(&cluster, &[cluster.socket(0)]).await;
    for master in 0..MASTERS {
        lb.until_state(&cluster, cluster.socket(master), "ready", READY_MAX).await;
    }
    let written = || fs::read_to_string(lb.state().join(STATE_FILE)).unwrap_or_default();
    let all = cluster.addresses.clone();
    let has_all = || all.iter().all(|address| written().contains(&address.to_string())).then_some(());
    until("the state file has all API servers", READY_MAX, async || has_all()).await;
    let good = written();

    let (said, is_healthy) = lb.doctor().await;
    assert!(is_healthy, "{said}");
    for check in ["ca", "certificate", "api-server", "clock", "rights", "load-balancer", "readiness"] {
        let is_ok = |line: &str| line.starts_with("ok ") && line.split_whitespace().nth(1) == Some(check);
        assert!(said.lines().any(is_ok), "{check}: {said}");
    }
    the_configured_one_is_dead(&mut cluster, &mut lb).await;
    the_state_file_is_bad(&cluster, &mut lb, &good).await;
    nothing_goes_to_a_foreign_ca(&mut cluster, &mut lb).await;
}

/// The state file alone leads to the others.
async fn the_configured_one_is_dead(cluster: &mut LbCluster, lb: &mut NodeLb) {
    lb.kill();
    cluster.kill(0);

    lb.start_again().await;

    first_answer("with the configured API server dead", cluster, lb).await;
}

/// Each bad file is kept under another name, and the configuration serves.
async fn the_state_file_is_bad(cluster: &LbCluster, lb: &mut NodeLb, good: &str) {
    let line = good.lines().next().expect("a line");
    let other_ca = Authority::new("kubernetes");
    fs::write(lb.home().join("other-ca.crt"), other_ca.certificate_pem()).unwrap();
    lb.configure(&[cluster.socket(1)], "ca.crt");
    for (what, text) in [
        ("empty", String::new()),
        ("cut short", good[..good.len() / 2].to_owned()),
        ("without its checksum", format!("{line}\n")),
        ("changed by hand", good.replace("10.7.", "10.8.")),
    ] {
        lb.kill();
        let bad = lb.state().join(format!("{STATE_FILE}.bad"));
        let _ = fs::remove_file(&bad);
        fs::write(lb.state().join(STATE_FILE), &text).unwrap();

        lb.start_again().await;

        first_answer(&format!("with a state file that is {what}"), cluster, lb).await;
        assert_eq!(fs::read_to_string(&bad).unwrap_or_else(|error| panic!("{what}: {error}")), text);
        assert!(lb.log().contains(STATE_FILE), "{what}: {}", lb.log());
    }
}

/// A host with the address of an API server shows another CA's certificate, and is the only one that is known.
async fn nothing_goes_to_a_foreign_ca(cluster: &mut LbCluster, lb: &mut NodeLb) {
    lb.kill();
    let address = cluster.socket(0);
    let (begins, mut begun) = mpsc::channel(64);
    let other_host = NamespaceRuntime::new(&cluster.masters[0]);
    other_host.run(serve_foreign(address, begins)).await;
    fs::remove_dir_all(lb.state()).unwrap();
    lb.configure(&[address], "ca.crt");
    lb.start_again().await;
    let line = "not accepted";
    until("the certificate is refused", READY_MAX, async || lb.log().contains(line).then_some(())).await;

    let ended = cluster.on_worker.run(timeout(ENDED_MAX, send_marker())).await;

    assert!(ended.expect("the connection is ended"), "something has answered");
    let mut first_bytes = Vec::new();
    while let Ok(first) = begun.try_recv() {
        first_bytes.push(first);
    }
    // Probes begin a TLS handshake, whose first byte is 22.
    assert!(!first_bytes.is_empty() && first_bytes.iter().all(|byte| *byte == 22), "{first_bytes:?}");
    let metrics = lb.metrics(cluster).await;
    assert!(!metrics.contains("tombolo_lb_connections_refused_total 0\n"), "{metrics}");
    let (said, is_healthy) = lb.doctor().await;
    assert!(!is_healthy && said.contains("is not of the CA that is trusted here"), "{said}");
    assert_eq!(lb.stop(Duration::from_secs(20)).await, Some(0), "{}", lb.log());
}

/// Accepts connections with a certificate of another CA, and sends the first byte of each.
async fn serve_foreign(address: SocketAddr, begins: mpsc::Sender<u8>) {
    let authority = Authority::new("kubernetes");
    let identity = authority.issue_server(&["localhost"], &["127.0.0.1".parse().unwrap(), address.ip()]);
    let acceptor = acceptor(&identity, &["http/1.1"]);
    let listener = TcpListener::bind(address).await.unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut first = [0];
            if stream.peek(&mut first).await.is_ok_and(|read| read == 1) {
                let _ = begins.try_send(first[0]);
            }
            let acceptor = acceptor.clone();
            tokio::spawn(async move { acceptor.accept(stream).await.map(drop) });
        }
    });
}

/// Sends bytes that are no TLS to node-lb. Returns true if the connection ends without a byte.
async fn send_marker() -> bool {
    let mut stream = TcpStream::connect(LB).await.expect("node-lb listens");
    let _ = stream.write_all(b"MARKER").await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    answer.is_empty()
}

/// Waits for an answer of an API server through node-lb, which has just been started.
async fn first_answer(what: &str, cluster: &LbCluster, lb: &NodeLb) {
    let started = Instant::now();
    let ca_pem = cluster.edge.ca_pem().to_owned();
    let answering = async move {
        loop {
            let address = LB.parse().expect("an address");
            if let Ok(Ok(mut tls)) =
                timeout(FIRST_ANSWER_MAX, dial(address, &ca_pem, &["http/1.1"], None)).await
            {
                let request = b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
                tls.write_all(request).await.expect("it was just established");
                let mut answer = String::new();
                let _ = tls.read_to_string(&mut answer).await;
                if answer.starts_with("HTTP/1.1 200") {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let answered = cluster.on_worker.run(timeout(FIRST_ANSWER_MAX, answering)).await;
    eprintln!("first answer {what}: {:?}", started.elapsed());
    assert!(answered.is_ok(), "{what}: {}", lb.log());
}
