//! Reads from a pod are complete, or kubectl reports an error: never a short answer with exit code 0.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::stream::{self, StreamExt};
use tests::node::sha256;
use tests::node_edge::{NodeEdge, POD, trial};
use tokio::io::AsyncReadExt;
use tokio::time::sleep;

use super::kubectls::{Client, SOON, clients};

const BYTES: usize = 50 * 1024 * 1024;
const FILE: &str = "/tmp/large";
/// Number of kubectls that read at once: as many as an agent drains before forwarding.
const AT_ONCE: usize = 4;
/// A slow reader takes so much, and then pauses.
const SIP: usize = 128 * 1024;
/// Slow readers are of so many paces, 1.3 to 6.5 MB a second. At which bytes an API server's pings, kubectl's
/// and the ends of commands meet depends on the pace: readers of one alone may miss for ever what the next
/// one meets each time.
const PACES: u32 = 9;
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_STEP: Duration = Duration::from_millis(10);
/// Slow readings by each command in search of an ending: of 77 by WebSocket 14 ended in the rarest one, so
/// that it escapes one search in ten thousand.
const SLOW_MAX: u32 = 24;

/// The end of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ending {
    Complete,
    /// Different bytes from the file's, and an exit code of an error.
    Failed,
    /// Different bytes from the file's, with exit code 0.
    ShortWithoutAnError,
}

/// The source of a read, and its pace.
#[derive(Debug, Clone, Copy)]
struct Reading {
    /// By a command that ends right after its last byte; by `cat` of a file otherwise.
    is_flood: bool,
    is_slow: bool,
}

#[test]
fn fifty_megabytes_from_a_pod_are_complete_or_an_error() {
    trial("fifty_megabytes_from_a_pod_are_complete_or_an_error", async |edges| {
        reads_are_complete(&edges.edges[1], 2, &[false]).await
    });
}

/// Reads by each way and protocol so many times by each command and at each pace, and claims that by each
/// protocol some are whole, and none ends through the tunnel as none does beside it.
///
/// # Panics
/// Where one is.
pub async fn reads_are_complete(edge: &NodeEdge, times: u32, paces: &[bool]) {
    let makes = format!("pod flood {BYTES} >{FILE} && sha256sum <{FILE}");
    let made = edge.direct.stdout(&["exec", POD, "--", "sh", "-c", &makes]).await;
    let hash = made.split_whitespace().next().expect("a hash");
    let clients = clients(edge);
    let mut all = Vec::new();
    for n in 0..times {
        for is_flood in [false, true] {
            for &is_slow in paces {
                all.extend(clients.iter().map(|client| (client, n, Reading { is_flood, is_slow })));
            }
        }
    }
    let endings = stream::iter(all).map(async |(client, n, reading)| {
        (client.name.as_str(), ending(edge, client, n, reading, hash).await)
    });
    let mut counts: BTreeMap<&str, BTreeMap<Ending, usize>> = BTreeMap::new();
    let mut endings = std::pin::pin!(endings.buffer_unordered(AT_ONCE));
    while let Some((name, ending)) = endings.next().await {
        *counts.entry(name).or_default().entry(ending).or_default() += 1;
    }
    println!("{counts:#?}");
    // kubectl has failures of its own, and others by each protocol.
    for protocol in ["websocket", "spdy"] {
        let by = |entry_point: &str| -> BTreeSet<Ending> {
            counts[format!("{entry_point}-{protocol}").as_str()].keys().copied().collect()
        };
        let (direct, tunneled) = (by("direct"), by("tunneled"));
        assert!(
            [&direct, &tunneled].iter().all(|endings| endings.contains(&Ending::Complete)),
            "{counts:#?}"
        );
        let worse = &tunneled - &direct;
        if worse.is_empty() {
            continue;
        }
        let client =
            clients.iter().find(|client| client.name == format!("direct-{protocol}")).expect("there is one");
        let slow = slowly(edge, client, &worse, hash).await;
        assert!(
            worse.is_subset(&slow),
            "by {protocol} through the tunnel {worse:?}, and beside it by slow readers {slow:?}: {counts:#?}"
        );
    }
}

/// Reads slowly without the tunnel until all these endings were seen, and returns them. Through a tunnel, and
/// on a busy machine, a reader is slower than without it, and time is what cuts it short in the cluster: an
/// API server pings a kubelet every five seconds (decision 0045).
async fn slowly(edge: &NodeEdge, client: &Client, wanted: &BTreeSet<Ending>, hash: &str) -> BTreeSet<Ending> {
    let readings = [false, true].map(|is_flood| Reading { is_flood, is_slow: true });
    let endings = stream::iter((0..SLOW_MAX).flat_map(|n| readings.map(|reading| (n, reading))))
        .map(async |(n, reading)| ending(edge, client, n, reading, hash).await);
    let mut endings = std::pin::pin!(endings.buffer_unordered(AT_ONCE));
    let mut seen = BTreeSet::new();
    while let Some(ending) = endings.next().await {
        seen.insert(ending);
        if wanted.is_subset(&seen) {
            break;
        }
    }
    seen
}

async fn ending(edge: &NodeEdge, client: &Client, n: u32, reading: Reading, hash: &str) -> Ending {
    let bytes = BYTES.to_string();
    let command: &[&str] = if reading.is_flood { &["pod", "flood", &bytes] } else { &["cat", FILE] };
    let errors = edge.file(&format!("{}-{n}-{reading:?}.err", client.name));
    let words = [["exec", POD, "--"].as_slice(), command].concat();
    let (mut process, _stdin, mut stdout) =
        client.kubectl.start_talking(&words, &errors).await.expect("kubectl starts");
    let (mut read, mut sip) = (Vec::with_capacity(BYTES), vec![0; SIP]);
    loop {
        let got = stdout.read(&mut sip).await.expect("a pipe can be read");
        if got == 0 {
            break;
        }
        read.extend_from_slice(&sip[..got]);
        if reading.is_slow && read.len() % SIP < got {
            sleep(PAUSE_MIN + PAUSE_STEP * (n % PACES)).await;
        }
    }
    let status = process.wait(SOON).await.unwrap_or_else(|error| panic!("{}: {error}", client.name));
    if sha256(&read) == hash {
        return Ending::Complete;
    }
    println!("{}: {reading:?}: {} bytes, {status}, {}", client.name, read.len(), process.tail());
    if status.success() { Ending::ShortWithoutAnError } else { Ending::Failed }
}
