//! Network namespaces separate equal addresses, and cables connect namespaces.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use tests::network::NetworkNamespace;
use tests::skip::skip;

/// The limit for a connection across a cable.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// The limit for the kernel to clean up after a namespace.
const CLEARED_MAX: Duration = Duration::from_secs(30);

/// Each namespace is reached by its own cable.
#[tokio::test]
async fn two_namespaces_have_the_same_address_and_a_cable_each() {
    let Some(cloud) = namespace("two_namespaces_have_the_same_address_and_a_cable_each").await else {
        return;
    };
    let mut answers = Vec::new();
    for (number, name) in [(1, "one"), (2, "two")] {
        let edge = NetworkNamespace::new().await.unwrap();
        edge.ip("addr add 192.168.1.10/32 dev lo").await.unwrap();
        cloud.connect(name, &edge, "uplink").await.unwrap();
        cloud.ip(&format!("addr add 203.0.113.{}/31 dev {name}", number * 2)).await.unwrap();
        edge.ip(&format!("addr add 203.0.113.{}/31 dev uplink", number * 2 + 1)).await.unwrap();
        let listener = within(&edge, || TcpListener::bind("192.168.1.10:6443").unwrap());
        let bound = within(&edge, || TcpListener::bind(("0.0.0.0", 7000)).unwrap());
        thread::spawn(move || bound.accept().unwrap().0.write_all(name.as_bytes()).unwrap());

        let address = SocketAddr::from(([203, 0, 113, number * 2 + 1], 7000));
        let mut answer = String::new();
        let connect = || TcpStream::connect_timeout(&address, CONNECT_MAX).unwrap();
        within(&cloud, connect).read_to_string(&mut answer).unwrap();
        answers.push((answer, edge, listener));
    }

    assert_eq!(answers.iter().map(|(answer, ..)| answer.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    let unreachable = cloud.ip("route get 192.168.1.10").await.unwrap_err().to_string();
    assert!(unreachable.contains("unreachable"), "{unreachable}");
}

#[tokio::test]
async fn a_dropped_namespace_takes_its_cables_with_it() {
    let Some(cloud) = namespace("a_dropped_namespace_takes_its_cables_with_it").await else { return };
    let edge = NetworkNamespace::new().await.unwrap();
    cloud.connect("edge", &edge, "uplink").await.unwrap();
    assert!(cloud.ip("link show edge").await.is_ok());

    drop(edge);

    // The kernel clears namespaces up in its own time.
    let deadline = Instant::now() + CLEARED_MAX;
    while cloud.ip("link show edge").await.is_ok() {
        assert!(Instant::now() < deadline, "the cable is still there");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A namespace, or `None` after saying that the test is skipped.
async fn namespace(test: &str) -> Option<NetworkNamespace> {
    match NetworkNamespace::new().await {
        Ok(namespace) => Some(namespace),
        Err(error) => {
            skip(test, &error.to_string());
            None
        }
    }
}

/// Does something on a thread inside a namespace.
fn within<T: Send>(namespace: &NetworkNamespace, act: impl FnOnce() -> T + Send) -> T {
    let entered = || {
        namespace.enter().unwrap();
        act()
    };
    thread::scope(|scope| scope.spawn(entered).join().unwrap())
}
