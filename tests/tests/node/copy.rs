//! `kubectl cp`: files and folders into a pod and out of it again.

use std::fs;

use tests::node::sha256;
use tests::node_edge::{NodeEdge, POD, trial};

use super::kubectls::{Client, clients, pattern};

#[test]
fn a_folder_copied_into_a_pod_and_out_again_is_unchanged() {
    trial("a_folder_copied_into_a_pod_and_out_again_is_unchanged", async |edges| {
        for client in clients(&edges.edges[0]) {
            a_folder_comes_back(&edges.edges[0], &client, &pattern(8 * 1024 * 1024)).await;
        }
    });
}

/// A folder with this in a file, and an empty file below.
pub async fn a_folder_comes_back(edge: &NodeEdge, client: &Client, large: &[u8]) {
    let source = edge.file(&format!("{}-source", client.name));
    fs::create_dir_all(source.join("below")).expect("a folder");
    fs::write(source.join("large"), large).expect("a file");
    fs::write(source.join("below/empty"), b"").expect("a file");
    let there = format!("/tmp/{}", client.name);
    let back = edge.file(&format!("{}-back", client.name));
    let copied = client.run(&["cp", &source.display().to_string(), &format!("{POD}:{there}")]).await;
    assert!(copied.status.success(), "{}: {copied:?}", client.name);
    let hash = edge.direct.stdout(&["exec", POD, "--", "sha256sum", &format!("{there}/large")]).await;
    assert_eq!(hash.split_whitespace().next(), Some(sha256(large).as_str()), "{}", client.name);

    let copied = client.run(&["cp", &format!("{POD}:{there}"), &back.display().to_string()]).await;

    assert!(copied.status.success(), "{}: {copied:?}", client.name);
    assert!(fs::read(back.join("large")).expect("a file") == large, "{}", client.name);
    assert_eq!(fs::read(back.join("below/empty")).expect("a file"), b"", "{}", client.name);
}
