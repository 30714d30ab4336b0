//! `kubectl port-forward`: many connections at once, none of which disturbs another, and each half of them by itself.

use std::net::SocketAddr;

use futures::future::join_all;
use tests::node_edge::{NodeEdge, POD, trial};
use tests::process::Process;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::kubectls::{Client, LOOK_EVERY, SOON, hands, pattern, wrote};

/// How many short connections at once come and go beside a large one.
const AT_ONCE: usize = 6;
/// A large one, and how many short ones beside it.
const FEW: (usize, usize) = (12 << 20, 60);
const MANY: (usize, usize) = (1 << 30, 1000);
/// How much the large one writes at a time.
const BLOCK: usize = 1 << 20;
/// What each of many says, and hears again.
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
    for hand in hands(edge) {
        let (_forward, [http, echo]) = forward(edge, &hand).await;
        at(edge, &hand, none_disturbs_another(hand.name.clone(), http, echo, many)).await;
    }
}

#[test]
fn a_half_closed_forwarded_connection_goes_on_in_the_other_direction() {
    trial("a_half_closed_forwarded_connection_goes_on_in_the_other_direction", async |edges| {
        let edge = &edges.edges[0];
        for hand in hands(edge) {
            let (_forward, [_, echo]) = forward(edge, &hand).await;
            at(edge, &hand, each_half_ends_by_itself(hand.name.clone(), echo)).await;
        }
    });
}

async fn none_disturbs_another(
    hand: String,
    http: SocketAddr,
    echo: SocketAddr,
    (bulk, shorts): (usize, usize),
) {
    let torn_bytes = pattern(100_000);
    let short = async {
        for _ in 0..shorts / AT_ONCE {
            // One that is torn in the middle of what it says, beside those that are whole.
            let mut torn = TcpStream::connect(echo).await.expect("kubectl listens");
            torn.write_all(&torn_bytes).await.expect("it is taken");
            drop(torn);
            let answers = join_all((0..AT_ONCE).map(|n| get(http, n))).await;
            for (n, answer) in answers.into_iter().enumerate() {
                let body = answer.split("\r\n\r\n").nth(1);
                assert_eq!(body, Some(format!("edge-a /{n}\n").as_str()), "{hand}: {answer}");
            }
        }
    };
    tokio::join!(echoes_whole(&hand, echo, bulk), short);
}

async fn each_half_ends_by_itself(hand: String, echo: SocketAddr) {
    let stream = TcpStream::connect(echo).await.expect("kubectl listens");
    let (mut reading, mut writing) = stream.into_split();
    let said = pattern(3 * 1024 * 1024);
    let write = async {
        writing.write_all(&said).await.expect("it is taken");
        writing.shutdown().await.expect("a half can be closed");
    };
    // The echo ends when it has read the end, and so this shows that the end came through, and nothing before it was lost.
    let mut heard = Vec::new();
    let read = async {
        timeout(SOON, reading.read_to_end(&mut heard)).await.expect("it ends").expect("it ends well");
    };
    tokio::join!(write, read);
    assert!(heard == said, "{hand}: {} bytes of {}", heard.len(), said.len());
}

/// As many connections at once, each of which has its own bytes back.
pub async fn each_connection_is_its_own(edge: &NodeEdge, hand: &Client, connections: usize) {
    let (_forward, [_, echo]) = forward(edge, hand).await;
    each_has_its_own_back(edge, hand, echo, connections).await;
}

/// The same where something listens already, or soon.
pub async fn each_has_its_own_back(edge: &NodeEdge, hand: &Client, echo: SocketAddr, connections: usize) {
    let name = hand.name.clone();
    let all = async move {
        timeout(SOON, listens(echo)).await.expect("it listens");
        let bytes: Vec<u8> = pattern(EACH_BYTES + connections);
        let said: Vec<_> = (0..connections).map(|n| &bytes[n..n + EACH_BYTES]).collect();
        let heard = join_all(said.iter().map(|bytes| echoed(echo, bytes))).await;
        for (n, (said, heard)) in said.iter().zip(&heard).enumerate() {
            assert!(said == heard, "{name}: connection {n} has something else back");
        }
    };
    at(edge, hand, all).await;
}

async fn listens(address: SocketAddr) {
    while TcpStream::connect(address).await.is_err() {
        sleep(LOOK_EVERY).await;
    }
}

/// Runs this where kubectl listens: who goes directly is at the site.
async fn at(edge: &NodeEdge, hand: &Client, does: impl Future<Output = ()> + Send + 'static) {
    if hand.name.starts_with("direct") {
        edge.site.run(does).await;
    } else {
        does.await;
    }
}

/// A forward to both ports of the pod, and where they are here.
pub async fn forward(edge: &NodeEdge, hand: &Client) -> (Process, [SocketAddr; 2]) {
    let output = tempfile::Builder::new().prefix(&hand.name).tempfile_in(edge.cluster.directory());
    let output = output.expect("a file").into_temp_path();
    let pod = format!("pod/{POD}");
    let words = ["port-forward", &pod, ":8080", ":7777"];
    let mut process = hand.kubectl.start(&words, &output).await.expect("kubectl starts");
    let port = |said: &str, to: &str| {
        let line =
            said.lines().find(|line| line.starts_with("Forwarding from 127.0.0.1:") && line.ends_with(to));
        let port = line.and_then(|line| line.split(':').nth(1)?.split(' ').next()?.parse::<u16>().ok());
        SocketAddr::from(([127, 0, 0, 1], port.unwrap_or_else(|| panic!("{said}"))))
    };
    let said = wrote(&mut process, "-> 7777\n").await;
    (process, ["-> 8080", "-> 7777"].map(|to| port(&said, to)))
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

/// Claims that so many bytes come back as they were written, which is done while they come back.
async fn echoes_whole(hand: &str, address: SocketAddr, bytes: usize) {
    let (mut reading, mut writing) = TcpStream::connect(address).await.expect("kubectl listens").into_split();
    // Blocks differ in their number.
    let block = |n: usize, block: &mut [u8]| block[..size_of::<usize>()].copy_from_slice(&n.to_be_bytes());
    let write = async {
        let mut said = pattern(BLOCK);
        for n in 0..bytes / BLOCK {
            block(n, &mut said);
            writing.write_all(&said).await.expect("it is taken");
        }
    };
    let read = async {
        let (mut heard, mut said) = (vec![0; BLOCK], pattern(BLOCK));
        for n in 0..bytes / BLOCK {
            block(n, &mut said);
            let read = reading.read_exact(&mut heard);
            timeout(SOON, read).await.expect("it comes back").expect("all of it");
            assert!(heard == said, "{hand}: block {n}");
        }
    };
    tokio::join!(write, read);
}

/// What comes back of this.
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
