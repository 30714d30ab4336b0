//! `kubectl cp`: files and folders into a pod and out of it again.

use std::fs;

use tests::node::sha256;
use tests::node_edge::{POD, trial};

use super::hands::{hands, pattern};

#[test]
fn a_folder_that_is_copied_into_a_pod_and_out_again_is_what_it_was() {
    trial("a_folder_that_is_copied_into_a_pod", async |edges| {
        let edge = &edges.edges[0];
        let large = pattern(8 * 1024 * 1024);
        let source = edge.file("source");
        fs::create_dir_all(source.join("below")).expect("a folder");
        fs::write(source.join("large"), &large).expect("a file");
        fs::write(source.join("below/empty"), b"").expect("a file");
        for hand in hands(edge) {
            let there = format!("/tmp/{}", hand.name);
            let back = edge.file(&format!("{}-back", hand.name));
            let copied = hand.run(&["cp", &source.display().to_string(), &format!("{POD}:{there}")]).await;
            assert!(copied.status.success(), "{}: {copied:?}", hand.name);
            let hash = edge.direct.stdout(&["exec", POD, "--", "sha256sum", &format!("{there}/large")]).await;
            assert_eq!(hash.split_whitespace().next(), Some(sha256(&large).as_str()), "{}", hand.name);

            let copied = hand.run(&["cp", &format!("{POD}:{there}"), &back.display().to_string()]).await;

            assert!(copied.status.success(), "{}: {copied:?}", hand.name);
            assert!(fs::read(back.join("large")).expect("a file") == large, "{}", hand.name);
            assert_eq!(fs::read(back.join("below/empty")).expect("a file"), b"", "{}", hand.name);
        }
    });
}
