//! What is read from a pod is whole, or kubectl says that it is not: never a short answer with exit code 0.

use std::collections::BTreeMap;

use tests::node::sha256;
use tests::node_edge::{NodeEdge, POD, trial};

use super::hands::{Hand, hands};

const BYTES: usize = 50 * 1024 * 1024;
/// The hash of what `pod flood` writes.
const FILE: &str = "/tmp/large";

/// How a reading ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ending {
    Whole,
    /// Something else than the file, and a code that says so.
    Failed,
    /// Something else than the file, with exit code 0.
    ShortWithoutAWord,
}

#[test]
fn fifty_megabytes_from_a_pod_are_whole_or_an_error() {
    trial("fifty_megabytes_from_a_pod_are_whole", async |edges| reads_are_whole(&edges.edges[1], 2).await);
}

#[test]
#[ignore = "soak: 1600 times fifty megabytes"]
fn fifty_megabytes_from_a_pod_are_whole_or_an_error_two_hundred_times() {
    trial("fifty_megabytes_two_hundred_times", async |edges| reads_are_whole(&edges.edges[1], 200).await);
}

/// A file by `cat`, and a command that ends right after its last byte; both by each way and protocol.
async fn reads_are_whole(edge: &NodeEdge, times: usize) {
    let bytes = BYTES.to_string();
    let makes = format!("pod flood {bytes} >{FILE} && sha256sum <{FILE}");
    let made = edge.direct.stdout(&["exec", POD, "--", "sh", "-c", &makes]).await;
    let hash = made.split_whitespace().next().expect("a hash");
    let mut endings: BTreeMap<String, BTreeMap<Ending, usize>> = BTreeMap::new();
    for _ in 0..times {
        for hand in hands(edge) {
            for command in [["cat", FILE].as_slice(), &["pod", "flood", &bytes]] {
                let ending = ending(&hand, command, hash).await;
                *endings.entry(hand.name.clone()).or_default().entry(ending).or_default() += 1;
            }
        }
    }
    println!("{endings:#?}");
    let of = |way: &str| {
        let ours = endings.iter().filter(|(name, _)| name.starts_with(way));
        ours.flat_map(|(_, endings)| endings.keys().copied()).collect::<Vec<_>>()
    };
    let direct = of("direct");
    let worse: Vec<_> = of("tunneled").into_iter().filter(|ending| !direct.contains(ending)).collect();
    assert!(worse.is_empty(), "through the tunnel, and not beside it: {worse:?}: {endings:#?}");
    assert!(direct.contains(&Ending::Whole), "{endings:#?}");
}

async fn ending(hand: &Hand, command: &[&str], hash: &str) -> Ending {
    let output = hand.run(&[["exec", POD, "--"].as_slice(), command].concat()).await;
    if sha256(&output.stdout) == hash {
        return Ending::Whole;
    }
    println!(
        "{}: {} bytes, {}, {}",
        hand.name,
        output.stdout.len(),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    if output.status.success() { Ending::ShortWithoutAWord } else { Ending::Failed }
}
