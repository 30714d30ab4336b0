//! Programs that are written with client libraries at a pod: kube-rs, and Python's kubernetes, which speak WebSocket alone.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use futures::future::join_all;
use tests::kube::assets::{self, MissingAssets};
use tests::node_edge::{NodeEdge, POD, trial};
use tests::skip::skip;

use crate::exec::{SAYS_SIZES, outputs_are_told_apart, what_is_typed_arrives, who_attaches_is_heard};
use crate::forward::each_connection_is_its_own;
use crate::kubectls::{Client, hands_of, pattern};

/// What is typed.
const BYTES: usize = 1024 * 1024;
const CONNECTIONS: usize = 20;

#[test]
fn a_program_that_is_written_with_kube_rs_works_at_a_pod() {
    let test = "a_program_that_is_written_with_kube_rs_works_at_a_pod";
    with(test, assets::kube_rs(), async |edge, program| {
        work(edge, &hands_of(edge, "kube-rs", program)).await;
    });
}

#[test]
fn a_program_that_is_written_with_pythons_client_works_at_a_pod() {
    let test = "a_program_that_is_written_with_pythons_client_works_at_a_pod";
    with(test, assets::python(), async |edge, python| {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("kube/python/client.py");
        // The program asks for whichever Python comes first.
        let mut path = OsString::from(python.parent().expect("a program is in a folder"));
        path.push(":");
        path.push(env::var_os("PATH").unwrap_or_default());
        let path = path.to_str().expect("a path");
        let hands = hands_of(edge, "python", &program);
        work(edge, &hands.map(|hand| Client { kubectl: hand.kubectl.with_variable("PATH", path), ..hand }))
            .await;
    });
}

fn with(
    test: &str,
    program: Result<PathBuf, MissingAssets>,
    does: impl AsyncFnOnce(&NodeEdge, &Path) + Send,
) {
    match program {
        Ok(program) => trial(test, async |edges| does(&edges.edges[0], &program).await),
        Err(missing) => skip(test, &missing.to_string()),
    }
}

async fn work(edge: &NodeEdge, hands: &[Client]) {
    join_all(hands.iter().map(async |hand| {
        assert_eq!(outputs_are_told_apart(hand).await, "err\n", "{}", hand.name);
        what_is_typed_arrives(edge, hand, &pattern(BYTES)).await;
        who_attaches_is_heard(edge, hand).await;
        the_terminal_follows(hand).await;
        each_connection_is_its_own(edge, hand, CONNECTIONS).await;
    }))
    .await;
}

async fn the_terminal_follows(hand: &Client) {
    let output = hand.run(&["exec", "-t", POD, "--", "sh", "-c", SAYS_SIZES]).await;
    let seen = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(7), "{}: {output:?}", hand.name);
    assert!(seen.contains("33 77\r\n") && seen.ends_with("grown\r\n"), "{}: {seen}", hand.name);
}
