//! `kubectl port-forward`: many connections at once, none of which disturbs another, and each half of them by
//! itself.

use std::net::SocketAddr;

use futures::future::join_all;
use tests::node_edge::{NodeEdge, POD, trial};
use tests::process::Process;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::kubectls::{Client, LOOK_EVERY, SOON, clients, pattern, wrote};

/// Number of short connections at once beside a large one.
const AT_ONCE: usize = 6;
/// A large one, and how many short ones beside it.
const FEW: (usize, usize) = (12 << 20, 60);
const MANY: (usize, usize) = (1 << 30, 1000);
/// The size of a write of the large one.
const BLOCK: usize = 1 << 20;
/// The bytes that each short connection sends, and gets back.
const EACH_BYTES: usize = 100_000;

#[test]
fn short_connections_beside_a_large_one_do_not_disturb_each_other() {
    trial("short_connections_beside_a_large_one_do_not_disturb_each_other", async |edges| {
        forwards_many(&edges.edges[0], FEW).await
    });
}

/// The gibibyte is on one connection, and none disturbs another.
#[test]
#[ignore = "soak: four times a gibibyte and a thousand connections"]
fn a_thousand_short_connections_pass_beside_a_gibibyte() {
    trial("a_thousand_short_connections_pass_beside_a_gibibyte", async |edges| {
        forwards_many(&edges.edges[0], MANY).await
    });
}

async fn forwards_many(edge: &NodeEdge, many: (usize, usize)) {
    for client in clients(edge) {
        let (_forward, [http, echo]) = forward(edge, &client).await;
        at(edge, &client, none_disturbs_another(client.name.clone(), http, echo, many)).await;
    }
}

#[test]
fn a_half_closed_forwarded_connection_goes_on_in_the_other_direction() {
    trial("a_half_closed_forwarded_connection_goes_on_in_the_other_direction", async |edges| {
        let edge = &edges.edges[0];
        for client in clients(edge) {
            let (_forward, [_, echo]) = forward(edge, &client).await;
            at(edge, &client, each_direction_ends_by_itself(client.name.clone(), echo)).await;
        }
    });
}

async fn none_disturbs_another(
    client: String,
    http: SocketAddr,
    echo: SocketAddr,
    (bulk, shorts): (usize, usize),
) {
    let torn_bytes = pattern(100_000);
    let short = async {
        for _ in 0..shorts / AT_ONCE {
            // One that is cut in the middle of its bytes, beside complete ones.
            let mut torn = TcpStream::connect(echo).await.expect("kubectl listens");
            torn.write_all(&torn_bytes).await.expect("it is taken");
            drop(torn);
            let answers = join_all((0..AT_ONCE).map(|n| get(http, n))).await;
            for (n, answer) in answers.into_iter().enumerate() {
                let body = answer.split("\r\n\r\n").nth(1);
                assert_eq!(body, Some(format!("edge-a /{n}\n").as_str()), "{client}: {answer}");
            }
        }
    };
    tokio::join!(echoes_complete(&client, echo, bulk), short);
}

async fn each_direction_ends_by_itself(client: String, echo: SocketAddr) {
    let stream = TcpStream::connect(echo).await.expect("kubectl listens");
    let (mut reading, mut writing) = stream.into_split();
    let sent = pattern(3 * 1024 * 1024);
    let write = async {
        writing.write_all(&sent).await.expect("it is taken");
        writing.shutdown().await.expect("a half can be closed");
    };
    // The echo ends when it has read the end, and so this shows that the end came through, and nothing before
    // it was lost.
    let mut received = Vec::new();
    let read = async {
        timeout(SOON, reading.read_to_end(&mut received)).await.expect("it ends").expect("it ends well");
    };
    tokio::join!(write, read);
    assert!(received == sent, "{client}: {} bytes of {}", received.len(), sent.len());
}

/// As many connections at once, each of which has its own bytes back.
pub async fn each_connection_is_its_own(edge: &NodeEdge, client: &Client, connections: usize) {
    let (_forward, [_, echo]) = forward(edge, client).await;
    each_has_its_own_back(edge, client, echo, connections).await;
}

/// The same where something listens already, or soon.
pub async fn each_has_its_own_back(edge: &NodeEdge, client: &Client, echo: SocketAddr, connections: usize) {
    let name = client.name.clone();
    let all = async move {
        timeout(SOON, listens(echo)).await.expect("it listens");
        let bytes: Vec<u8> = pattern(EACH_BYTES + connections);
        let sent: Vec<_> = (0..connections).map(|n| &bytes[n..n + EACH_BYTES]).collect();
        let received = join_all(sent.iter().map(|bytes| echoed(echo, bytes))).await;
        for (n, (sent, received)) in sent.iter().zip(&received).enumerate() {
            assert!(sent == received, "{name}: connection {n} has something else back");
        }
    };
    at(edge, client, all).await;
}

async fn listens(address: SocketAddr) {
    while TcpStream::connect(address).await.is_err() {
        sleep(LOOK_EVERY).await;
    }
}

/// Runs this in the network namespace of kubectl, which is the site's for direct kubectls.
async fn at(edge: &NodeEdge, client: &Client, does: impl Future<Output = ()> + Send + 'static) {
    if client.name.starts_with("direct") {
        edge.site.run(does).await;
    } else {
        does.await;
    }
}

/// A forward to both ports of the pod, and where they are here.
pub async fn forward(edge: &NodeEdge, client: &Client) -> (Process, [SocketAddr; 2]) {
    let output = tempfile::Builder::new().prefix(&client.name).tempfile_in(edge.cluster.directory());
    let output = output.expect("a file").into_temp_path();
    let pod = format!("pod/{POD}");
    let words = ["port-forward", &pod, ":8080", ":7777"];
    let mut process = client.kubectl.start(&words, &output).await.expect("kubectl starts");
    let port = |output: &str, to: &str| {
        let line =
            output.lines().find(|line| line.starts_with("Forwarding from 127.0.0.1:") && line.ends_with(to));
        let port = line.and_then(|line| line.split(':').nth(1)?.split(' ').next()?.parse::<u16>().ok());
        SocketAddr::from(([127, 0, 0, 1], port.unwrap_or_else(|| panic!("{output}"))))
    };
    let output = wrote(&mut process, "-> 7777\n").await;
    (process, ["-> 8080", "-> 7777"].map(|to| port(&output, to)))
}

/// One request and its answer, to the end of the connection.
async fn get(address: SocketAddr, n: usize) -> String {
    let mut stream = TcpStream::connect(address).await.expect("kubectl listens");
    let request = format!("GET /{n} HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it is taken");
    let mut answer = String::new();
    timeout(SOON, stream.read_to_string(&mut answer)).await.expect("it ends").expect("it ends well");
    answer
}

/// Asserts that all bytes come back unchanged, while they are still being written.
async fn echoes_complete(client: &str, address: SocketAddr, bytes: usize) {
    let (mut reading, mut writing) = TcpStream::connect(address).await.expect("kubectl listens").into_split();
    // Blocks differ in their number.
    let block = |n: usize, block: &mut [u8]| block[..size_of::<usize>()].copy_from_slice(&n.to_be_bytes());
    let write = async {
        let mut sent = pattern(BLOCK);
        for n in 0..bytes / BLOCK {
            block(n, &mut sent);
            writing.write_all(&sent).await.expect("it is taken");
        }
    };
    let read = async {
        let (mut received, mut sent) = (vec![0; BLOCK], pattern(BLOCK));
        for n in 0..bytes / BLOCK {
            block(n, &mut sent);
            let read = reading.read_exact(&mut received);
            timeout(SOON, read).await.expect("it comes back").expect("all of it");
            assert!(received == sent, "{client}: block {n}");
        }
    };
    tokio::join!(write, read);
}

/// The bytes that come back when these are sent.
async fn echoed(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let (mut reading, mut writing) = TcpStream::connect(address).await.expect("kubectl listens").into_split();
    let mut back = vec![0; bytes.len()];
    let write = async { writing.write_all(bytes).await.expect("it is taken") };
    let read = async {
        timeout(SOON, reading.read_exact(&mut back)).await.expect("it comes back").expect("all of it");
    };
    tokio::join!(write, read);
    back
}
