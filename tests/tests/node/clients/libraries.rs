//! Programs with client libraries at a pod: kube-rs, and Python's kubernetes, which use WebSocket alone.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use futures::future::join_all;
use tests::kube::assets::{self, MissingAssets};
use tests::node_edge::{NodeEdge, POD, trial};
use tests::skip::skip;

use crate::exec::{
    PRINTS_SIZES, an_attach_passes_both_directions, outputs_are_separate, what_is_typed_arrives,
};
use crate::forward::each_connection_is_its_own;
use crate::kubectls::{Client, clients_of, pattern};

/// The number of bytes that are typed.
const BYTES: usize = 1024 * 1024;
const CONNECTIONS: usize = 20;

#[test]
fn a_program_that_is_written_with_kube_rs_works_at_a_pod() {
    let test = "a_program_that_is_written_with_kube_rs_works_at_a_pod";
    with(test, assets::kube_rs(), async |edge, program| {
        work(edge, &clients_of(edge, "kube-rs", program)).await;
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
        let clients = clients_of(edge, "python", &program);
        work(
            edge,
            &clients.map(|client| Client { kubectl: client.kubectl.with_variable("PATH", path), ..client }),
        )
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

async fn work(edge: &NodeEdge, clients: &[Client]) {
    join_all(clients.iter().map(async |client| {
        assert_eq!(outputs_are_separate(client).await, "err\n", "{}", client.name);
        what_is_typed_arrives(edge, client, &pattern(BYTES)).await;
        an_attach_passes_both_directions(edge, client).await;
        the_terminal_follows(client).await;
        each_connection_is_its_own(edge, client, CONNECTIONS).await;
    }))
    .await;
}

async fn the_terminal_follows(client: &Client) {
    let output = client.run(&["exec", "-t", POD, "--", "sh", "-c", PRINTS_SIZES]).await;
    let seen = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(7), "{}: {output:?}", client.name);
    assert!(seen.contains("33 77\r\n") && seen.ends_with("grown\r\n"), "{}: {seen}", client.name);
}
