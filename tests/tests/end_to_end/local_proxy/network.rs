//! The same proxy for a network: it reaches the targets of the network's clusters, and no others.

use tests::caller::SOON;
use tests::echo::Echo;
use tests::enroll::at;
use tests::socks5::{CONNECT, GREETING, asked, ipv4, login, refused};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{COPY, LOG, LocalProxyEdge, NETWORK, advertise, response_to};

/// It reaches no cluster outside of the network.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_local_proxy_for_a_network_reaches_the_cluster_with_the_address() {
    let (listed, canary) = (Echo::start().await, Echo::start().await);
    let edge = LocalProxyEdge::start_within(["--network", NETWORK], &[listed.address], &[]).await;
    edge.rig.logged(LOG, 0, "network plant-1 is reached through").await;
    assert!(std::fs::read_to_string(edge.rig.path().join(COPY)).unwrap().contains("proxy-url"));
    at(&edge.rig, &["cluster", "create", "edge-b", "--network", "plant-2"]).await;
    // What the caller may dial in another network.
    advertise(&edge.rig, "edge-b", &[canary.address.to_string()]).await;
    let (address, secret) = edge.listener();
    let line = |target| {
        format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Basic {secret}\r\n\r\n")
    };
    let by_socks = async |target| {
        let output =
            [&GREETING[..], &login("u", &edge.url().secret), &asked(CONNECT, 1, &ipv4(target))].concat();
        edge.answered_by_socks(&output).await
    };

    let mut connected = TcpStream::connect(address).await.unwrap();
    connected.write_all(format!("{}hello", line(listed.address)).as_bytes()).await.unwrap();
    let mut received = Vec::new();
    while !received.ends_with(b"\r\n\r\nhello") {
        received.push(timeout(SOON, connected.read_u8()).await.unwrap().unwrap());
    }
    assert!(received.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&received));
    let refused_there = response_to(address, &line(canary.address)).await;
    assert!(
        refused_there.starts_with("HTTP/1.1 403 ") && !refused_there.contains("edge-"),
        "{refused_there}"
    );
    assert_eq!(by_socks(canary.address).await, refused(2));

    at(&edge.rig, &["cluster", "update", "edge-b", "--network", NETWORK]).await;
    advertise(&edge.rig, "edge-b", &[listed.address.to_string()]).await;

    let ambiguous = response_to(address, &line(listed.address)).await;
    let first = ambiguous.lines().next().unwrap();
    assert!(
        first.starts_with("HTTP/1.1 403 ") && first.contains("ambiguous among edge-a, edge-b"),
        "{first}"
    );
    assert_eq!(by_socks(listed.address).await, refused(2));
    // SOCKS5 has no words, so that the proxy says them itself.
    edge.rig.logged(LOG, 0, "is ambiguous among edge-a, edge-b").await;
    assert_eq!((listed.accepted(), canary.accepted()), (1, 0));
}

/// Both or neither are refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_local_proxy_is_for_either_a_cluster_or_a_network() {
    let rig = tests::rig::Rig::start().await;
    let conf = rig.write("admin.conf", &super::kubeconfig("https://10.0.0.1:443"));
    let conf = conf.to_str().unwrap();
    for places in [&["--cluster", "edge-a", "--network", NETWORK][..], &[]] {
        let words = ["proxy", "--gateway", "https://127.0.0.1:1", "--kubeconfig", conf];
        let output = rig.tombolo_writes(&[&words[..], places].concat()).await;
        assert!(output.contains("--cluster") && output.contains("--help"), "{output}");
    }
}
